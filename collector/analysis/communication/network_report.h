// How fast the network between hosts is, and whether it became slow or is slow for some hosts, as far as the
// job's own transfers show; for a job on one host, whether its links became slow.
//
// No table says what lies between two hosts, so a job over several hosts is compared with itself: the same
// transfer (operation, size, number of ranks) earlier and later in the run, and on other communicators. Only
// where neither differs is the rate compared with the vendor's reference design, which is an assumption and
// reported as one.
//
// Example: 128 ranks on 16 hosts, four stages. The gradients of stage 1, on hosts 4 to 7, take 11 ms, and 1
// ms on the other three stages; transfers between stages are slow on hosts 1, 5, 9 and 13. Host 5 is in all
// slow communicators and in no fast one: its network is slow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collector/report/communication.h"

namespace gpuprobe::model {
class JobModel;
}

namespace gpuprobe::analysis {

struct Report;

// nullopt where no communicator spans several hosts, and links within one host did not become slow.
std::optional<NetworkReport> NetworkOf(const Report& report, const model::JobModel& job);

// The maker's reference design around a device: network adapters of a host, and 1e9 bytes per second of each
// in one direction. nullopt: not known.
struct ReferenceNetwork {
  std::string_view name;  // as found in the device's name
  int adapters = 0;
  double gbytes_per_s = 0;
};
std::optional<ReferenceNetwork> ReferenceNetworkOf(std::string_view device_name);

}  // namespace gpuprobe::analysis
