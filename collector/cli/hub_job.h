// --hub of the subcommands that read a run: the run is a job of a hub then, named as `gpuprobe jobs` lists
// it.
//
// Example: `gpuprobe report train#2 --hub http://n3:9460` is what `gpuprobe report` says of
// http://n3:9460/jobs/20261128T145457Z-127.0.0.1_29500_train: the second attempt of the only job with "train"
// in its name.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace gpuprobe::cli {

// Where `gpuprobe hub --http` serves by default.
inline constexpr char kHubHere[] = "http://127.0.0.1:9460";

// Whether a URL is of a job of a hub, and not of a run that is served by itself.
bool IsHubJob(const std::string& url);

// The attempts of the job that is meant at a hub; errors as of HubOption::Resolve.
struct HubAttempts {
  std::string path;  // where the hub has them
  std::string name;  // of the job, as people tell it from others
};
absl::StatusOr<HubAttempts> FindAttempts(const std::string& url, const std::string& given);

struct HubOption {
  std::optional<std::string> url;  // nullopt: it was not given

  void AddTo(CLI::App& app);
  // Makes `given` the URL of that job if the option was given; a URL stays what it is. Empty: the newest job,
  // which is then said, or the newest that runs. NotFound, in a line with near names, if there is no such job
  // or several have these words in their names.
  absl::Status Resolve(std::string& given, bool only_running = false) const;
};

}  // namespace gpuprobe::cli
