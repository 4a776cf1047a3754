// The slow calls of one process into the driver, added up by function, over the run and up to a time.
//
// Example: 214 calls of cuModuleLoadData, 212 of which began before the first steady step. Which step that is
// shows later, so the first kEarly calls are kept. Memory: these, and the functions. Not thread-safe: one
// owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class DriverCalls {
 public:
  static constexpr size_t kEarly = 4096;

  struct Sum {
    uint64_t calls = 0;
    uint64_t total_ns = 0;
    uint64_t failed = 0;
    uint64_t nccl_ns = 0;  // of the time, inside calls into NCCL
    uint64_t longest_ns = 0;
    uint64_t longest_start_ns = 0;

    void Add(const DriverCallRecord& call);
    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, calls, total_ns, failed, nccl_ns, longest_ns, longest_start_ns);
    }
  };
  using Sums = std::map<uint32_t, Sum>;  // by the function's name, a StringDef

  void On(const DriverCallRecord& call);
  const Sums& sums() const { return sums_; }
  // Of the calls that began before this time; those beyond the first kEarly are left out.
  Sums SumsBefore(uint64_t time_ns) const;

 private:
  Sums sums_;
  std::vector<DriverCallRecord> early_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, sums_, early_);
    archive.Require(early_.size() <= kEarly);
  }
};

}  // namespace gpuprobe::model
