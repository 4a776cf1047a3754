#include "collector/model/job/rank_comparison.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/model/statistics/whole_number.h"
#include "proto/nccl_operations.h"

namespace gpuprobe::model {
namespace {

// Steps are accounted for between this many steps later: StepTracker remembers the last kKept.
constexpr uint64_t kLeastBehind = 128;
constexpr uint64_t kMostBehind = 256;

bool OnOneHost(const Members& members, const std::vector<RankComparison::Participant>& participants) {
  const std::string& host = members[participants.front().member].process->identity().host();
  return std::all_of(participants.begin(), participants.end(), [&](const RankComparison::Participant& p) {
    return members[p.member].process->identity().host() == host;
  });
}

// On the clock of the host, before it was stepped.
uint64_t StartOf(const RankComparison::Participant& p) {
  return p.start_ns - static_cast<uint64_t>(p.clock_shift_ns);  // wraps as it should
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

void RankComparison::Add(uint64_t hash, const Members& members, const std::vector<Participant>& participants,
                         const std::vector<uint32_t>& lost, size_t absent, Kind kind) {
  const bool pair = kind == Kind::kPair;
  const bool by_start = kind == Kind::kExchange && OnOneHost(members, participants);
  if (kind == Kind::kCollective && absent == 0 && whole_.size() < kMaxWhole) whole_[hash] = 1;
  if (kind != Kind::kCollective || !whole_.contains(hash)) absent = 0;
  const Participant* last = nullptr;
  for (const Participant& p : participants) {
    const uint64_t duration = p.end_ns - p.start_ns;
    const uint64_t shortest = last == nullptr ? UINT64_MAX : last->end_ns - last->start_ns;
    // Ties go to the lowest rank, so that the order in which ranks report makes no difference.
    if (duration < shortest || (duration == shortest && p.comm_rank < last->comm_rank)) last = &p;
    if (p.member >= blame_.size()) blame_.resize(p.member + 1);
    blame_[p.member].compared_ns = std::max(blame_[p.member].compared_ns, p.end_ns);
  }
  if (by_start) {
    for (const Participant& p : participants) {
      const bool as_late = StartOf(p) == StartOf(*last) && p.comm_rank < last->comm_rank;
      if (StartOf(p) > StartOf(*last) || as_late) last = &p;
    }
  }
  for (const uint32_t member : lost) {
    if (member >= blame_.size()) blame_.resize(member + 1);
  }
  const uint32_t transfers = TransfersOf(hash, *members[last->member].process, *last->series, pair);
  if (transfers != kNoTransfers) {
    const auto& ops = transfers_[transfers].bytes_of_op;
    if (pair || std::all_of(ops.begin(), ops.end(),
                            [](const auto& part) { return nccl::FactsOf(part.first).ends_together; }))
      AddClocks(members, participants, pair);
  }
  if (!pair && alignment_.Wants(hash)) {
    StepAlignment::Ends ends;
    for (const Participant& p : participants) ends.emplace_back(p.member, p.end_ns);
    alignment_.Note(std::move(ends));
    alignment_.Settle(members, false);
  }
  if ((lost.size() + absent) * kRanksForOneLost > participants.size()) {
    if (pair) return;
    if (transfers != kNoTransfers && Estimate(transfers_[transfers], participants, *last, lost, absent))
      return;
    return Skip(participants, lost);
  }
  if (transfers != kNoTransfers) {
    const uint64_t transfer_ns = last->end_ns - last->start_ns;
    // On the clock of the same process in every call, whichever rank comes last.
    const Participant& clock =
        *std::min_element(participants.begin(), participants.end(),
                          [](const Participant& a, const Participant& b) { return a.member < b.member; });
    transfers_[transfers].time_ns.Add(transfer_ns);
    transfers_[transfers].blocks.Add(members[clock.member].index, clock.end_ns, transfer_ns);
  }
  AddWaiting(members, participants, *last, kind, by_start);
  AccountSteps(members[last->member], last->member, false);
}

void RankComparison::Skip(const std::vector<Participant>& participants, const std::vector<uint32_t>& lost) {
  const auto skip = [this](uint32_t member) {
    if (member >= blame_.size()) blame_.resize(member + 1);
    ++blame_[member].skipped;
  };
  for (const Participant& p : participants) skip(p.member);
  for (const uint32_t member : lost) skip(member);
}

void RankComparison::AddWaiting(const Members& members, const std::vector<Participant>& participants,
                                const Participant& last, Kind kind, bool by_start) {
  const bool pair = kind == Kind::kPair;
  const uint64_t shortest = last.end_ns - last.start_ns;
  const auto waiting = [&](const Participant& p) {
    const uint64_t took = p.end_ns - p.start_ns;
    if (!by_start) return took - shortest;
    // In a ring, a rank that was over by then has not met the last one.
    const uint64_t behind = StartOf(last) - StartOf(p);
    return behind < took ? behind : 0;
  };
  uint64_t caused = 0;
  for (const Participant& p : participants) {
    const uint64_t waited = waiting(p);
    const uint64_t transfer = p.end_ns - p.start_ns - waited;
    caused += waited;
    ++p.series->compared_plans;
    p.series->wait_ns += waited;
    p.series->transfer_ns += transfer;
    p.series->transfer_bytes += p.bytes;
    p.series->first_compared.See(p.start_ns, transfer);
    p.series->steady.Add({.end_ns = p.end_ns, .transfer_ns = transfer, .waited_ns = waited},
                         members[p.member].steps().steady_runs());
    p.series->slices.Add(p.end_ns, transfer);
    blame_[p.member].waited_ns += waited;
    blame_[p.member].compared += pair ? 0 : 1;
  }
  Blame& blame = blame_[last.member];
  blame.caused_ns += caused;
  if (pair) {
    // Pipeline stages wait for each other by design, so this is counted separately.
    blame.pair_caused_ns += caused;
    for (const Participant& p : participants) {
      ++blame_[p.member].pairs;
      blame_[p.member].pair_waited_ns += waiting(p);
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
  // The shortest kernel of a call did not wait if it is within this factor of the usual one: transfers vary
  // by as much.
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
    blame_[p.member].waited_ns += WholeNumber(waited_ns);
    ++blame_[p.member].estimated;
    sum += waited_ns;
    squares += waited_ns * waited_ns;
  }
  for (const uint32_t member : lost) ++blame_[member].estimated;
  const double known = static_cast<double>(participants.size()) - (last_is_known ? 1 : 0);
  const double mean = known > 0 ? sum / known : 0;
  // Ranks with lost records are assumed to have waited like the others, as far as these agree.
  const double sampling =
      known > 1 ? std::max(squares / known - mean * mean, 0.0) / known * (1 - known / others) : 0;
  if (last_is_known) {
    ++blame_[last.member].last_arrivals;
    Cause(last.member, last.end_ns, mean, others, sampling);
    return true;
  }
  // Or a rank with a lost record came last: with the frequency at which each of them came last elsewhere
  // (Laplace's rule).
  double weights = 0;
  for (const uint32_t member : lost) weights += static_cast<double>(blame_[member].last_arrivals) + 1;
  for (const uint32_t member : lost) {
    const double share = (static_cast<double>(blame_[member].last_arrivals) + 1) / weights;
    Cause(member, last.end_ns, mean * share, others, sampling * share + mean * mean * share * (1 - share));
  }
  if (lost.size() == 1) ++blame_[lost.front()].last_arrivals;
  return true;
}

void RankComparison::Cause(uint32_t member, uint64_t end_ns, double mean_ns, double others, double variance) {
  Blame& blame = blame_[member];
  const uint64_t mean = WholeNumber(mean_ns);
  blame.caused_ns += WholeNumber(mean_ns * others);
  blame.caused_mean_ns += mean;
  blame.caused_squares += absl::uint128(mean) * mean;
  blame.estimated_variance += static_cast<absl::uint128>(std::max(variance, 0.0));
  blame.pending.push_back({.end_ns = end_ns, .mean_ns = mean});
}

void RankComparison::AddClocks(const Members& members, const std::vector<Participant>& participants,
                               bool pair) {
  const Participant& reference =
      *std::min_element(participants.begin(), participants.end(),
                        [](const Participant& a, const Participant& b) { return a.member < b.member; });
  const auto reference_ns =
      reference.end_ns - static_cast<uint64_t>(reference.clock_shift_ns);  // wraps as it should
  auto& links = pair ? pair_clocks_ : clocks_;
  for (const Participant& p : participants) {
    if (members[p.member].index == members[reference.member].index) continue;  // one clock
    const uint64_t own_ns = p.end_ns - static_cast<uint64_t>(p.clock_shift_ns);
    links[{members[reference.member].index, members[p.member].index}].Add(
        reference_ns, static_cast<int64_t>(own_ns - reference_ns));
  }
}

// What was compared step by step mixes the ranks, so all of it begins again.
void RankComparison::ForgetSteps(Blame& blame, uint64_t revisions) {
  blame.revisions = revisions;
  blame.step_ns = Distribution(Blame::kExactLimit);
  blame.pair_step_ns = Distribution(Blame::kExactLimit);
  blame.steps_blamed = blame.first_blamed = blame.last_blamed = 0;
  blame.caused_by_step = CausedSeries();
  blame.next_step = 0;
  blame.open_steps.clear();
  blame.open_pair_steps.clear();
  spread_ = StepSpread();
  late_steps_ = LateSteps();
  alignment_ = StepAlignment();
}

void RankComparison::AccountSteps(const Member& member, uint32_t number, bool all) {
  const std::deque<StepRecord>& steps = member.steps().steps();
  if (number >= blame_.size()) {
    // It met no other: its steps count among the long ones, as far as they are remembered.
    for (const StepRecord& step : steps) {
      if (all && !step.warmup && !step.incomplete) late_steps_.Add(step.index, number, step);
    }
    return;
  }
  Blame& blame = blame_[number];
  if (blame.revisions != member.steps().revisions()) ForgetSteps(blame, member.steps().revisions());
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
      if (const auto step = member.steps().StepAt(next.end_ns == 0 ? 0 : next.end_ns - 1); step.has_value())
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
        const int64_t of_job = static_cast<int64_t>(step.index) + alignment_.Behind(number, step.index);
        if (of_job >= 0) {
          spread_.Add(static_cast<uint64_t>(of_job), step.comm_ns, step.exposed_comm_ns);
          late_steps_.Add(static_cast<uint64_t>(of_job), number, step);
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
