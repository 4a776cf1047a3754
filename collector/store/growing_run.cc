#include "collector/store/growing_run.h"

#include <utility>

#include "collector/store/run_files.h"

namespace gpuprobe::store {

// Opens the segment that is being read, or goes on in it.
absl::Status GrowingRun::ReadAgain(Log& log) {
  RunSource& source = log.source;
  const Segment& segment = log.segments[log.at];
  if (source.reader == nullptr) {
    absl::StatusOr<RunSource> opened = OpenSource(segment);
    if (!opened.ok()) return opened.status();
    opened->process = source.process;
    source = *std::move(opened);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<MappedFile>> file = MappedFile::Open(segment.path);
  if (!file.ok()) return file.status();
  source.done = source.contradicts;
  source.reader->GoOn(**file);
  source.file = *std::move(file);
  return absl::OkStatus();
}

absl::Status GrowingRun::Look(model::JobModel& job, AfterBatch after_batch) {
  const absl::StatusOr<RunFiles> files = ListRun(path_, logs_.empty() ? Dropped::kRefuse : Dropped::kAllow);
  if (!files.ok()) return files.status();
  hosts_ = files->hosts;
  for (const Segment& segment : files->segments) {
    Log& log = logs_[segment.log];
    if (log.segments.empty() || segment.generation > log.segments.back().generation)
      log.segments.push_back(segment);
  }
  absl::Status status;
  std::vector<Log*> reading;
  for (auto& [name, log] : logs_) reading.push_back(&log);
  while (!reading.empty()) {
    std::vector<RunSource*> sources;
    for (Log* log : reading) {
      const absl::Status opened = ReadAgain(*log);
      // A segment that was dropped before it was read is gone for good.
      if (opened.ok() || log->at + 1 == log->segments.size()) status.Update(opened);
      if (opened.ok()) sources.push_back(&log->source);
    }
    Replayed replayed;
    Interleave(sources, job, replayed,
               [&](const model::ProcessModel& process, const v1::Batch&) { after_batch(process); });
    // A segment that another one follows has its last byte.
    std::vector<Log*> further;
    for (Log* log : reading) {
      if (log->at + 1 == log->segments.size()) continue;
      ++log->at;
      log->source.reader.reset();
      further.push_back(log);
    }
    reading = std::move(further);
  }
  return status;
}

}  // namespace gpuprobe::store
