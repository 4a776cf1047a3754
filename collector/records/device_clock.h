// Notices when CUPTI's clock is not the system's, which the probe reads, and by how much they differ.
//
// Both are CLOCK_REALTIME as a rule. They are not where a library fakes the clock for all that look it up by
// name, as libfaketime does (the probe is bound to the C library's), or where another tool gave CUPTI a
// clock: with a CUPTI clock that is five years ahead, kernels seem to run five years after their launches.
// Work on the device cannot begin before the probe or before its own launch, and its record cannot arrive
// before it has ended. The first records decide, and for good: afterwards only steps of the clock count
// (continuous_clock.h). The difference is then the smallest delay between a launch and its start, so that the
// fastest launch seems to take no time. Memory: the first launches, until the first device records arrive.
// Not thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "collector/model/state/members.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

class DeviceClock {
 public:
  // Less may be the delay of a record, or the error of a conversion.
  static constexpr int64_t kAgreesWithinNs = 100'000'000;

  // Before the records of every batch. `start`: both clocks of the program when it said hello.
  void BeginBatch(const v1::Batch& batch, const v1::ClockPair& start);
  // It is known already.
  void Know(int64_t ahead_ns) {
    decided_ = true;
    ahead_ns_ = ahead_ns;
  }
  // How far CUPTI's clock is ahead of the system's; 0: they agree, or there were no records yet.
  int64_t ahead_ns() const { return ahead_ns_; }

 private:
  static constexpr size_t kMaxLaunches = 4096;
  struct Seen;

  void NoteLaunches(const v1::Batch& batch);
  // Reads the batch's device records. False: it has none.
  bool Look(const v1::Batch& batch, Seen& seen) const;
  void Decide(const Seen& seen, uint64_t start_ns, uint64_t sealed_ns);

  bool decided_ = false;
  int64_t ahead_ns_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> launches_;  // correlation and time, in that order

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, decided_, ahead_ns_, launches_);
  }
};

}  // namespace gpuprobe::model
