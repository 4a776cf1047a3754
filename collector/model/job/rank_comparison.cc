#include "collector/model/job/rank_comparison.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/model/process/process_model.h"
#include "collector/model/statistics/whole_number.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {
namespace {

// Steps are accounted for between this many steps later: StepTracker remembers the last kKept.
constexpr uint64_t kLeastBehind = 128;
constexpr uint64_t kMostBehind = 256;

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
                                     const CollectiveSeries& series, bool pair) {
  const auto known = transfers_by_series_.find(&series);
  if (known != transfers_by_series_.end()) return known->second;
  if (series.mixed_sizes) return transfers_by_series_[&series] = kNoTransfers;
  std::map<std::string, uint64_t> bytes_of_op;
  for (const CollectivePart& part : series.parts) {
    // All plans of a series are alike.
    if (series.calls > 0)
      bytes_of_op[process.String(part.op)] += part.bytes * series.calls_per_plan / series.calls;
  }
  if (pair)
    bytes_of_op = {{std::string(nccl::NameOf(nccl::Operation::kSendRecv)),
                    bytes_of_op.empty() ? 0 : bytes_of_op.begin()->second}};
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
    t.ranks = pair ? 2 : comm == nullptr ? 0 : comm->ranks();
    t.bytes_of_op = std::move(bytes_of_op);
    t.calls_per_plan = series.calls_per_plan;
  }
  return transfers_by_series_[&series] = it->second;
}

void RankComparison::Add(uint64_t hash, const std::vector<std::unique_ptr<ProcessModel>>& processes,
                         const std::vector<Participant>& participants, const std::vector<uint32_t>& lost,
                         size_t absent, bool pair) {
  if (!pair && absent == 0 && whole_.size() < kMaxWhole) whole_[hash] = 1;
  if (!whole_.contains(hash)) absent = 0;
  const Participant* last = nullptr;
  for (const Participant& p : participants) {
    const uint64_t duration = p.end_ns - p.start_ns;
    const uint64_t shortest = last == nullptr ? UINT64_MAX : last->end_ns - last->start_ns;
    // Ties go to the lowest rank, so that the order in which ranks report makes no difference.
    if (duration < shortest || (duration == shortest && p.comm_rank < last->comm_rank)) last = &p;
    if (p.process >= blame_.size()) blame_.resize(p.process + 1);
    blame_[p.process].compared_ns = std::max(blame_[p.process].compared_ns, p.end_ns);
  }
  for (const uint32_t process : lost) {
    if (process >= blame_.size()) blame_.resize(process + 1);
  }
  const uint32_t transfers = TransfersOf(hash, *processes[last->process], *last->series, pair);
  if (transfers != kNoTransfers) {
    const auto& ops = transfers_[transfers].bytes_of_op;
    if (pair || std::all_of(ops.begin(), ops.end(),
                            [](const auto& part) { return nccl::FactsOf(part.first).ends_together; }))
      AddClocks(participants, pair);
  }
  if (!pair && alignment_.Wants(hash)) {
    StepAlignment::Ends ends;
    for (const Participant& p : participants) ends.emplace_back(p.process, p.end_ns);
    alignment_.Note(std::move(ends));
    alignment_.Settle(processes, false);
  }
  if ((lost.size() + absent) * kRanksForOneLost > participants.size()) {
    if (pair) return;
    if (transfers != kNoTransfers && Estimate(transfers_[transfers], participants, *last, lost, absent))
      return;
    return Skip(participants, lost);
  }
  if (transfers != kNoTransfers) {
    const uint64_t transfer_ns = last->end_ns - last->start_ns;
    // On the clock of the same process in every call, whoever comes last.
    const Participant& clock =
        *std::min_element(participants.begin(), participants.end(),
                          [](const Participant& a, const Participant& b) { return a.process < b.process; });
    transfers_[transfers].time_ns.Add(transfer_ns);
    transfers_[transfers].blocks.Add(clock.process, clock.end_ns, transfer_ns);
  }
  AddWaiting(processes, participants, *last, pair);
  AccountSteps(*processes[last->process], last->process, false);
}

void RankComparison::Skip(const std::vector<Participant>& participants, const std::vector<uint32_t>& lost) {
  const auto skip = [this](uint32_t process) {
    if (process >= blame_.size()) blame_.resize(process + 1);
    ++blame_[process].skipped;
  };
  for (const Participant& p : participants) skip(p.process);
  for (const uint32_t process : lost) skip(process);
}

void RankComparison::AddWaiting(const std::vector<std::unique_ptr<ProcessModel>>& processes,
                                const std::vector<Participant>& participants, const Participant& last,
                                bool pair) {
  const uint64_t shortest = last.end_ns - last.start_ns;
  uint64_t caused = 0;
  for (const Participant& p : participants) {
    const uint64_t waited = p.end_ns - p.start_ns - shortest;
    caused += waited;
    ++p.series->compared_plans;
    p.series->wait_ns += waited;
    p.series->transfer_ns += shortest;
    p.series->transfer_bytes += p.bytes;
    p.series->compared_ranks_sum += participants.size();
    p.series->steady.Add({.end_ns = p.end_ns, .transfer_ns = shortest, .waited_ns = waited},
                         processes[p.process]->steps().steady_runs());
    blame_[p.process].waited_ns += waited;
    blame_[p.process].compared += pair ? 0 : 1;
  }
  Blame& blame = blame_[last.process];
  blame.caused_ns += caused;
  if (pair) {
    // In a pipeline stages wait for each other by design: an account of its own.
    blame.pair_caused_ns += caused;
    for (const Participant& p : participants) {
      ++blame_[p.process].pairs;
      blame_[p.process].pair_waited_ns += p.end_ns - p.start_ns - shortest;
    }
    blame.pending.push_back({.end_ns = last.end_ns, .mean_ns = caused, .pair = true});
    return;
  }
  ++blame.last_arrivals;
  const uint64_t mean = caused / (participants.size() - 1);
  blame.caused_mean_ns += mean;
  blame.caused_squares += absl::uint128(mean) * mean;
  blame.pending.push_back({.end_ns = last.end_ns, .mean_ns = mean});
}

bool RankComparison::Estimate(Transfers& transfers, const std::vector<Participant>& participants,
                              const Participant& last, const std::vector<uint32_t>& lost, size_t absent) {
  // The usual transfer is the median of the calls of which everything was seen; while they are too few, the
  // shortest kernel that any of these ranks ever had in such a call: it came last in some.
  constexpr uint64_t kLeastWhole = 8;
  constexpr uint64_t kLeastCalls = 8;
  // A shortest kernel within this factor of the usual one waited for nobody: transfers vary by as much.
  constexpr double kSame = 1.08;
  constexpr double kSameAsShortest = 1.15;
  const uint64_t whole = transfers.time_ns.count();
  const uint64_t seen = last.series->time_ns.count();
  if (seen < kLeastCalls) return false;
  if (seen >= transfers.usual_of * 2) {
    transfers.usual_of = seen;
    if (whole >= kLeastWhole) {
      transfers.usual_ns = WholeNumber(transfers.time_ns.Summarize().p50);
    } else {
      transfers.usual_ns = UINT64_MAX;
      for (const Participant& p : participants)
        transfers.usual_ns = std::min(transfers.usual_ns, p.series->time_ns.Summarize().min);
    }
  }
  const double same = whole >= kLeastWhole ? kSame : kSameAsShortest;
  const auto shortest_ns = static_cast<double>(last.end_ns - last.start_ns);
  const auto usual_ns = static_cast<double>(transfers.usual_ns);
  const bool last_is_known = shortest_ns <= same * usual_ns;
  if (!last_is_known && absent > 0) return false;
  const double transfer_ns = last_is_known ? shortest_ns : usual_ns;
  const double others = static_cast<double>(participants.size() + lost.size() + absent) - 1;
  double sum = 0;
  double squares = 0;
  for (const Participant& p : participants) {
    const double waited_ns = static_cast<double>(p.end_ns - p.start_ns) - transfer_ns;
    blame_[p.process].waited_ns += WholeNumber(waited_ns);
    ++blame_[p.process].estimated;
    sum += waited_ns;
    squares += waited_ns * waited_ns;
  }
  for (const uint32_t process : lost) ++blame_[process].estimated;
  const double known = static_cast<double>(participants.size()) - (last_is_known ? 1 : 0);
  const double mean = known > 0 ? sum / known : 0;
  // Those that were not seen waited as the others did, as far as these agree.
  const double sampling =
      known > 1 ? std::max(squares / known - mean * mean, 0.0) / known * (1 - known / others) : 0;
  if (last_is_known) {
    ++blame_[last.process].last_arrivals;
    Cause(last.process, last.end_ns, mean, others, sampling);
    return true;
  }
  // One of those that were not seen: as often as each of them has come last elsewhere (Laplace's rule).
  double weights = 0;
  for (const uint32_t process : lost) weights += static_cast<double>(blame_[process].last_arrivals) + 1;
  for (const uint32_t process : lost) {
    const double share = (static_cast<double>(blame_[process].last_arrivals) + 1) / weights;
    Cause(process, last.end_ns, mean * share, others, sampling * share + mean * mean * share * (1 - share));
  }
  if (lost.size() == 1) ++blame_[lost.front()].last_arrivals;
  return true;
}

void RankComparison::Cause(uint32_t process, uint64_t end_ns, double mean_ns, double others,
                           double variance) {
  Blame& blame = blame_[process];
  const uint64_t mean = WholeNumber(mean_ns);
  blame.caused_ns += WholeNumber(mean_ns * others);
  blame.caused_mean_ns += mean;
  blame.caused_squares += absl::uint128(mean) * mean;
  blame.estimated_variance += static_cast<absl::uint128>(std::max(variance, 0.0));
  blame.pending.push_back({.end_ns = end_ns, .mean_ns = mean});
}

void RankComparison::AddClocks(const std::vector<Participant>& participants, bool pair) {
  const Participant& reference =
      *std::min_element(participants.begin(), participants.end(),
                        [](const Participant& a, const Participant& b) { return a.process < b.process; });
  const auto reference_ns =
      reference.end_ns - static_cast<uint64_t>(reference.clock_shift_ns);  // wraps as it should
  auto& links = pair ? pair_clocks_ : clocks_;
  for (const Participant& p : participants) {
    if (&p == &reference) continue;
    const uint64_t own_ns = p.end_ns - static_cast<uint64_t>(p.clock_shift_ns);
    links[{reference.process, p.process}].Add(reference_ns, static_cast<int64_t>(own_ns - reference_ns));
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
    // Not in order: calls on different communicators are compared as their ranks report them.
    std::erase_if(blame.pending, [&](const Blame::Pending& next) {
      if (next.end_ns > known_ns) return false;
      if (const auto step = process.steps().StepAt(next.end_ns == 0 ? 0 : next.end_ns - 1); step.has_value())
        (next.pair ? blame.open_pair_steps : blame.open_steps)[*step] += next.mean_ns;
      return true;
    });
    auto at = std::partition_point(steps.begin(), steps.end(),
                                   [&](const StepRecord& step) { return step.index < blame.next_step; });
    for (; at < steps.end(); ++at) {
      const StepRecord& step = *at;
      // Plans are compared once every rank has reported them, some batches later, and nearly in order. Which
      // steps are warm-up is known after some more.
      if (!all && (step.end_ns + step.total_ns() > blame.compared_ns ||
                   steps.back().index < step.index + kLeastBehind)) {
        break;
      }
      blame.next_step = step.index + 1;
      const auto open = blame.open_steps.find(step.index);
      const uint64_t caused = open == blame.open_steps.end() ? 0 : open->second;
      blame.open_steps.erase(blame.open_steps.begin(), blame.open_steps.upper_bound(step.index));
      const auto pairs = blame.open_pair_steps.find(step.index);
      const uint64_t caused_in_pairs = pairs == blame.open_pair_steps.end() ? 0 : pairs->second;
      blame.open_pair_steps.erase(blame.open_pair_steps.begin(),
                                  blame.open_pair_steps.upper_bound(step.index));
      blame.caused_by_step.At(step.index).caused_ns += caused;
      if (step.warmup) continue;
      blame.step_ns.Add(caused);
      if (blame.pairs > 0) blame.pair_step_ns.Add(caused_in_pairs);
      if (!step.incomplete) {
        const int64_t number = static_cast<int64_t>(step.index) + alignment_.Behind(index, step.index);
        if (number >= 0) {
          spread_.Add(static_cast<uint64_t>(number), step.comm_ns, step.exposed_comm_ns);
          late_steps_.Add(static_cast<uint64_t>(number), index, step);
        }
      }
      if (static_cast<double>(caused) < kBlamedShare * static_cast<double>(step.total_ns())) continue;
      if (blame.steps_blamed++ == 0) blame.first_blamed = step.index;
      blame.last_blamed = step.index;
    }
  }
  if (blame.pending.size() > kMaxPending)
    blame.pending.erase(blame.pending.begin(), blame.pending.end() - kMaxPending / 2);
}

}  // namespace gpuprobe::model
