// Stream-ordered memory pools of one process: what allocations use, and what each pool holds of its device.
//
// The ledger adds up requests; these are the driver's own levels, sampled by the probe with exact peaks. The
// latest row of a pool wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "collector/model/state/members.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class MemoryPools {
 public:
  static constexpr size_t kMaxPools = 4096;  // beyond, pools are left out

  struct Pool {
    uint32_t device = 0;
    uint64_t at_ns = 0;  // of the last operation on it
    uint64_t used_bytes = 0;
    uint64_t reserved_bytes = 0;
    uint64_t peak_used_bytes = 0;
    uint64_t peak_used_at_ns = 0;
    uint64_t peak_reserved_bytes = 0;
    uint64_t peak_reserved_at_ns = 0;
    uint64_t release_threshold_bytes = 0;
    uint64_t trims = 0;
    bool destroyed = false;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, device, at_ns, used_bytes, reserved_bytes, peak_used_bytes, peak_used_at_ns,
                      peak_reserved_bytes, peak_reserved_at_ns, release_threshold_bytes, trims, destroyed);
    }
  };

  void Add(const PoolLevelRecord& r) {
    if (pools_.size() >= kMaxPools && pools_.find(r.pool) == pools_.end()) return;
    pools_[r.pool] = {.device = r.device,
                      .at_ns = r.time_ns,
                      .used_bytes = r.used_bytes,
                      .reserved_bytes = r.reserved_bytes,
                      .peak_used_bytes = r.peak_used_bytes,
                      .peak_used_at_ns = r.peak_used_at_ns,
                      .peak_reserved_bytes = r.peak_reserved_bytes,
                      .peak_reserved_at_ns = r.peak_reserved_at_ns,
                      .release_threshold_bytes = r.release_threshold_bytes,
                      .trims = r.trims,
                      .destroyed = r.state == v1::POOL_STATE_DESTROYED};
  }

  const std::map<uint32_t, Pool>& pools() const { return pools_; }

 private:
  std::map<uint32_t, Pool> pools_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, pools_);
  }
};

}  // namespace gpuprobe::model
