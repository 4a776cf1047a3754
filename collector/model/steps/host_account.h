// Accounts for the idle time of one step by what the host did in it: exact calls first, then samples.
//
// Example: the device is idle from 0 to 30 ms. Samples of 10 and 20 ms stand for the 10 ms before each, and a
// call lasted from 12 to 14 ms. The first place gets 10 ms, the call 2 ms, the second place 8 ms; the last 10
// ms are not sampled.
//
// A sample is counted where it was taken, and stands for some time, too, which tells single long silences:
// one in a gap for the time since the one before it. One that was taken while the host launched stands for
// that, too, where the device is idle because launches are late; of a silence that it falls into it is a
// sample like any other, and it says nothing about silences before it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "collector/model/steps/host_activity.h"
#include "collector/model/steps/host_places.h"

namespace gpuprobe::model {

class HostAccount {
 public:
  explicit HostAccount(const HostActivity& host) : host_(host) {}

  // In order of time: the device was idle in [from_ns, to_ns) because of its host, which has launched nothing
  // since `silent_ns`. kBetween: whatever the device did, and whether or not the host launched.
  void Add(IdleCause cause, uint64_t from_ns, uint64_t to_ns, uint64_t silent_ns);
  // What samples say of the host's silence in [from_ns, to_ns).
  struct Evidence {
    uint64_t sampled_ns = 0;
    uint64_t loading_ns = 0;  // the part of it in which the host loads
    // Looks at it that saw a named place, and those of them that saw the host load.
    uint64_t looks = 0;
    uint64_t loading_looks = 0;

    bool IsEnough(uint64_t of_ns) const { return 2 * sampled_ns >= of_ns && sampled_ns > 0; }
    bool Loads() const { return 2 * loading_ns >= sampled_ns; }
  };
  Evidence EvidenceOf(uint64_t from_ns, uint64_t to_ns) const;
  std::vector<HostShare> Take();

 private:
  // Calls visit(begin, end, sample) for each part of the stretch, in order; nullptr: not sampled.
  struct Stretch {
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;
    uint64_t silent_ns = 0;
    bool launching = false;
    bool continuous = false;  // a sample stands for all the time since the one before it
  };
  template <typename Visit>
  void ForEachStretch(const Stretch& whole, Visit visit) const;
  // The call that goes on at `at_ns`, which ends at `until_ns`; nullptr: none, and the next one begins then.
  const HostInterval* CallAt(std::span<const HostInterval> calls, uint64_t at_ns, uint64_t& until_ns) const;
  void AddStretch(IdleCause cause, uint64_t from_ns, uint64_t to_ns, const HostSample* sample);
  void AddCode(IdleCause cause, uint64_t ns, const HostSample& sample);
  // What a sample says of the moment at which it was taken.
  void Count(IdleCause cause, const HostSample& sample);
  // The place of what a recorded call does not explain.
  HostPlace CodePlace(const HostSample& sample) const;
  // The place in the recorded call at `at_ns`, which ends at `until_ns`; nothing: in none, and the next one
  // begins then.
  std::optional<HostPlace> CallPlace(uint64_t at_ns, const HostSample* sample, uint64_t& until_ns) const;
  HostTime& Put(IdleCause cause, const HostPlace& place, uint64_t ns);

  const HostActivity& host_;
  std::map<HostPlaces::Key, HostShare> shares_;
};

}  // namespace gpuprobe::model
