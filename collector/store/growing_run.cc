#include "collector/store/growing_run.h"

#include <algorithm>
#include <cstdint>
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

bool GrowingRun::Awaits(const Log& log) const {
  const RunSource& source = log.source;
  if (source.contradicts || source.process == nullptr) return false;
  if (source.process->end_state() != model::EndState::kConnected) return false;
  if (source.process->communicators().empty()) return false;
  const bool has_grown = source.reader->last_ns() != log.last_ns;
  return has_grown || log.at + 1 < log.segments.size() || now_ < log.grew + kPatience;
}

bool GrowingRun::AwaitsRanks(const model::JobModel& job) const {
  if (!came_.has_value() || now_ > *came_ + kPatience) return false;
  size_t ranks = 0;
  for (const auto& process : job.processes())
    ranks = std::max<size_t>(ranks, process->identity().world_size());
  return logs_.size() < ranks;
}

absl::Status GrowingRun::Look(model::JobModel& job, AfterBatch after_batch, bool is_last) {
  const absl::StatusOr<RunFiles> files = ListRun(path_, logs_.empty() ? Dropped::kRefuse : Dropped::kAllow);
  if (!files.ok()) return files.status();
  const bool is_first = logs_.empty();
  bool has_come = false;
  now_ = Clock::now();
  hosts_ = files->hosts;
  for (const Segment& segment : files->segments) {
    const auto [at, added] = logs_.try_emplace(segment.log);
    has_come |= added && !is_first;
    Log& log = at->second;
    if (log.segments.empty() || segment.generation > log.segments.back().generation)
      log.segments.push_back(segment);
  }
  if (has_come) came_ = now_;
  const bool ranks_come = !is_last && AwaitsRanks(job);
  absl::Status status;
  std::vector<Log*> reading;
  for (auto& [name, log] : logs_) reading.push_back(&log);
  is_held_back_ = false;
  for (bool goes_on = true; goes_on;) {
    std::vector<Log*> opened;
    std::vector<RunSource*> sources;
    for (Log* log : reading) {
      const absl::Status read = ReadAgain(*log);
      // A segment that was dropped before it was read is gone for good.
      if (read.ok() || log->at + 1 == log->segments.size()) status.Update(read);
      if (!read.ok()) continue;
      opened.push_back(log);
      sources.push_back(&log->source);
    }
    Replayed replayed;
    is_held_back_ = !Interleave(
        sources, job, replayed,
        [&](const model::ProcessModel& process, const v1::Batch&) { after_batch(process); },
        [&](size_t source) { return !is_last && Awaits(*opened[source]); }, ranks_come);
    // A segment that another one follows has its last byte.
    goes_on = false;
    std::vector<Log*> further;
    for (Log* log : reading) {
      const RunLogReader* reader = log->source.reader.get();
      if (reader != nullptr && reader->last_ns() != log->last_ns) {
        log->last_ns = reader->last_ns();
        log->grew = Clock::now();
      }
      const bool is_read = reader == nullptr || log->source.done;
      if (is_read && log->at + 1 == log->segments.size()) continue;
      further.push_back(log);
      if (!is_read) continue;
      ++log->at;
      log->source.reader.reset();
      goes_on = true;
    }
    reading = std::move(further);
  }
  // A look may take longer than one should wait.
  if (has_come) came_ = Clock::now();
  return status;
}

}  // namespace gpuprobe::store
