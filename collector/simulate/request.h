// What `gpuprobe simulate` is asked for: a scenario, changes to its job, and where the records go.
//
// gpuprobe parses the command line, checks it and hands it to the simulator (main.cc) in one form:
// "--name=value" for each option that was given, "--name=1" for a flag.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/simulate/scenarios.h"

namespace gpuprobe::simulate {

// An option that changes the scenario's job. They apply in the order of their table.
struct JobOption {
  enum class Kind : uint8_t { kFlag, kWhole, kReal };

  std::string_view name;  // without its dashes
  std::string_view help;
  Kind kind;
  double least;
  double most;
  void (*apply)(TrainingJob& job, double value);
};
std::span<const JobOption> JobOptions();

// So many jobs of a cluster's day are some of every kind.
inline constexpr int kFewestJobs = 12;

struct Request {
  const Scenario* scenario = nullptr;
  TrainingJob job;
  std::vector<std::string> command_line;  // that a user types to have the same job
  uint64_t seed = 1;
  bool real_time = false;
  int hosts = 0;         // above 0: the job's two hosts stand for so many, which are rolled up
  bool cluster = false;  // a day of so many jobs, instead of a scenario
  int jobs = 40;
  double hours = 24;
  std::string directory;
  std::string socket;                // of a running collector; empty: one is started ...
  std::string collector;             // ... by this program ...
  std::vector<std::string> collect;  // ... with these options
};

// InvalidArgument: an option is not known, or the scenario's job is not possible with it.
absl::StatusOr<Request> ReadRequest(std::span<const std::string> arguments);

}  // namespace gpuprobe::simulate
