#include "collector/model/collective_tracker.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace gpuprobe::model {

CollectiveTracker::Plan& CollectiveTracker::Get(uint64_t plan) {
  const auto [it, added] = waiting_.try_emplace(plan);
  if (!added) return it->second;
  Append({.plan = plan, .replayed = false});
  return waiting_[plan];
}

void CollectiveTracker::Append(Waiting waiting) {
  order_.push_back(waiting);
  if (order_.size() <= kMaxWaiting) return;
  const Waiting oldest = order_.front();
  order_.pop_front();
  Settle(oldest);
}

void CollectiveTracker::AddCall(const CollectiveRecord& record, bool point_to_point) {
  const Call call{.op = record.op,
                  .seq = record.seq,
                  .bytes = record.count * record.element_bytes,
                  .failed = record.result != 0,
                  .point_to_point = point_to_point};
  if (const auto captured = captured_.find(record.plan); captured != captured_.end()) {
    captured->second.pattern.comm = record.comm;
    captured->second.pattern.calls.push_back(call);
    return;
  }
  ++calls_;
  if (record.plan == 0) {
    Plan alone;
    alone.comm = record.comm;
    alone.calls.push_back(call);
    SettlePlan(alone, 0);
    return;
  }
  Plan& plan = Get(record.plan);
  if (plan.calls.empty()) plan.comm = record.comm;
  plan.calls.push_back(call);
}

void CollectiveTracker::AddKernel(uint64_t plan, uint64_t start_ns, uint64_t end_ns) {
  Plan& found = Get(plan);
  found.start_ns = std::min(found.start_ns, start_ns);
  found.end_ns = std::max(found.end_ns, end_ns);
}

void CollectiveTracker::MarkCaptured(uint64_t plan) {
  if (plan == 0 || captured_.size() >= kMaxCaptured) return;
  const auto [it, added] = captured_.try_emplace(plan);
  const auto waiting = waiting_.find(plan);
  if (!added || waiting == waiting_.end()) return;
  it->second.pattern = std::move(waiting->second);
  waiting_.erase(waiting);
  calls_ -= it->second.pattern.calls.size();
}

void CollectiveTracker::AddReplayedKernel(uint64_t plan, uint64_t correlation, uint64_t start_ns,
                                          uint64_t end_ns) {
  const auto captured = captured_.find(plan);
  if (captured == captured_.end()) return;
  const auto [open, added] = captured->second.open.try_emplace(correlation, start_ns, end_ns);
  if (added) {
    Append({.plan = plan, .replayed = true});
    return;
  }
  auto& [start, end] = open->second;
  start = std::min(start, start_ns);
  end = std::max(end, end_ns);
}

void CollectiveTracker::AddUnexplained(uint32_t op, uint64_t start_ns, uint64_t end_ns) {
  ++calls_;
  Plan alone{.comm = 0, .start_ns = start_ns, .end_ns = end_ns, .calls = {}};
  // Nothing says which call of the other ranks' it is, as with a send.
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
  if (series == nullptr) {
    series_.push_back(std::make_unique<CollectiveSeries>());
    series = series_.back().get();
    series->comm = plan.comm;
    series->size_bytes = mixed ? 0 : total;
    series->mixed_sizes = mixed;
    series->calls_per_plan = static_cast<uint32_t>(plan.calls.size());
  }
  return *series;
}

void CollectiveTracker::Settle(Waiting waiting) {
  if (waiting.replayed) {
    const auto found = captured_.find(waiting.plan);
    if (found == captured_.end() || found->second.open.empty()) return;
    Captured& captured = found->second;
    const auto first = captured.open.begin();
    Plan replay = captured.pattern;
    std::tie(replay.start_ns, replay.end_ns) = first->second;
    captured.open.erase(first);
    ++captured.settled;
    calls_ += replay.calls.size();
    if (!replay.calls.empty()) SettlePlan(replay, captured.settled);
    return;
  }
  const auto found = waiting_.find(waiting.plan);
  if (found == waiting_.end()) return;
  const Plan plan = std::move(found->second);
  waiting_.erase(found);
  if (!plan.calls.empty()) SettlePlan(plan, 0);
}

void CollectiveTracker::SettlePlan(const Plan& plan, uint64_t replay) {
  CollectiveSeries& series = SeriesFor(plan);
  const bool timed = plan.end_ns > plan.start_ns;
  bool comparable = timed;
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
    series.failed_calls += call.failed ? 1 : 0;
    series.untimed_calls += timed ? 0 : 1;
    comparable = comparable && !call.point_to_point;
    first_seq = std::min(first_seq, call.seq);
    bytes += call.bytes;
  }
  if (timed) series.time_ns.Add(plan.end_ns - plan.start_ns);
  if (comparable) {
    on_settled_({.series = &series,
                 .comm = plan.comm,
                 .seq = first_seq,
                 .replay = replay,
                 .duration_ns = plan.end_ns - plan.start_ns,
                 .bytes = bytes});
  }
}

void CollectiveTracker::Finish() {
  while (!order_.empty()) {
    const Waiting oldest = order_.front();
    order_.pop_front();
    Settle(oldest);
  }
}

}  // namespace gpuprobe::model
