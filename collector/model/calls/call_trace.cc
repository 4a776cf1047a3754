#include "collector/model/calls/call_trace.h"

#include <algorithm>
#include <tuple>

namespace gpuprobe::model {
namespace {

constexpr uint64_t kLongestPauseUs = 1'000'000'000;  // 17 minutes: of its square, 18 fit into the sum

}  // namespace

CallTrace::Process& CallTrace::Of(uint32_t process) {
  if (process >= processes_.size()) processes_.resize(size_t{process} + 1);
  return processes_[process];
}

bool CallTrace::IsOf(size_t processes) const {
  return processes_.size() <= processes && std::all_of(timed_.begin(), timed_.end(), [&](const auto& call) {
           return std::all_of(call.second.begin(), call.second.end(),
                              [&](const Arrival& arrival) { return arrival.process < processes; });
         });
}

void CallTrace::On(uint32_t process, const TracedStepRecord& step) {
  Process& its = Of(process);
  const bool follows = its.step_begin_ns != 0 && step.index == its.step + 1;
  if (follows && step.begin_ns > its.step_begin_ns) {
    const uint64_t took_ns = step.begin_ns - its.step_begin_ns;
    ++its.steps;
    its.steps_ns += took_ns;
    its.longest_step_ns = std::max(its.longest_step_ns, took_ns);
  }
  its.step = step.index;
  its.step_begin_ns = step.begin_ns;
}

std::vector<CallTrace::Arrival> CallTrace::Timed(const Place& place, uint64_t number, uint64_t ns) {
  if (place.ranks < 2 || place.hash == 0 || number < kFirstCalls) return {};
  const auto call = timed_.try_emplace({place.hash, number}).first;
  std::vector<Arrival>& arrivals = call->second;
  const bool again = std::any_of(arrivals.begin(), arrivals.end(),
                                 [&](const Arrival& a) { return a.process == place.process; });
  if (!again) arrivals.push_back({.process = place.process, .host = place.host, .ns = ns});
  if (arrivals.size() == static_cast<size_t>(place.ranks)) {
    std::vector<Arrival> all = std::move(arrivals);
    timed_.erase(call);
    return all;
  }
  // A rank that reports nothing must not keep all calls of the others.
  if (number >= kMostOpen) {
    const auto begin = timed_.lower_bound({place.hash, 0});
    timed_.erase(begin, timed_.lower_bound({place.hash, number - kMostOpen}));
  }
  return {};
}

void CallTrace::Join(const Place& place) { calls_.Join(place.hash, place.ranks, place.rank, place.process); }

std::vector<CallTrace::Arrival> CallTrace::Issued(const Place& place, const TracedCallRecord& call,
                                                  uint32_t op) {
  // A rank that reports nothing must not keep all calls of the others.
  if (call.seq >= kMostOpen) calls_.Finished(place.hash, call.seq - kMostOpen);
  const IssuedCalls::Call* by_all =
      calls_.Issued(place.hash, place.rank, call.seq, {.op = op, .count = call.bytes},
                    {.comm_rank = place.rank,
                     .signature = 0,
                     .issue_ns = call.issue_ns,
                     .element_bytes = call.bytes,
                     .plan = IssuedCalls::kPlanNotKnown});
  if (by_all == nullptr) return {};
  const std::vector<IssuedCalls::RankState>& ranks = calls_.communicators().at(place.hash).ranks;
  std::vector<Arrival> all;
  all.reserve(by_all->issues.size());
  for (const IssuedCalls::Issue& issue : by_all->issues) {
    const uint32_t process = ranks[static_cast<size_t>(issue.comm_rank)].process;
    all.push_back({.process = process, .host = Of(process).host, .ns = issue.issue_ns});
  }
  if (call.seq > 0) calls_.Finished(place.hash, call.seq - 1);
  return all.size() < 2 || call.seq < kFirstCalls ? std::vector<Arrival>() : all;
}

void CallTrace::On(const Place& place, const TracedCallRecord& call, uint32_t op) {
  Process& its = Of(place.process);
  its.host = place.host;
  ++its.calls;
  if (its.first_ns == 0) its.first_ns = call.issue_ns;
  if (call.issue_ns > its.last_ns) {
    const uint64_t pause_us =
        its.last_ns == 0 ? 0 : std::min((call.issue_ns - its.last_ns) / 1000, kLongestPauseUs);
    its.pauses_us2 += pause_us * pause_us;
    its.last_ns = call.issue_ns;
  }
  CompareIssues(Issued(place, call, op));
}

void CallTrace::CompareIssues(std::vector<Arrival> all) {
  std::sort(all.begin(), all.end(), [](const Arrival& a, const Arrival& b) {
    return std::tie(a.host, b.ns) < std::tie(b.host, a.ns);
  });
  const Arrival* latest = nullptr;  // of all hosts, the one that came longest after its host's next
  uint64_t after_ns = 0;
  for (auto first = all.begin(); first != all.end();) {
    const auto end = std::find_if(first, all.end(), [&](const Arrival& a) { return a.host != first->host; });
    for (auto arrival = first; end - first > 1 && arrival != end; ++arrival) {
      Sums& sums = Of(arrival->process).by_host;
      ++sums.compared;
      sums.early_ns += first->ns - arrival->ns;
    }
    if (end - first > 1 && (latest == nullptr || first[0].ns - first[1].ns > after_ns)) {
      latest = &*first;
      after_ns = first[0].ns - first[1].ns;
    }
    first = end;
  }
  if (latest == nullptr) return;
  Process& last = Of(latest->process);
  ++last.by_host.last;
  const uint64_t from_ns = std::max(latest->ns - after_ns, last.late_until_ns);
  if (from_ns >= latest->ns) return;
  last.by_host.late_ns += latest->ns - from_ns;
  last.late_until_ns = latest->ns;
}

// The ranks end together, so that the shortest began last.
void CallTrace::On(const Place& place, const CallTimeRecord& time) {
  Process& its = Of(place.process);
  ++its.timed;
  its.gpu_ns += time.gpu_ns;
  std::vector<Arrival> all = Timed(place, time.number, time.gpu_ns);
  if (all.empty()) return;
  compares_gpus_ = true;
  std::sort(all.begin(), all.end(), [](const Arrival& a, const Arrival& b) { return a.ns < b.ns; });
  for (const Arrival& arrival : all) {
    Sums& sums = Of(arrival.process).by_gpu;
    ++sums.compared;
    sums.early_ns += arrival.ns - all.front().ns;
  }
  Sums& last = Of(all.front().process).by_gpu;
  ++last.last;
  last.late_ns += all[1].ns - all[0].ns;
}

bool CallTrace::On(const v1::DetailRaise& raise) {
  constexpr size_t kMostBytes = 1 << 16;
  const bool is_known = std::any_of(raises_.begin(), raises_.end(), [&](const v1::DetailRaise& known) {
    return known.decided_ns() == raise.decided_ns() && known.rank() == raise.rank();
  });
  if (is_known || raise.ByteSizeLong() > kMostBytes) return false;
  raises_.push_back(raise);
  if (raises_.size() > kMostRaises) raises_.pop_front();
  return true;
}

}  // namespace gpuprobe::model
