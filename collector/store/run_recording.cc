#include "collector/store/run_recording.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"

namespace gpuprobe::store {
namespace {

void Keep(absl::Status& first, absl::Status next) {
  if (first.ok()) first = std::move(next);
}

}  // namespace

absl::Status RunRecording::Log::Begin(uint64_t now_ns) {
  if (writer_ != nullptr) return absl::OkStatus();
  const bool continues = continues_;
  if (absl::Status s = Open(); !s.ok()) return s;
  absl::Status status = writer_->Append(hello_, now_ns);
  if (run_.generation_ > 1 && !continues) {
    for (const std::string& frame : definitions_.Frames()) Keep(status, writer_->Append(frame, now_ns));
  }
  return status;
}

absl::Status RunRecording::Log::Open() {
  const std::string file = SegmentName(name_, run_.generation_);
  absl::StatusOr<std::unique_ptr<RunLogWriter>> opened =
      std::exchange(continues_, false)
          ? RunLogWriter::Continue(run_.directory_, file)
          : RunLogWriter::Create(run_.directory_, file, run_.version_, run_.starts_ns_.back());
  if (!opened.ok()) return opened.status();
  writer_ = *std::move(opened);
  if (run_.small_) writer_->PreferSmall();
  return absl::OkStatus();
}

void RunRecording::Log::Settle() {
  if (stopped_ || writer_ == nullptr || writer_->settled()) on_record_ = last_sequence_;
}

void RunRecording::Log::End() {
  continues_ = false;
  if (writer_ == nullptr) return;
  run_.unrecorded_frames_ += writer_->unrecorded_frames();
  writer_.reset();
  Settle();
}

absl::Status RunRecording::Log::Append(std::string_view raw, uint64_t now_ns) {
  return Write(raw, false, now_ns);
}

absl::Status RunRecording::Log::AppendApart(std::string_view raw, uint64_t now_ns) {
  absl::Status status = Write(raw, true, now_ns);
  Settle();
  return status;
}

absl::Status RunRecording::Log::Write(std::string_view raw, bool apart, uint64_t now_ns) {
  if (stopped_) {
    ++run_.unrecorded_frames_;
    return absl::OkStatus();
  }
  const uint64_t before = writer_ == nullptr ? 0 : writer_->file_bytes();
  absl::Status status = Begin(now_ns);
  if (writer_ == nullptr) {
    stopped_ = true;
    ++run_.unrecorded_frames_;
    return status;
  }
  Keep(status, apart ? writer_->AppendApart(raw) : writer_->Append(raw, now_ns));
  run_.generation_bytes_ += writer_->file_bytes() - std::min(before, writer_->file_bytes());
  return status;
}

absl::Status RunRecording::Log::AppendHello(std::string_view raw, uint64_t now_ns) {
  hello_ = raw;
  // Begin writes it.
  if (writer_ != nullptr) return Append(raw, now_ns);
  absl::Status status = Begin(now_ns);
  if (writer_ == nullptr) stopped_ = true;
  return status;
}

absl::Status RunRecording::Log::AppendBatch(const v1::Batch& batch, std::string_view raw, uint64_t now_ns) {
  last_sequence_ = std::max<uint64_t>(last_sequence_, batch.sequence());
  absl::Status status = Append(raw, now_ns);
  Settle();
  definitions_.Learn(batch);
  return status;
}

absl::Status RunRecording::Log::Flush() {
  if (writer_ == nullptr) return absl::OkStatus();
  const uint64_t before = writer_->file_bytes();
  absl::Status status = writer_->Flush();
  run_.generation_bytes_ += writer_->file_bytes() - before;
  Settle();
  return status;
}

RunRecording::RunRecording(const Directory& directory, std::string version, uint64_t keep_bytes,
                           uint64_t realtime_ns)
    : directory_(directory), version_(std::move(version)), keep_bytes_(keep_bytes), starts_ns_{realtime_ns} {}

RunRecording::RunRecording(const Directory& directory, std::string version, uint64_t keep_bytes,
                           const Unfinished& run)
    : directory_(directory),
      version_(std::move(version)),
      keep_bytes_(keep_bytes),
      generation_(run.generation),
      first_generation_(run.first_generation),
      starts_ns_(run.starts_ns),
      generation_bytes_(run.generation_bytes),
      totals_bytes_(run.totals_bytes) {
  for (const Unfinished::ProcessLog& known : run.logs) {
    std::unique_ptr<Log> log(new Log(*this, known.name));
    log->continues_ = known.in_generation;
    log->last_sequence_ = log->on_record_ = known.last_sequence;
    names_.insert(known.name);
    logs_.push_back(std::move(log));
  }
}

absl::StatusOr<RunRecording::Log*> RunRecording::Open(const v1::Hello& hello, std::string_view raw,
                                                      uint64_t now_ns) {
  const std::string name = LogName(directory_, hello.identity(), names_);
  std::unique_ptr<Log> log(new Log(*this, name));
  if (absl::Status s = log->AppendHello(raw, now_ns); log->writer_ == nullptr) return s;
  names_.insert(name);
  logs_.push_back(std::move(log));
  return logs_.back().get();
}

uint64_t RunRecording::GenerationLimit() const {
  // Where totals are large against the bound, a generation is at least as large as they are, so that no more
  // than half of what is written is totals.
  return std::max(keep_bytes_ / kGenerations, std::min(totals_bytes_, keep_bytes_ / 4));
}

absl::Status RunRecording::ForEach(const std::function<absl::Status(Log&)>& act) {
  absl::Status status;
  for (const std::unique_ptr<Log>& log : logs_) Keep(status, act(*log));
  return status;
}

absl::Status RunRecording::FlushIfDue(uint64_t now_ns) {
  return ForEach([&](Log& log) {
    if (log.writer_ == nullptr) return absl::OkStatus();
    const uint64_t before = log.writer_->file_bytes();
    absl::Status status = log.writer_->FlushIfDue(now_ns);
    generation_bytes_ += log.writer_->file_bytes() - before;
    log.Settle();
    return status;
  });
}

absl::Status RunRecording::Flush() {
  return ForEach([](Log& log) { return log.Flush(); });
}

absl::Status RunRecording::Close() {
  absl::Status status = Flush();
  for (const std::unique_ptr<Log>& log : logs_) log->End();
  return status;
}

absl::Status RunRecording::Rotate(StateSource state, uint64_t realtime_ns) {
  absl::Status status = Flush();
  Keep(status, WriteTotals(directory_, TotalsName(generation_ + 1), version_, realtime_ns, state));
  generation_bytes_ = 0;  // a disk that refuses is tried again after as much more
  if (!status.ok()) return status;
  for (const std::unique_ptr<Log>& log : logs_) log->End();
  ++generation_;
  starts_ns_.push_back(realtime_ns);
  DropWhatDoesNotFit();
  return absl::OkStatus();
}

void RunRecording::DropWhatDoesNotFit() {
  const absl::StatusOr<RunFiles> files = ListRun(directory_);
  if (!files.ok()) return;
  // A reader needs the newest totals, and falls back to those before.
  constexpr uint32_t kTotalsKept = 2;
  uint64_t sum = 0;
  for (const auto& [generation, path] : files->totals) {
    if (generation + kTotalsKept <= generation_) {
      directory_.Remove(TotalsName(generation));
    } else {
      const uint64_t size = directory_.FileBytes(TotalsName(generation));
      sum += size;
      if (generation == generation_) totals_bytes_ = size;
    }
  }
  std::map<uint32_t, uint64_t> sizes;
  for (const Segment& segment : files->segments) {
    const uint64_t size = directory_.FileBytes(segment.name);
    sizes[segment.generation] += size;
    sum += size;
  }
  // Room for the generation that begins and for the totals at its end. The one that has just ended stays.
  const uint64_t reserved = GenerationLimit() + totals_bytes_;
  const uint64_t room = keep_bytes_ - std::min(keep_bytes_, reserved);
  for (const auto& [generation, size] : sizes) {
    if (sum <= room || generation + 1 >= generation_) break;
    for (const Segment& segment : files->segments) {
      if (segment.generation == generation) directory_.Remove(segment.name);
    }
    sum -= size;
    const auto next = sizes.upper_bound(generation);
    first_generation_ = next == sizes.end() ? generation_ : next->first;
  }
}

uint64_t RunRecording::unrecorded_frames() const {
  uint64_t frames = unrecorded_frames_;
  for (const std::unique_ptr<Log>& log : logs_) {
    if (log->writer_ != nullptr) frames += log->writer_->unrecorded_frames();
  }
  return frames;
}

}  // namespace gpuprobe::store
