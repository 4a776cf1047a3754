#include "collector/model/steps/range_cutter.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gpuprobe::model {
namespace {

// The kind of all ranges that the user's marker names.
constexpr char kMarkedKind[] = "marked";
// The kind of the steps that the probe reports.
constexpr char kRecordedKind[] = "recorded";

}  // namespace

void RangeCutter::UseRecorded() {
  step_kind_ = kRecordedKind;
  source_ = StepSource::kMarker;
}

void RangeCutter::AddRecorded(const RecordedStepRecord& step) {
  Keep({.start_ns = step.begin_ns,
        .end_ns = step.end_ns,
        .kind = kRecordedKind,
        .index = step.index,
        .earlier_end_ns = step.earlier_end_ns,
        .earlier_launch_ns = step.earlier_launch_ns});
}

void RangeCutter::Add(uint64_t start_ns, uint64_t end_ns, const std::string& kind) {
  if (chosen() && kind != step_kind_) return;
  Keep({.start_ns = start_ns, .end_ns = end_ns, .kind = kind});
  if (!chosen()) Choose(kind == kMarkedKind ? 1 : kLeastRanges);
}

void RangeCutter::AddMarked(uint64_t start_ns, uint64_t end_ns) { Add(start_ns, end_ns, kMarkedKind); }

void RangeCutter::Keep(StepRange range) {
  step_ranges_.push_back(std::move(range));
  if (step_ranges_.size() > kMaxRanges) step_ranges_.pop_front();
}

void RangeCutter::Choose(size_t least) {
  // The kind that covers most time: of nested ones the outer.
  std::map<std::string, std::pair<size_t, uint64_t>> kinds;
  for (const StepRange& range : step_ranges_) {
    auto& [count, length_ns] = kinds[range.kind];
    ++count;
    length_ns += range.end_ns - range.start_ns;
  }
  uint64_t most_ns = 0;
  for (const auto& [kind, seen] : kinds) {
    if (seen.first < least || seen.second <= most_ns) continue;
    most_ns = seen.second;
    step_kind_ = kind;
  }
  if (!chosen()) return;
  source_ = step_kind_ == kMarkedKind ? StepSource::kMarker : StepSource::kNvtx;
  std::erase_if(step_ranges_, [this](const StepRange& range) { return range.kind != step_kind_; });
  std::sort(step_ranges_.begin(), step_ranges_.end(),
            [](const StepRange& a, const StepRange& b) { return a.start_ns < b.start_ns; });
}

void RangeCutter::Cut(const OpenOperations& open, bool all, absl::FunctionRef<uint64_t()> last_end,
                      absl::FunctionRef<void(uint64_t begin, uint64_t end, const StepRange& range)> cut) {
  if (!chosen()) return;
  // A range is over when something was launched after it: everything that was launched in it is known.
  while (!step_ranges_.empty() && !open.empty() &&
         (all || open.At(open.End() - 1).launch_ns >= step_ranges_.front().end_ns)) {
    const StepRange range = std::move(step_ranges_.front());
    step_ranges_.pop_front();
    uint64_t begin = last_end();
    while (begin < open.End() && open.At(begin).launch_ns < range.start_ns) ++begin;
    uint64_t end = begin;
    while (end < open.End() && open.At(end).launch_ns < range.end_ns) ++end;
    if (end > begin) cut(begin, end, range);
  }
}

}  // namespace gpuprobe::model
