#include "collector/model/collective_tracker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gpuprobe::model {

CollectiveTracker::Plan& CollectiveTracker::Get(uint64_t plan) {
  const auto [it, added] = waiting_.try_emplace(plan);
  if (!added) return it->second;
  order_.push_back(plan);
  if (order_.size() > kMaxWaiting) {
    const uint64_t oldest = order_.front();
    order_.pop_front();
    Settle(oldest);
  }
  return waiting_[plan];
}

void CollectiveTracker::AddCall(const CollectiveRecord& record, bool point_to_point) {
  ++calls_;
  const Call call{.op = record.op,
                  .seq = record.seq,
                  .bytes = record.count * record.element_bytes,
                  .failed = record.result != 0,
                  .point_to_point = point_to_point};
  if (record.plan == 0) {
    Plan alone;
    alone.comm = record.comm;
    alone.calls.push_back(call);
    SettlePlan(alone);
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

void CollectiveTracker::Settle(uint64_t id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return;
  Plan plan = std::move(found->second);
  waiting_.erase(found);
  if (!plan.calls.empty()) SettlePlan(plan);
}

void CollectiveTracker::SettlePlan(Plan& plan) {
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
                 .duration_ns = plan.end_ns - plan.start_ns,
                 .bytes = bytes});
  }
}

void CollectiveTracker::Finish() {
  while (!order_.empty()) {
    const uint64_t oldest = order_.front();
    order_.pop_front();
    Settle(oldest);
  }
}

}  // namespace gpuprobe::model
