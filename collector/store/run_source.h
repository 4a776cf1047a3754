// A log that is being read into a model.
#pragma once

#include <cstddef>
#include <cstdint>
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

// Whether more of a source will come, by its place among the sources.
using SourceCheck = absl::FunctionRef<bool(size_t source)>;

// Reads sources that are not done to their ends into `job`, by the time of their batches. Those of which
// `awaits` more when they are at their ends hold the others back: once many calls wait for ranks that have
// not reported them (JobModel::ManyCallsWait), no source is read beyond them; none at all if `ranks_come`,
// whose sources are not there yet. What is left is kept in its log, at no cost, and read later. Returns
// whether all were read to their ends.
bool Interleave(const std::vector<RunSource*>& sources, model::JobModel& job, Replayed& replayed,
                BatchWatcher watch, SourceCheck awaits, bool ranks_come = false);

}  // namespace gpuprobe::store
