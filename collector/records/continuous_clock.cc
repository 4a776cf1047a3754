#include "collector/records/continuous_clock.h"

#include <algorithm>
#include <optional>

#include "collector/records/rows.h"

namespace gpuprobe::model {
namespace {

struct HostEvent {
  uint64_t correlation = 0;
  uint64_t time_ns = 0;
  uint64_t range = 0;
};

std::vector<HostEvent> HostEvents(const v1::Batch& batch) {
  std::vector<HostEvent> events;
  // A batch whose columns differ in length is rejected by its next reader.
  if (!ForEachLaunch(batch, [&events](const LaunchRecord& r) {
         events.push_back({.correlation = r.correlation, .time_ns = r.time_ns, .range = r.range});
       }).ok())
    return {};
  if (!ForEachSync(batch, [&events](const SyncRecord& r) {
         if (r.correlation != 0 && r.end_ns >= r.start_ns)
           events.push_back({.correlation = r.correlation, .time_ns = r.end_ns, .range = 0});
       }).ok())
    return {};
  std::stable_sort(events.begin(), events.end(),
                   [](const HostEvent& a, const HostEvent& b) { return a.correlation < b.correlation; });
  return events;
}

// The end of the last operation before one that seems to have run earlier, on the stream where the jump back
// is largest.
std::optional<uint64_t> DeviceBefore(const v1::Batch& batch, uint64_t least_ns) {
  struct Last {
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
  };
  std::map<uint32_t, uint32_t> streams;  // by site; sites of earlier batches share a stream: most are
  for (const v1::KernelSite& site : batch.kernel_sites()) streams[site.id()] = site.stream();
  std::map<uint32_t, Last> last;
  std::optional<uint64_t> before_ns;
  uint64_t most_ns = least_ns;
  const absl::Status status = ForEachKernel(batch, [&](const KernelRecord& r) {
    Last& stream = last[streams.contains(r.site) ? streams[r.site] : r.site];
    if (stream.start_ns > r.start_ns && stream.start_ns - r.start_ns > most_ns) {
      most_ns = stream.start_ns - r.start_ns;
      before_ns = stream.end_ns;
    }
    stream = {.start_ns = r.start_ns, .end_ns = r.end_ns};
  });
  return status.ok() ? before_ns : std::nullopt;
}

}  // namespace

uint64_t ContinuousClock::Tolerance() const {
  constexpr uint64_t kDisorderNs = 50'000;  // among records that are reported in order
  return std::min(by_ns_ / 2, kDisorderNs);
}

void ContinuousClock::SetBack(const v1::Batch& batch, uint64_t by_ns, uint64_t sealed_ns,
                              uint64_t device_until_ns) {
  const uint64_t shift_before_ns = shift_ns_;
  by_ns_ = by_ns;
  shift_ns_ += by_ns;
  device_until_ns_ = device_until_ns;
  first_after_ = UINT64_MAX;
  streams_.clear();
  sealed_ns_ = sealed_ns - shift_before_ns;
  const std::vector<HostEvent> events = HostEvents(batch);
  // Finds where the host's times jump back most. If the host was silent for longer than the clock was set
  // back, its times do not jump back; then the device's times show when it was.
  size_t first_after = events.size();
  uint64_t most_ns = Tolerance();
  for (size_t i = 1; i < events.size(); ++i) {
    if (events[i - 1].time_ns <= events[i].time_ns) continue;
    const uint64_t back_ns = events[i - 1].time_ns - events[i].time_ns;
    if (back_ns <= most_ns) continue;
    most_ns = back_ns;
    first_after = i;
  }
  if (first_after == events.size()) {
    const uint64_t before_ns = DeviceBefore(batch, Tolerance()).value_or(sealed_ns_);
    first_after =
        static_cast<size_t>(std::find_if(events.begin(), events.end(),
                                         [&](const HostEvent& e) {
                                           return e.time_ns + by_ns >= before_ns && e.time_ns < before_ns;
                                         }) -
                            events.begin());
  }
  uint64_t at_ns = sealed_ns;
  last_range_ = 0;
  for (size_t i = 0; i < first_after; ++i) {
    at_ns = std::max(at_ns, events[i].time_ns + shift_before_ns);
    last_range_ = std::max(last_range_, events[i].range);
  }
  launch_unknown_ = events.empty();
  if (events.empty()) {
    last_launch_ = UINT64_MAX;
  } else {
    last_launch_ = first_after > 0 ? events[first_after - 1].correlation : events.front().correlation - 1;
  }
  if (sets_.size() == kMax) sets_.erase(sets_.begin());
  sets_.push_back({.at_ns = at_ns, .by_ns = by_ns});
}

void ContinuousClock::BeginBatch(const v1::Batch& batch, bool set_back) {
  set_in_batch_ = set_back;
  host_.clear();
  if (set_back || !launch_unknown_) return;
  const std::vector<HostEvent> events = HostEvents(batch);
  if (events.empty()) return;
  last_launch_ = events.front().correlation - 1;
  launch_unknown_ = false;
}

uint64_t ContinuousClock::Device(uint64_t stream, uint64_t correlation, uint64_t start_ns, uint64_t end_ns) {
  if (sets_.empty()) return start_ns;
  const uint64_t before_ns = start_ns + shift_ns_ - by_ns_;
  // Nothing that was after it has such a time.
  if (before_ns + by_ns_ + Tolerance() < sets_.back().at_ns) return before_ns;
  const auto after = [&] { return start_ns + shift_ns_; };
  if (After(correlation)) return after();
  if (!streams_.contains(stream) && streams_.size() >= kMaxStreams) return before_ns;
  const auto [it, first] = streams_.try_emplace(stream);
  Stream& at = it->second;
  // Streams run side by side: one without records so far may have begun something before the others ended.
  const bool back = first ? before_ns + by_ns_ / 2 < device_until_ns_ : before_ns + Tolerance() < at.last_ns;
  if (at.after || back || correlation > first_after_) {
    if (back) first_after_ = std::min(first_after_, correlation);
    at.after = true;
    at.last_ns = after();
    return after();
  }
  at.last_ns = before_ns;
  sets_.back().at_ns = std::max(sets_.back().at_ns, before_ns + (end_ns - start_ns));
  return before_ns;
}

uint64_t ContinuousClock::Host(uint8_t kind, uint32_t thread, uint64_t time_ns) {
  if (!set_in_batch_) return Now(time_ns);
  const auto [it, first] = host_.try_emplace(uint64_t{thread} << 8 | kind);
  Stream& order = it->second;
  if (first) order.last_ns = sealed_ns_;
  if (time_ns + Tolerance() < order.last_ns) order.after = true;
  order.last_ns = std::max(order.last_ns, time_ns);
  return time_ns + (order.after ? shift_ns_ : shift_ns_ - by_ns_);
}

uint64_t ContinuousClock::BackAt(uint64_t line_ns) const {
  uint64_t back_ns = shift_ns_;
  for (auto set = sets_.rbegin(); set != sets_.rend() && line_ns <= set->at_ns; ++set) back_ns -= set->by_ns;
  return back_ns;
}

}  // namespace gpuprobe::model
