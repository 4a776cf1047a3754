#include "collector/model/process/device_health.h"

#include <algorithm>

namespace gpuprobe::model {
namespace {

// A log may claim anything.
constexpr uint64_t kLongestNs = uint64_t{3600} * 1'000'000'000;
constexpr uint32_t kMostMhz = 100'000;
constexpr uint32_t kMostMilliwatts = 100'000'000;
constexpr uint64_t kMostErrors = uint64_t{1} << 40;

void Raise(uint32_t& highest, uint32_t value) { highest = std::max(highest, value); }

}  // namespace

void DeviceHealth::Apply(const v1::DeviceObservation& o, uint64_t time_ns) {
  clock_mhz_ = std::min(o.sm_clock_mhz(), kMostMhz);
  power_mw_ = std::min(o.power_milliwatts(), kMostMilliwatts);
  temperature_ = o.temperature_celsius();
  Raise(max_clock_mhz_, std::min(o.max_sm_clock_mhz(), kMostMhz));
  Raise(highest_temperature_, temperature_);
  if (o.power_limit_milliwatts() != 0) power_limit_mw_ = o.power_limit_milliwatts();
  Raise(link_.generation, o.pcie_generation());
  Raise(link_.lanes, o.pcie_lanes());
  Raise(max_link_.generation, o.max_pcie_generation());
  Raise(max_link_.lanes, o.max_pcie_lanes());
  remap_pending_ |= o.remap_pending();
  remap_failed_ |= o.remap_failed();
  for (const uint32_t number : o.xids()) {
    ++xid_count_;
    xids_.push_back({.time_ns = time_ns, .number = number});
    if (xids_.size() > kMostXids) xids_.pop_front();
  }
  const uint64_t interval_ns = std::min(o.interval_ns(), kLongestNs);
  if (interval_ns == 0) return;
  observed_ns_ += interval_ns;
  ecc_corrected_ += std::min(o.ecc_corrected(), kMostErrors);
  ecc_uncorrected_ += std::min(o.ecc_uncorrected(), kMostErrors);
  pcie_replays_ += std::min(o.pcie_replays(), kMostErrors);
  if (!o.busy()) return;
  busy_ns_ += interval_ns;
  const uint64_t interval_ms = interval_ns / 1'000'000;
  busy_ms_ += interval_ms;
  clock_mhz_ms_ += clock_mhz_ * interval_ms;
  power_mw_ms_ += power_mw_ * interval_ms;
  if (clock_mhz_ != 0 && (lowest_clock_mhz_ == 0 || clock_mhz_ < lowest_clock_mhz_))
    lowest_clock_mhz_ = clock_mhz_;
  for (const v1::ClockLimitTime& limit : o.limits()) {
    const auto at = static_cast<size_t>(limit.limit());
    if (at < kLimits) limited_ns_[at] += std::min(limit.time_ns(), interval_ns);
  }
}

}  // namespace gpuprobe::model
