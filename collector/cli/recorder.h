// From clients' frames to a run directory: applies every frame to the model and writes it to the process's
// log.
//
// Separate from the subcommands because `collect` and `run` record the same way. Used from the server's
// thread only. Must outlive the server whose sinks it makes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "collector/analysis/report.h"
#include "collector/ingest/session.h"
#include "collector/model/job_model.h"
#include "collector/store/run_log_writer.h"

namespace gpuprobe::cli {

class Recorder {
 public:
  // Where to record: `directory` is made at once and must be free; empty: a default name is made when the
  // first process is heard.
  static absl::StatusOr<std::unique_ptr<Recorder>> Create(const std::string& directory);

  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(const v1::Hello& hello, std::string_view raw);
  // Writes what has waited long enough; call a few times a second.
  void Tick();

  // Settles the model and writes report.json and report.html. After it no sink may be used.
  // `command_line` is put into the conditions if not empty.
  absl::StatusOr<analysis::Report> Finish(const std::vector<std::string>& command_line);

  bool heard_anything() const { return !job_.processes().empty(); }
  const std::string& directory() const { return directory_; }
  // Removes a directory that Create made and nothing was recorded in.
  void RemoveIfEmpty();

 private:
  class Sink;
  Recorder() = default;
  void Note(const absl::Status& status);

  std::string directory_;
  bool made_directory_ = false;
  model::JobModel job_;
  std::map<const model::ProcessModel*, std::unique_ptr<store::RunLogWriter>> logs_;
  bool said_disk_trouble_ = false;
};

}  // namespace gpuprobe::cli
