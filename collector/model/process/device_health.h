// What NVML reports about a GPU on which the process computes, once a second or so: its clock and what kept
// it down, power, temperature, errors.
//
// Fed by the collector (observe/device_watch.h) or by the log that it wrote; what both say is the same. Times
// are on the process's line. Means are over the time in which the GPU computed: an idle one clocks down.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class DeviceHealth {
 public:
  static constexpr size_t kMostXids = 16;  // the latest
  static constexpr size_t kLimits = v1::ClockLimit_ARRAYSIZE;

  struct Xid {
    uint64_t time_ns = 0;
    uint32_t number = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, time_ns, number);
    }
  };
  // The highest seen. A link that nobody uses goes down to save power.
  struct Link {
    uint32_t generation = 0;  // 0: not known
    uint32_t lanes = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, generation, lanes);
    }
  };

  void Apply(const v1::DeviceObservation& observation, uint64_t time_ns);

  uint64_t observed_ns() const { return observed_ns_; }
  uint64_t busy_ns() const { return busy_ns_; }
  // While it computed; 0: not known.
  double MeanClockMhz() const { return Mean(clock_mhz_ms_); }
  double MeanPowerWatts() const { return Mean(power_mw_ms_) / 1000; }
  uint32_t lowest_clock_mhz() const { return lowest_clock_mhz_; }
  uint64_t LimitedNs(v1::ClockLimit limit) const { return limited_ns_[static_cast<size_t>(limit)]; }
  // At any time.
  uint32_t max_clock_mhz() const { return max_clock_mhz_; }
  uint32_t power_limit_milliwatts() const { return power_limit_mw_; }
  uint32_t highest_temperature_celsius() const { return highest_temperature_; }
  uint64_t ecc_corrected() const { return ecc_corrected_; }
  uint64_t ecc_uncorrected() const { return ecc_uncorrected_; }
  uint64_t pcie_replays() const { return pcie_replays_; }
  bool remap_pending() const { return remap_pending_; }
  bool remap_failed() const { return remap_failed_; }
  const Link& link() const { return link_; }
  const Link& max_link() const { return max_link_; }
  const std::deque<Xid>& xids() const { return xids_; }
  uint64_t xid_count() const { return xid_count_; }
  // At the last observation.
  uint32_t clock_mhz() const { return clock_mhz_; }
  uint32_t power_milliwatts() const { return power_mw_; }
  uint32_t temperature_celsius() const { return temperature_; }

 private:
  double Mean(uint64_t sum_ms) const {
    return busy_ms_ == 0 ? 0 : static_cast<double>(sum_ms) / static_cast<double>(busy_ms_);
  }

  uint64_t observed_ns_ = 0;
  uint64_t busy_ns_ = 0;
  uint64_t busy_ms_ = 0;  // of the two sums that follow
  uint64_t clock_mhz_ms_ = 0;
  uint64_t power_mw_ms_ = 0;
  uint32_t lowest_clock_mhz_ = 0;
  std::array<uint64_t, kLimits> limited_ns_{};
  uint32_t max_clock_mhz_ = 0;
  uint32_t power_limit_mw_ = 0;
  uint32_t highest_temperature_ = 0;
  uint64_t ecc_corrected_ = 0;
  uint64_t ecc_uncorrected_ = 0;
  uint64_t pcie_replays_ = 0;
  bool remap_pending_ = false;
  bool remap_failed_ = false;
  Link link_;
  Link max_link_;
  std::deque<Xid> xids_;
  uint64_t xid_count_ = 0;
  uint32_t clock_mhz_ = 0;
  uint32_t power_mw_ = 0;
  uint32_t temperature_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, observed_ns_, busy_ns_, busy_ms_, clock_mhz_ms_, power_mw_ms_, lowest_clock_mhz_,
                    limited_ns_, max_clock_mhz_, power_limit_mw_, highest_temperature_, ecc_corrected_,
                    ecc_uncorrected_, pcie_replays_, remap_pending_, remap_failed_, link_, max_link_, xids_,
                    xid_count_, clock_mhz_, power_mw_, temperature_);
    archive.Require(xids_.size() <= kMostXids);
  }
};

}  // namespace gpuprobe::model
