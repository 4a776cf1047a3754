#include "collector/model/calls/collective_tracker.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace gpuprobe::model {

CollectiveTracker::CollectiveTracker(CollectiveEvents events) : events_(std::move(events)) {}

bool CollectiveTracker::IsCaptured(uint64_t plan) const { return captured_.contains(plan); }

CollectiveTracker::Plan& CollectiveTracker::Get(uint64_t plan) {
  const auto [it, added] = waiting_.try_emplace(plan);
  if (!added) return it->second;
  while (!order_.empty() && !waiting_.contains(order_.front())) order_.pop_front();
  order_.push_back(plan);
  if (order_.size() <= kMaxWaiting) return it->second;
  SettleWaiting(order_.front());
  order_.pop_front();
  return waiting_[plan];
}

std::vector<CollectiveTracker::CapturedTransfer> CollectiveTracker::TransfersOf(uint64_t plan) const {
  std::vector<CapturedTransfer> transfers;
  const auto captured = captured_.find(plan);
  if (captured == captured_.end()) return transfers;
  for (const Call& call : captured->second.pattern.calls) {
    if (call.point_to_point && !call.failed)
      transfers.push_back(
          {.op = call.op, .peer = call.peer, .pair = call.pair, .seq = call.seq, .bytes = call.bytes});
  }
  return transfers;
}

CollectiveTracker::Calls CollectiveTracker::CallsOf(uint64_t plan) const {
  const Plan* known = nullptr;
  if (const auto captured = captured_.find(plan); captured != captured_.end())
    known = &captured->second.pattern;
  if (const auto waiting = waiting_.find(plan); waiting != waiting_.end()) known = &waiting->second;
  Calls calls;
  if (known == nullptr || known->calls.empty()) return calls;
  calls = {.op = known->calls.front().op,
           .comm = known->comm,
           .seq = known->calls.front().seq,
           .count = static_cast<uint32_t>(known->calls.size())};
  for (const Call& call : known->calls) calls.bytes += call.bytes;
  return calls;
}

bool CollectiveTracker::LaunchedNothing(uint64_t plan) const {
  const auto waiting = waiting_.find(plan);
  if (waiting != waiting_.end()) return waiting->second.launches == 0 && waiting->second.end_ns == 0;
  return std::find(unlaunched_.begin(), unlaunched_.end(), plan) != unlaunched_.end();
}

// ncclInProgress: the success result of a non-blocking communicator.
constexpr int32_t kNcclInProgress = 7;

void CollectiveTracker::AddCall(const CollectiveRecord& record, bool point_to_point) {
  Call call{.op = record.op,
            .seq = record.seq,
            .bytes = record.count * record.element_bytes,
            .element_bytes = record.element_bytes,
            .failed = record.result != 0 && record.result != kNcclInProgress,
            .point_to_point = point_to_point,
            .peer = record.peer,
            .algorithm = record.algorithm,
            .protocol = record.protocol,
            .channels = record.channels};
  if (point_to_point && record.peer >= 0) {
    const std::tuple between{record.comm, record.op, record.peer};
    if (pairs_.size() < kMaxPeers || pairs_.contains(between)) {
      call.pair = ++pairs_[between];
    }
  }
  if (const auto captured = captured_.find(record.plan); captured != captured_.end()) {
    captured->second.pattern.comm = record.comm;
    captured->second.pattern.calls.push_back(call);
    if (point_to_point && !call.failed && record.peer >= 0) transfers_.Issued(record);
    TellCaptured(record.comm, call);
    return;
  }
  ++calls_;
  if (!point_to_point && !call.failed) events_.issued(record);
  if (point_to_point && !call.failed && record.peer >= 0 && record.plan != 0) transfers_.Issued(record);
  if (record.plan == 0) {
    Plan alone;
    alone.comm = record.comm;
    alone.calls.push_back(call);
    SettlePlan(alone, 0);
    ++SeriesFor(alone).unlaunched_calls;
    return;
  }
  Plan& plan = Get(record.plan);
  if (plan.calls.empty()) {
    plan.comm = record.comm;
    plan.issue_ns = record.issue_ns;
  }
  plan.calls.push_back(call);
  if (plan.end_ns != 0) TellFinished(record.comm, call, plan.end_ns);
  Advance(record.plan, plan);
}

void CollectiveTracker::AddLaunch(uint64_t plan, uint64_t correlation) {
  Plan& found = Get(plan);
  if (found.launches++ == 0) found.correlation = correlation;
}

void CollectiveTracker::AddKernel(uint64_t plan, uint64_t start_ns, uint64_t end_ns, bool last_word) {
  Plan& found = Get(plan);
  const bool first = found.end_ns == 0;
  found.start_ns = std::min(found.start_ns, start_ns);
  found.end_ns = std::max(found.end_ns, end_ns);
  if (first) TellFinished(found);
  found.batch = batch_;
  if (last_word) ++found.kernels;
  Advance(plan, found);
}

void CollectiveTracker::AddLostKernel(uint64_t plan) {
  const auto found = waiting_.find(plan);
  if (found == waiting_.end()) return;
  found->second.lost = true;
  ++found->second.kernels;
  Advance(plan, found->second);
}

void CollectiveTracker::TellFinished(const Plan& plan) {
  for (const Call& call : plan.calls) TellFinished(plan.comm, call, plan.end_ns);
}

void CollectiveTracker::TellFinished(uint32_t comm, const Call& call, uint64_t end_ns) {
  if (call.point_to_point) {
    transfers_.Finished({comm, call.peer, call.op}, call.seq);
  } else {
    events_.finished(comm, call.seq, end_ns);
  }
}

void CollectiveTracker::TellCaptured(uint32_t comm, const Call& call) {
  if (call.point_to_point) {
    transfers_.Captured({comm, call.peer, call.op}, call.seq);
  } else {
    events_.finished(comm, call.seq, 0);
  }
}

void CollectiveTracker::Advance(uint64_t number, Plan& plan) {
  if (plan.complete || plan.calls.empty() || plan.launches == 0 || plan.kernels < plan.launches) return;
  plan.complete = true;
  complete_.push_back({.plan = number, .replayed = false, .batch = batch_});
}

void CollectiveTracker::MarkCaptured(uint64_t plan) {
  if (plan == 0 || captured_.size() >= kMaxCaptured) return;
  const auto [it, added] = captured_.try_emplace(plan);
  const auto waiting = waiting_.find(plan);
  if (!added || waiting == waiting_.end()) return;
  it->second.pattern = std::move(waiting->second);
  waiting_.erase(waiting);
  for (const Call& call : it->second.pattern.calls) TellCaptured(it->second.pattern.comm, call);
  calls_ -= it->second.pattern.calls.size();
}

void CollectiveTracker::AddReplayedKernel(CarriedPlan carried, uint64_t node, uint64_t correlation,
                                          uint64_t start_ns, uint64_t end_ns) {
  const auto captured = captured_.find(carried.plan);
  if (captured == captured_.end()) return;
  replays_.Ended(correlation, node, carried);
  captured->second.batch = batch_;
  const auto [open, added] = captured->second.open.try_emplace({correlation, carried.copy}, start_ns, end_ns);
  if (added) {
    complete_.push_back({.plan = carried.plan, .replayed = true, .batch = batch_});
    if (captured->second.open.size() > kMaxWaiting) SettleReplay(carried.plan);
    return;
  }
  auto& [start, end] = open->second;
  start = std::min(start, start_ns);
  end = std::max(end, end_ns);
}

void CollectiveTracker::AddUnexplained(uint32_t op, uint64_t start_ns, uint64_t end_ns) {
  ++calls_;
  Plan alone{.comm = 0, .start_ns = start_ns, .end_ns = end_ns, .calls = {}};
  // As with a send, nothing identifies the other ranks' call.
  alone.calls.push_back({.op = op, .seq = 0, .bytes = 0, .failed = false, .point_to_point = true});
  SettlePlan(alone, 0);
}

CollectiveSeries& CollectiveTracker::SeriesFor(const Plan& plan) {
  // Calls of a plan may have been reordered: the key does not depend on their order.
  std::vector<std::pair<uint32_t, uint64_t>> calls;
  uint64_t total = 0;
  for (const Call& call : plan.calls) {
    calls.emplace_back(call.op, call.bytes);
    total += call.bytes;
  }
  std::sort(calls.begin(), calls.end());
  std::string key = absl::StrCat(plan.comm);
  for (const auto& [op, bytes] : calls) absl::StrAppend(&key, ";", op, ":", bytes);
  bool mixed = false;
  if (series_.size() >= kMaxSeries && !by_key_.contains(key)) {
    mixed = true;
    key = absl::StrCat(plan.comm, ";mixed");
    for (const auto& [op, bytes] : calls) absl::StrAppend(&key, ";", op);
  }
  CollectiveSeries*& series = by_key_[key];
  if (series == nullptr)
    series = &AddSeries(plan.comm, mixed ? 0 : total, static_cast<uint32_t>(plan.calls.size()), mixed);
  return *series;
}

CollectiveSeries& CollectiveTracker::AddSeries(uint32_t comm, uint64_t size_bytes, uint32_t calls_per_plan,
                                               bool mixed) {
  CollectiveSeries& series = *series_.emplace_back(std::make_unique<CollectiveSeries>());
  series.place = static_cast<uint32_t>(series_.size() - 1);
  series.comm = comm;
  series.size_bytes = size_bytes;
  series.mixed_sizes = mixed;
  series.calls_per_plan = calls_per_plan;
  return series;
}

void CollectiveTracker::Define(const v1::PlanSeries& series) {
  constexpr size_t kMost =
      2 * kMaxSeries;  // those of mixed sizes are one for each communicator and operations
  if (series.id() > series_.size() || series.id() >= kMost) return;
  if (series.id() == series_.size())
    AddSeries(series.comm(), series.size_bytes(), series.calls_per_plan(), series.mixed_sizes());
  parts_.resize(series_.size());
  std::vector<CollectivePart>& parts = parts_[series.id()];
  parts.clear();
  for (const v1::PlanSeries::Part& part : series.parts())
    parts.push_back({.op = part.op(), .calls = part.calls(), .bytes = part.bytes()});
}

absl::Status CollectiveTracker::AddSettled(const ArrivalRecord& r, std::span<const TransferEnd> transfers) {
  if (r.series >= parts_.size() || r.series >= series_.size() || r.end_ns < r.start_ns)
    return absl::InvalidArgumentError(absl::StrCat("a plan of series ", r.series, " that was not defined"));
  CollectiveSeries& series = *series_[r.series];
  for (const CollectivePart& of_plan : parts_[r.series]) {
    auto part = std::find_if(series.parts.begin(), series.parts.end(),
                             [&](const CollectivePart& p) { return p.op == of_plan.op; });
    if (part == series.parts.end()) part = series.parts.insert(part, CollectivePart{.op = of_plan.op});
    const uint64_t bytes = series.mixed_sizes ? r.bytes / parts_[r.series].size() : of_plan.bytes;
    part->calls += of_plan.calls;
    part->bytes += bytes;
    if (!r.lost) part->timed_bytes += bytes;
  }
  series.calls += series.calls_per_plan;
  calls_ += series.calls_per_plan;
  series.bytes += r.bytes;
  if (r.lost) {
    series.untimed_calls += series.calls_per_plan;
  } else {
    series.time_ns.Add(r.end_ns - r.start_ns);
    series.first.See(r.start_ns, r.end_ns - r.start_ns);
  }
  events_.settled({.series = &series,
                   .comm = series.comm,
                   .seq = r.seq,
                   .replay = r.replay,
                   .start_ns = r.lost ? 0 : r.start_ns,
                   .end_ns = r.lost ? 0 : r.end_ns,
                   .issue_ns = 0,
                   .correlation = 0,
                   .batch = 0,
                   .bytes = r.bytes,
                   .lost = r.lost,
                   .transfers = transfers,
                   .device = r.place,
                   .clock_shift_ns = r.clock_shift_ns});
  return absl::OkStatus();
}

void CollectiveTracker::SettleReplay(uint64_t number) {
  const auto found = captured_.find(number);
  if (found == captured_.end() || found->second.open.empty()) return;
  Captured& captured = found->second;
  // The copy that ran first in the first launch.
  auto first = captured.open.begin();
  for (auto copy = first; copy != captured.open.end() && copy->first.first == first->first.first; ++copy) {
    if (copy->second.first < first->second.first) first = copy;
  }
  Plan replay = captured.pattern;
  std::tie(replay.start_ns, replay.end_ns) = first->second;
  replay.correlation = first->first.first;
  replay.issue_ns = 0;
  replay.batch = captured.batch;
  captured.open.erase(first);
  ++captured.settled;
  calls_ += replay.calls.size();
  if (!replay.calls.empty()) SettlePlan(replay, captured.settled);
}

void CollectiveTracker::SettleWaiting(uint64_t number) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  const Plan plan = std::move(found->second);
  waiting_.erase(found);
  if (plan.calls.empty()) return;
  if (plan.launches == 0 && plan.end_ns == 0) {
    unlaunched_.push_back(number);
    if (unlaunched_.size() > kMaxUnlaunched) unlaunched_.pop_front();
  }
  SettlePlan(plan, 0);
}

void CollectiveTracker::EndBatch() {
  ++batch_;
  while (!complete_.empty() && complete_.front().batch + kSettleBatches < batch_) {
    const Complete next = complete_.front();
    complete_.pop_front();
    next.replayed ? SettleReplay(next.plan) : SettleWaiting(next.plan);
  }
}

void CollectiveTracker::CountHow(const Call& call, CollectiveSeries& series) {
  if (call.algorithm == 0 && call.protocol == 0) return;
  auto how = std::find_if(series.ran_as.begin(), series.ran_as.end(), [&](const RanAs& r) {
    return r.algorithm == call.algorithm && r.protocol == call.protocol && r.channels == call.channels;
  });
  if (how == series.ran_as.end()) {
    if (series.ran_as.size() == CollectiveSeries::kMaxRanAs) return;
    how = series.ran_as.insert(how, {call.algorithm, call.protocol, call.channels, 0});
  }
  ++how->calls;
}

void CollectiveTracker::SettlePlan(const Plan& plan, uint64_t replay) {
  CollectiveSeries& series = SeriesFor(plan);
  // If there are several kernels, all must have been seen.
  const bool timed = plan.end_ns > plan.start_ns && !plan.lost;
  std::vector<TransferEnd> transfers;
  bool comparable = timed || plan.lost;
  uint64_t first_seq = UINT64_MAX;
  uint64_t bytes = 0;
  for (const Call& call : plan.calls) {
    auto part = std::find_if(series.parts.begin(), series.parts.end(),
                             [&](const CollectivePart& p) { return p.op == call.op; });
    if (part == series.parts.end()) part = series.parts.insert(part, CollectivePart{.op = call.op});
    ++part->calls;
    part->bytes += call.bytes;
    if (timed) part->timed_bytes += call.bytes;
    ++series.calls;
    series.bytes += call.bytes;
    series.mixed_elements |= series.calls > 1 && call.element_bytes != series.element_bytes;
    series.element_bytes = call.element_bytes;
    series.failed_calls += call.failed ? 1 : 0;
    series.untimed_calls += timed ? 0 : 1;
    CountHow(call, series);
    if (call.point_to_point) transfers.push_back({.op = call.op, .peer = call.peer, .ordinal = call.pair});
    comparable = comparable && (!call.point_to_point || call.pair != 0);
    first_seq = std::min(first_seq, call.seq);
    bytes += call.bytes;
  }
  if (timed) {
    series.time_ns.Add(plan.end_ns - plan.start_ns);
    series.first.See(plan.start_ns, plan.end_ns - plan.start_ns);
  }
  // Collectives in a group with sends and receives are matched with nothing.
  if (comparable && (transfers.empty() || transfers.size() == plan.calls.size())) {
    events_.settled({.series = &series,
                     .comm = plan.comm,
                     .seq = first_seq,
                     .replay = replay,
                     .start_ns = timed ? plan.start_ns : 0,
                     .end_ns = timed ? plan.end_ns : 0,
                     .issue_ns = plan.issue_ns,
                     .correlation = plan.correlation,
                     .batch = plan.batch,
                     .bytes = bytes,
                     .lost = !timed,
                     .transfers = transfers});
  }
}

void CollectiveTracker::Finish(bool goes_on) {
  for (; !complete_.empty(); complete_.pop_front()) {
    if (complete_.front().replayed) SettleReplay(complete_.front().plan);
  }
  if (goes_on) absl::erase_if(waiting_, [](const auto& plan) { return !plan.second.complete; });
  for (; !order_.empty(); order_.pop_front()) SettleWaiting(order_.front());
}

}  // namespace gpuprobe::model
