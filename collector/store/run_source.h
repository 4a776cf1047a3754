// A log that is being read into a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "collector/model/job/job_model.h"
#include "collector/store/mapped_file.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "collector/store/run_log_reader.h"

namespace gpuprobe::store {

struct RunSource {
  std::unique_ptr<MappedFile> file;
  std::unique_ptr<RunLogReader> reader;
  std::string log;  // Segment.log
  model::ProcessModel* process = nullptr;
  bool done = false;
  bool contradicts = false;  // it holds what the schema forbids: nothing after that is read
};

absl::StatusOr<RunSource> OpenSource(const Segment& segment);

// Reads sources that are not done to their ends into `job`, by the time of their batches.
void Interleave(const std::vector<RunSource*>& sources, model::JobModel& job, Replayed& replayed,
                BatchWatcher watch);

}  // namespace gpuprobe::store
