#include "collector/model/rank_comparison.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/model/process_model.h"

namespace gpuprobe::model {
namespace {

// Steps are put to account between so many steps later: of StepTracker::kKept, which are remembered.
constexpr uint64_t kLeastBehind = 128;
constexpr uint64_t kMostBehind = 256;

// No rank leaves these before every other one has contributed, nor much later; the root of a broadcast does.
bool EndsTogether(std::string_view op) {
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter" || op == "AlltoAll";
}

}  // namespace

ClockLink::Window ClockLink::Median() const {
  std::vector<int64_t> sorted = open_;
  std::sort(sorted.begin(), sorted.end());
  return {.time_ns = begin_ns_, .ahead_ns = sorted[sorted.size() / 2]};
}

void ClockLink::Add(uint64_t reference_ns, int64_t ahead_ns) {
  ++samples_;
  if (open_.size() == kSamples && reference_ns >= begin_ns_ + length_ns_) {
    windows_.push_back(Median());
    open_.clear();
    if (windows_.size() == kMaxWindows) {
      for (size_t i = 0; i < kMaxWindows / 2; ++i) windows_[i] = windows_[2 * i];
      windows_.resize(kMaxWindows / 2);
      const uint64_t span_ns = windows_.back().time_ns - windows_.front().time_ns;
      length_ns_ = std::max(length_ns_ * 2, span_ns / (kMaxWindows / 2));
    }
  }
  if (open_.empty()) begin_ns_ = reference_ns;
  if (open_.size() < kSamples) open_.push_back(ahead_ns);
}

std::vector<ClockLink::Window> ClockLink::Windows() const {
  std::vector<Window> all = windows_;
  if (!open_.empty()) all.push_back(Median());
  return all;
}

uint32_t RankComparison::TransfersOf(uint64_t hash, const ProcessModel& process,
                                     const CollectiveSeries& series) {
  const auto known = transfers_by_series_.find(&series);
  if (known != transfers_by_series_.end()) return known->second;
  if (series.mixed_sizes) return transfers_by_series_[&series] = kNoTransfers;
  std::map<std::string, uint64_t> bytes_of_op;
  for (const CollectivePart& part : series.parts) {
    // All plans of a series are alike.
    if (series.calls > 0)
      bytes_of_op[process.String(part.op)] += part.bytes * series.calls_per_plan / series.calls;
  }
  std::string key = absl::StrCat(hash, ";", series.calls_per_plan);
  for (const auto& [op, bytes] : bytes_of_op) absl::StrAppend(&key, ";", op, ":", bytes);
  const auto [it, added] = transfers_by_key_.try_emplace(key, static_cast<uint32_t>(transfers_.size()));
  if (added && transfers_.size() >= kMaxTransfers) {
    transfers_by_key_.erase(it);
    return kNoTransfers;
  }
  if (added) {
    Transfers& t = transfers_.emplace_back();
    const v1::Communicator* comm = process.FindCommunicator(series.comm);
    t.hash = hash;
    t.ranks = comm == nullptr ? 0 : comm->ranks();
    t.bytes_of_op = std::move(bytes_of_op);
    t.calls_per_plan = series.calls_per_plan;
  }
  return transfers_by_series_[&series] = it->second;
}

void RankComparison::Add(uint64_t hash, const std::vector<std::unique_ptr<ProcessModel>>& processes,
                         const std::vector<Participant>& participants) {
  uint64_t shortest = UINT64_MAX;
  const Participant* last = nullptr;
  const Participant* reference = nullptr;
  uint64_t sum = 0;
  for (const Participant& p : participants) {
    const uint64_t duration = p.end_ns - p.start_ns;
    sum += duration;
    // Of those that came last together the same one always, in whatever order ranks are heard.
    if (duration < shortest || (duration == shortest && p.comm_rank < last->comm_rank)) {
      shortest = duration;
      last = &p;
    }
    if (reference == nullptr || p.process < reference->process) reference = &p;
    if (p.process >= blame_.size()) blame_.resize(p.process + 1);
  }
  for (const Participant& p : participants) {
    const uint64_t waited = p.end_ns - p.start_ns - shortest;
    ++p.series->compared_plans;
    p.series->wait_ns += waited;
    p.series->transfer_ns += shortest;
    p.series->transfer_bytes += p.bytes;
    p.series->compared_ranks_sum += participants.size();
    blame_[p.process].waited_ns += waited;
    blame_[p.process].compared_ns = std::max(blame_[p.process].compared_ns, p.end_ns);
  }
  const uint64_t caused = sum - shortest * participants.size();
  Blame& blame = blame_[last->process];
  const uint64_t mean = caused / (participants.size() - 1);
  ++blame.last_arrivals;
  blame.caused_ns += caused;
  blame.caused_mean_ns += mean;
  blame.pending.push_back({.end_ns = last->end_ns, .mean_ns = mean});
  AccountSteps(*processes[last->process], last->process, false);

  const uint32_t transfers = TransfersOf(hash, *processes[last->process], *last->series);
  if (transfers == kNoTransfers) return;
  transfers_[transfers].time_ns.Add(shortest);
  const auto& ops = transfers_[transfers].bytes_of_op;
  if (!std::all_of(ops.begin(), ops.end(), [](const auto& part) { return EndsTogether(part.first); })) return;
  const auto reference_ns =
      reference->end_ns - static_cast<uint64_t>(reference->clock_shift_ns);  // wraps as it should
  for (const Participant& p : participants) {
    if (&p == reference) continue;
    const uint64_t own_ns = p.end_ns - static_cast<uint64_t>(p.clock_shift_ns);
    clocks_[{reference->process, p.process}].Add(reference_ns, static_cast<int64_t>(own_ns - reference_ns));
  }
}

void RankComparison::AccountSteps(const ProcessModel& process, uint32_t index, bool all) {
  if (index >= blame_.size()) return;
  Blame& blame = blame_[index];
  const std::deque<StepRecord>& steps = process.steps().steps();
  // Late enough that the order in which ranks' batches come makes no difference, and before steps are
  // forgotten.
  const bool due = !steps.empty() && (steps.back().index >= blame.next_step + kMostBehind ||
                                      blame.pending.size() > kMaxPending / 2);
  if (!all && !due) return;
  if (!steps.empty()) {
    const uint64_t known_ns = steps.back().end_ns;
    // Not in order: those of different communicators are compared as their ranks tell of them.
    std::erase_if(blame.pending, [&](const Blame::Pending& next) {
      if (next.end_ns > known_ns) return false;
      if (const auto step = process.steps().StepAt(next.end_ns == 0 ? 0 : next.end_ns - 1); step.has_value())
        blame.open_steps[*step] += next.mean_ns;
      return true;
    });
    auto at = std::partition_point(steps.begin(), steps.end(),
                                   [&](const StepRecord& step) { return step.index < blame.next_step; });
    for (; at < steps.end(); ++at) {
      const StepRecord& step = *at;
      // Plans are compared when every rank has told of them, some batches later, and nearly in order. What is
      // warm-up is known after some steps.
      if (!all && (step.end_ns + step.total_ns() > blame.compared_ns ||
                   steps.back().index < step.index + kLeastBehind)) {
        break;
      }
      blame.next_step = step.index + 1;
      const auto open = blame.open_steps.find(step.index);
      const uint64_t caused = open == blame.open_steps.end() ? 0 : open->second;
      blame.open_steps.erase(blame.open_steps.begin(), blame.open_steps.upper_bound(step.index));
      if (step.warmup) continue;
      blame.step_ns.Add(caused);
      if (static_cast<double>(caused) < kBlamedShare * static_cast<double>(step.total_ns())) continue;
      if (blame.steps_blamed++ == 0) blame.first_blamed = step.index;
      blame.last_blamed = step.index;
    }
  }
  if (blame.pending.size() > kMaxPending)
    blame.pending.erase(blame.pending.begin(), blame.pending.end() - kMaxPending / 2);
}

}  // namespace gpuprobe::model
