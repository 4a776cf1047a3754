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

const CollectiveSeries& SeriesOf(const Members& members, const RankComparison::Participant& p) {
  return *members[p.member].process->collectives().series()[p.series];
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

ComparedSeries& RankComparison::ComparedOf(const Members& members, const Participant& participant) {
  const uint32_t process = members[participant.member].index;
  if (process >= compared_.size()) compared_.resize(process + 1);
  std::vector<ComparedSeries>& series = compared_[process];
  if (participant.series >= series.size()) series.resize(participant.series + 1);
  return series[participant.series];
}

const ComparedSeries& RankComparison::Compared(uint32_t process, uint32_t series) const {
  static const ComparedSeries kNone;
  return process < compared_.size() && series < compared_[process].size() ? compared_[process][series]
                                                                          : kNone;
}

const ComparedSeries& Member::Compared(const CollectiveSeries& series) const {
  static const RankComparison kNone;
  return (comparison == nullptr ? kNone : *comparison).Compared(index, series.place);
}

void RankComparison::FinishSeries(const Members& members) {
  for (const Member& member : members) {
    if (member.place != 0 || member.index >= compared_.size()) continue;
    const ProcessModel& process = *member.process;
    const auto& all = process.collectives().series();
    std::vector<ComparedSeries>& compared = compared_[member.index];
    for (size_t i = 0; i < compared.size() && i < all.size(); ++i) {
      const StepTracker& steps = process.device_steps().At(process.PlaceOf(all[i]->comm)).steps;
      compared[i].steady.Finish(steps.steady_runs());
    }
  }
}

uint32_t RankComparison::TransfersOf(uint64_t hash, const Members& members, const Participant& participant,
                                     bool pair) {
  ComparedSeries& compared = ComparedOf(members, participant);
  if (compared.transfers == 0) {
    const ProcessModel& process = *members[participant.member].process;
    compared.transfers = FindTransfers(hash, process, SeriesOf(members, participant), pair) + 1;
  }
  return compared.transfers - 1;
}

uint32_t RankComparison::FindTransfers(uint64_t hash, const ProcessModel& process,
                                       const CollectiveSeries& series, bool pair) {
  if (series.mixed_sizes) return kNoTransfers;
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
  return it->second;
}

void RankComparison::Add(uint64_t hash, const Members& members, std::vector<Participant> participants,
                         const std::vector<uint32_t>& lost, size_t absent, Kind kind) {
  const bool pair = kind == Kind::kPair;
  ComparedCall call;
  call.kind = kind;
  call.by_start = kind == Kind::kExchange && OnOneHost(members, participants);
  call.participants = std::move(participants);
  if (kind == Kind::kCollective && absent == 0 && whole_.size() < kMaxWhole) whole_[hash] = 1;
  if (kind != Kind::kCollective || !whole_.contains(hash)) absent = 0;
  uint32_t most = FindLast(call);
  for (const uint32_t member : lost) most = std::max(most, member);
  if (most >= blame_.size()) blame_.resize(most + 1);
  const uint32_t transfers = TransfersOf(hash, members, call.last, pair);
  if (transfers != kNoTransfers) {
    const auto& ops = transfers_[transfers].bytes_of_op;
    call.has_clocks = pair || std::all_of(ops.begin(), ops.end(), [](const auto& part) {
                        return nccl::FactsOf(part.first).ends_together;
                      });
  }
  if (!pair && alignment_.Wants(hash, call.participants.size())) {
    StepAlignment::Ends ends;
    ends.reserve(call.participants.size());
    for (const Participant& p : call.participants) ends.emplace_back(p.member, p.end_ns);
    alignment_.Note(std::move(ends));
    alignment_.Settle(members, false);
  }
  if ((lost.size() + absent) * kRanksForOneLost > call.participants.size()) {
    CountWaiting(members);
    for (const Participant& p : call.participants) Count(members, call, p);
    if (pair) return;
    if (transfers != kNoTransfers &&
        Estimate(members, transfers_[transfers], call.participants, call.last, lost, absent))
      return;
    return Skip(call.participants, lost);
  }
  if (transfers != kNoTransfers) {
    const uint64_t transfer_ns = call.last.end_ns - call.last.start_ns;
    transfers_[transfers].time_ns.Add(transfer_ns);
    transfers_[transfers].blocks.Add(members[call.reference.member].index, call.reference.end_ns,
                                     transfer_ns);
  }
  call.has_waiting = true;
  for (const Participant& p : call.participants) call.caused_ns += WaitedIn(call, p);
  const bool alone = waiting_.empty() && call.participants.size() < kManyRanks;
  waiting_.push_back(std::move(call));
  if (alone || waiting_.size() >= kMostWaiting) CountWaiting(members);
}

uint32_t RankComparison::FindLast(ComparedCall& call) {
  const Participant* last = nullptr;
  const Participant* reference = nullptr;
  uint32_t most = 0;
  for (const Participant& p : call.participants) {
    const uint64_t duration = p.end_ns - p.start_ns;
    const uint64_t shortest = last == nullptr ? UINT64_MAX : last->end_ns - last->start_ns;
    // Ties go to the lowest rank, so that the order in which ranks report makes no difference.
    if (duration < shortest || (duration == shortest && p.comm_rank < last->comm_rank)) last = &p;
    // The same process in every call, whichever rank comes last.
    if (reference == nullptr || p.member < reference->member) reference = &p;
    most = std::max(most, p.member);
  }
  for (const Participant& p : call.participants) {
    if (!call.by_start) break;
    const bool as_late = StartOf(p) == StartOf(*last) && p.comm_rank < last->comm_rank;
    if (StartOf(p) > StartOf(*last) || as_late) last = &p;
  }
  call.last = *last;
  call.reference = *reference;
  return most;
}

// What is known of a rank is spread over more memory than a processor has close by, so of several calls it is
// visited at once. In each call, the ranks come in nearly the same order.
void RankComparison::CountWaiting(const Members& members) {
  constexpr size_t kTogether = 64;
  size_t most = 0;
  for (const ComparedCall& call : waiting_) most = std::max(most, call.participants.size());
  for (size_t from = 0; from < most; from += kTogether) {
    for (const ComparedCall& call : waiting_) {
      const size_t to = std::min(from + kTogether, call.participants.size());
      for (size_t i = from; i < to; ++i) Count(members, call, call.participants[i]);
    }
  }
  for (const ComparedCall& call : waiting_) AccountSteps(members[call.last.member], call.last.member, false);
  waiting_.clear();
}

void RankComparison::Count(const Members& members, const ComparedCall& call, const Participant& p) {
  NoteStart(members, p);
  Blame& blame = blame_[p.member];
  blame.compared_ns = std::max(blame.compared_ns, p.end_ns);
  if (call.has_clocks) AddClock(members, call, p);
  if (!call.has_waiting) return;
  AddWaiting(members, call, p);
  if (p.member == call.last.member) AddCaused(call);
}

void RankComparison::NoteStart(const Members& members, const Participant& participant) {
  Blame& blame = blame_[participant.member];
  if (blame.start_is_over) return;
  const std::deque<StepRecord>& steps = members[participant.member].steps().steps();
  if (steps.empty() || (steps.front().index == 0 && participant.end_ns <= steps.front().end_ns)) return;
  blame.start_is_over = true;
  // Logs that are read one after another: its first call may be compared when its first steps are forgotten.
  blame.start_compared_ns = blame.compared_ns == 0 ? participant.start_ns : blame.compared_ns;
  blame.start_caused_mean_ns = blame.caused_mean_ns;
  blame.start_waited_ns = blame.waited_ns;
}

void RankComparison::Skip(const std::vector<Participant>& participants, const std::vector<uint32_t>& lost) {
  const auto skip = [this](uint32_t member) {
    if (member >= blame_.size()) blame_.resize(member + 1);
    ++blame_[member].skipped;
  };
  for (const Participant& p : participants) skip(p.member);
  for (const uint32_t member : lost) skip(member);
}

uint64_t RankComparison::WaitedIn(const ComparedCall& call, const Participant& p) {
  const uint64_t took = p.end_ns - p.start_ns;
  if (!call.by_start) return took - (call.last.end_ns - call.last.start_ns);
  // In a ring, a rank that was over by then has not met the last one.
  const uint64_t behind = StartOf(call.last) - StartOf(p);
  return behind < took ? behind : 0;
}

void RankComparison::AddWaiting(const Members& members, const ComparedCall& call, const Participant& p) {
  const bool pair = call.kind == Kind::kPair;
  const uint64_t waited = WaitedIn(call, p);
  const uint64_t transfer = p.end_ns - p.start_ns - waited;
  ComparedSeries& series = ComparedOf(members, p);
  ++series.plans;
  series.wait_ns += waited;
  series.transfer_ns += transfer;
  series.transfer_bytes += p.bytes;
  series.first.See(p.start_ns, transfer);
  series.steady.Add({.end_ns = p.end_ns, .transfer_ns = transfer, .waited_ns = waited},
                    members[p.member].steps().steady_runs());
  series.slices.Add(p.end_ns, transfer);
  Blame& blame = blame_[p.member];
  blame.waited_ns += waited;
  if (pair) {
    ++blame.pairs;
    blame.pair_waited_ns += waited;
  } else {
    ++blame.compared;
  }
}

void RankComparison::AddCaused(const ComparedCall& call) {
  Blame& blame = blame_[call.last.member];
  blame.caused_ns += call.caused_ns;
  if (call.kind == Kind::kPair) {
    // Pipeline stages wait for each other by design, so this is counted separately.
    blame.pair_caused_ns += call.caused_ns;
    blame.pending.push_back({.end_ns = call.last.end_ns, .mean_ns = call.caused_ns, .pair = true});
    return;
  }
  ++blame.last_arrivals;
  const uint64_t mean = call.caused_ns / (call.participants.size() - 1);
  blame.caused_mean_ns += mean;
  blame.caused_squares += absl::uint128(mean) * mean;
  blame.pending.push_back({.end_ns = call.last.end_ns, .mean_ns = mean});
}

bool RankComparison::Estimate(const Members& members, Transfers& transfers,
                              const std::vector<Participant>& participants, const Participant& last,
                              const std::vector<uint32_t>& lost, size_t absent) {
  // The usual transfer is the median of the calls of which everything was seen; while they are too few, the
  // shortest kernel that any of these ranks ever had in such a call: it came last in some.
  constexpr uint64_t kLeastWhole = 8;
  constexpr uint64_t kLeastCalls = 8;
  // The shortest kernel of a call did not wait if it is within this factor of the usual one: transfers vary
  // by as much.
  constexpr double kSame = 1.08;
  constexpr double kSameAsShortest = 1.15;
  const uint64_t whole = transfers.time_ns.count();
  const uint64_t seen = SeriesOf(members, last).time_ns.count();
  if (seen < kLeastCalls) return false;
  if (seen >= transfers.usual_of * 2) {
    transfers.usual_of = seen;
    if (whole >= kLeastWhole) {
      transfers.usual_ns = WholeNumber(transfers.time_ns.Summarize().p50);
    } else {
      transfers.usual_ns = UINT64_MAX;
      for (const Participant& p : participants)
        transfers.usual_ns = std::min(transfers.usual_ns, SeriesOf(members, p).time_ns.Summarize().min);
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

void RankComparison::AddClock(const Members& members, const ComparedCall& call, const Participant& p) {
  const Participant& reference = call.reference;
  if (members[p.member].index == members[reference.member].index) return;  // one clock
  // Both wrap as they should.
  const auto reference_ns = reference.end_ns - static_cast<uint64_t>(reference.clock_shift_ns);
  const uint64_t own_ns = p.end_ns - static_cast<uint64_t>(p.clock_shift_ns);
  const auto ahead_ns = static_cast<int64_t>(own_ns - reference_ns);
  const std::pair key{members[reference.member].index, members[p.member].index};
  if (call.kind == Kind::kPair) return pair_clocks_[key].Add(reference_ns, ahead_ns);
  if (p.member >= links_.size()) links_.resize(p.member + 1);
  auto& [known, link] = links_[p.member];
  if (link == nullptr || known != key) {
    known = key;
    link = &clocks_[key];
  }
  link->Add(reference_ns, ahead_ns);
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
