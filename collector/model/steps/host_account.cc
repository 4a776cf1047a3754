#include "collector/model/steps/host_account.h"

#include <algorithm>
#include <utility>

#include "absl/numeric/int128.h"

namespace gpuprobe::model {
namespace {

// The first sample that is later than `time_ns`.
std::span<const HostSample>::iterator After(std::span<const HostSample> samples, uint64_t time_ns) {
  return std::upper_bound(samples.begin(), samples.end(), time_ns,
                          [](uint64_t time, const HostSample& s) { return time < s.time_ns; });
}

}  // namespace

template <typename Visit>
void HostAccount::ForEachStretch(const Stretch& whole, Visit visit) const {
  const uint64_t from_ns = whole.from_ns;
  const uint64_t to_ns = whole.to_ns;
  const bool launching = whole.launching;
  uint64_t at_ns = from_ns;
  const auto stands_for = [&](const HostSample& sample, uint64_t since_ns, uint64_t until_ns) {
    const uint64_t begin_ns = std::max(at_ns, since_ns);
    const uint64_t end_ns = std::min(until_ns, to_ns);
    if (begin_ns >= end_ns) return;
    if (begin_ns > at_ns) visit(at_ns, begin_ns, static_cast<const HostSample*>(nullptr));
    visit(begin_ns, end_ns, &sample);
    at_ns = end_ns;
  };
  const auto first = After(host_.samples, from_ns);
  const HostSample* last = first == host_.samples.begin() ? nullptr : &*std::prev(first);
  for (auto it = first; it != host_.samples.end(); ++it) {
    if (launching || it->in_gap) stands_for(*it, whole.continuous ? at_ns : it->since_ns, it->time_ns);
    if (it->time_ns >= to_ns) break;
    last = &*it;
  }
  if (!launching && last != nullptr && last->in_gap && last->time_ns > whole.silent_ns &&
      last->time_ns <= at_ns) {
    const uint64_t span_ns = last->time_ns - std::min(last->since_ns, last->time_ns);
    stands_for(*last, last->time_ns, last->time_ns + std::min(span_ns, UINT64_MAX - last->time_ns));
  }
  if (at_ns == from_ns && !launching) {  // a silence in which there was no time for others
    for (auto it = first; it != host_.samples.end() && it->time_ns < to_ns; ++it) {
      const auto next = std::next(it);
      const bool is_last = next == host_.samples.end() || next->time_ns >= to_ns;
      stands_for(*it, at_ns, is_last ? to_ns : it->time_ns);
    }
  }
  if (at_ns < to_ns) visit(at_ns, to_ns, static_cast<const HostSample*>(nullptr));
}

HostAccount::Evidence HostAccount::EvidenceOf(uint64_t from_ns, uint64_t to_ns) const {
  Evidence evidence;
  if (host_.samples.empty()) return evidence;
  ForEachStretch({.from_ns = from_ns, .to_ns = to_ns, .silent_ns = from_ns},
                 [&](uint64_t begin_ns, uint64_t end_ns, const HostSample* sample) {
                   if (sample == nullptr || !sample->place.IsNamed()) return;
                   evidence.sampled_ns += end_ns - begin_ns;
                   evidence.loading_ns += sample->place.task == HostTask::kLoads ? end_ns - begin_ns : 0;
                 });
  for (auto it = After(host_.samples, from_ns); it != host_.samples.end() && it->time_ns <= to_ns; ++it) {
    if (!it->place.IsNamed()) continue;
    evidence.looks += it->looks();
    evidence.loading_looks += it->place.task == HostTask::kLoads ? it->looks() : 0;
  }
  return evidence;
}

void HostAccount::Add(IdleCause cause, uint64_t from_ns, uint64_t to_ns, uint64_t silent_ns) {
  if (from_ns >= to_ns || (host_.samples.empty() && host_.calls.empty())) return;
  ForEachStretch({.from_ns = from_ns,
                  .to_ns = to_ns,
                  .silent_ns = silent_ns,
                  .launching = cause == IdleCause::kHostBound || cause == IdleCause::kBetween,
                  .continuous = cause == IdleCause::kBetween},
                 [&](uint64_t begin_ns, uint64_t end_ns, const HostSample* sample) {
                   AddStretch(cause, begin_ns, end_ns, sample);
                 });
  for (auto it = After(host_.samples, from_ns); it != host_.samples.end() && it->time_ns <= to_ns; ++it)
    Count(cause, *it);
}

void HostAccount::Count(IdleCause cause, const HostSample& sample) {
  uint64_t until_ns = UINT64_MAX;
  if (const auto call = CallPlace(sample.time_ns, &sample, until_ns); call.has_value()) {
    ++Put(cause, *call, 0).samples;
    return;
  }
  const uint64_t span_ns = std::max<uint64_t>(sample.time_ns - std::min(sample.since_ns, sample.time_ns), 1);
  const uint64_t weight = sample.looks() * HostTime::kLook;
  const auto no_cpu =
      static_cast<uint64_t>(absl::uint128(weight) * std::min(sample.run_delay_ns, span_ns) / span_ns);
  HostTime& waiting = Put(cause, {.kind = HostPlace::Kind::kNoCpu}, 0);
  HostTime& code = Put(cause, sample.place, 0);
  waiting.weight += no_cpu;
  code.weight += weight - no_cpu;
  HostTime& most = 2 * no_cpu > weight ? waiting : code;
  ++most.samples;
  ++most.code_samples;
}

const HostInterval* HostAccount::CallAt(std::span<const HostInterval> calls, uint64_t at_ns,
                                        uint64_t& until_ns) const {
  // Calls of several threads overlap: the last few that began before are looked at.
  constexpr int kLook = 8;
  auto it = std::upper_bound(calls.begin(), calls.end(), at_ns,
                             [](uint64_t at, const HostInterval& c) { return at < c.start_ns; });
  if (it != calls.end()) until_ns = std::min(until_ns, it->start_ns);
  for (int look = 0; it != calls.begin() && look < kLook; ++look) {
    --it;
    if (it->end_ns <= at_ns) continue;
    until_ns = std::min(until_ns, it->end_ns);
    return &*it;
  }
  return nullptr;
}

std::optional<HostPlace> HostAccount::CallPlace(uint64_t at_ns, const HostSample* sample,
                                                uint64_t& until_ns) const {
  const HostInterval* const call = CallAt(host_.calls, at_ns, until_ns);
  const HostInterval* const memory = call == nullptr ? CallAt(host_.memory, at_ns, until_ns) : nullptr;
  if (call == nullptr && memory == nullptr) return std::nullopt;
  HostPlace place = sample == nullptr ? HostPlace{} : sample->place;
  if (call != nullptr) {
    place.call = call->name;
  } else {
    place.kind = HostPlace::Kind::kMemoryCall;
    const bool within =
        sample != nullptr && memory->start_ns <= sample->time_ns && sample->time_ns <= memory->end_ns;
    if (!within) place.call = 0;
  }
  place.system_call = -1;
  place.file = 0;
  return place;
}

HostPlace HostAccount::CodePlace(const HostSample& sample) const {
  HostPlace place = sample.place;
  // A call that is recorded from entry to exit ended, or had not begun.
  uint64_t until_ns = UINT64_MAX;
  if (place.call != 0 && CallPlace(sample.time_ns, nullptr, until_ns).has_value()) {
    place.call = 0;
    place.system_call = -1;
    place.file = 0;
  }
  return place;
}

void HostAccount::AddStretch(IdleCause cause, uint64_t from_ns, uint64_t to_ns, const HostSample* sample) {
  uint64_t code_ns = 0;
  for (uint64_t at_ns = from_ns; at_ns < to_ns;) {
    uint64_t until_ns = to_ns;
    const std::optional<HostPlace> call = CallPlace(at_ns, sample, until_ns);
    if (call.has_value()) {
      Put(cause, *call, until_ns - at_ns).measured_ns += until_ns - at_ns;
    } else {
      code_ns += until_ns - at_ns;
    }
    at_ns = until_ns;
  }
  if (code_ns > 0 && sample != nullptr) AddCode(cause, code_ns, *sample);
}

void HostAccount::AddCode(IdleCause cause, uint64_t ns, const HostSample& sample) {
  const uint64_t span_ns = std::max<uint64_t>(sample.time_ns - std::min(sample.since_ns, sample.time_ns), 1);
  const uint64_t delay_ns = std::min(sample.run_delay_ns, span_ns);
  const auto no_cpu_ns = static_cast<uint64_t>(absl::uint128(ns) * delay_ns / span_ns);
  if (no_cpu_ns > 0) Put(cause, {.kind = HostPlace::Kind::kNoCpu}, no_cpu_ns);
  if (ns > no_cpu_ns) Put(cause, CodePlace(sample), ns - no_cpu_ns);
}

HostTime& HostAccount::Put(IdleCause cause, const HostPlace& place, uint64_t ns) {
  HostTime& time = shares_[{cause, place}].time;
  time.ns += ns;
  return time;
}

std::vector<HostShare> HostAccount::Take() {
  std::vector<HostShare> shares;
  shares.reserve(shares_.size());
  for (auto& [key, share] : shares_) {
    share.cause = key.first;
    share.place = key.second;
    if (share.time.ns > 0 || share.time.samples > 0 || share.time.weight > 0) shares.push_back(share);
  }
  shares_.clear();
  return shares;
}

}  // namespace gpuprobe::model
