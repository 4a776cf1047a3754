#include "collector/analysis/work/device_sharing.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trust/duplicate_ranks.h"
#include "collector/model/job/job_model.h"
#include "collector/model/process/process_model.h"
#include "collector/report/conditions.h"

namespace gpuprobe::analysis {
namespace {

// A process that ran kernels or holds memory on a device, and from when to when the kernels ran.
struct DeviceUser {
  const model::ProcessModel* process = nullptr;
  uint32_t ordinal = 0;
  bool computes = false;
  uint64_t kernels = 0;
  uint64_t held_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t first_ns = 0;
  uint64_t last_ns = 0;
};

using Devices = std::map<std::pair<std::string, std::string>, std::vector<DeviceUser>>;  // by host and uuid

bool Computes(const DeviceUser& user) { return user.computes; }

// It launches, and none of its records has come: as of a rank that hangs, for which CUPTI holds them back.
bool IsUnknown(const DeviceUser& user) {
  const auto& own = user.process->devices();
  return user.process->totals().launches > 0 &&
         std::none_of(own.begin(), own.end(), [](const auto& d) { return d.second.kernels > 0; });
}

// Where it computes: a few kernels on another device, such as those that load a checkpoint, are not training.
constexpr uint64_t kComputesOneIn = 100;

Devices DevicesOf(const model::JobModel& job) {
  Devices devices;
  for (const auto& process : job.processes()) {
    uint64_t most = 0;
    for (const auto& [ordinal, device] : process->devices()) most = std::max(most, device.kernels);
    const auto& memory = process->ledger().devices();
    for (const auto& [ordinal, device] : process->devices()) {
      if (device.info.uuid().empty()) continue;
      DeviceUser user{.process = process.get(),
                      .ordinal = ordinal,
                      .computes = device.kernels > 0 && device.kernels >= most / kComputesOneIn,
                      .kernels = device.kernels,
                      .first_ns = device.first_kernel_ns,
                      .last_ns = device.last_kernel_ns};
      if (const auto held = memory.find(ordinal); held != memory.end()) {
        user.held_bytes = held->second.live_bytes;
        user.peak_bytes = held->second.high_water_bytes;
      }
      devices[{process->identity().host(), device.info.uuid()}].push_back(user);
    }
  }
  return devices;
}

// Those whose kernels ran while another's did: one that began after all others had ended took turns with
// nobody.
std::vector<DeviceUser> UsersAtTheSameTime(std::vector<DeviceUser> users) {
  std::vector<DeviceUser> found;
  for (const DeviceUser& user : users) {
    const bool shares = std::any_of(users.begin(), users.end(), [&user](const DeviceUser& other) {
      return other.process != user.process && other.first_ns < user.last_ns && user.first_ns < other.last_ns;
    });
    if (shares) found.push_back(user);
  }
  const auto rank = [](const DeviceUser& user) {
    const v1::Identity& id = user.process->identity();
    return HasRank(id) ? id.rank() : INT32_MAX;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&rank](const DeviceUser& a, const DeviceUser& b) { return rank(a) < rank(b); });
  return found;
}

void FillSharedDevices(const Devices& devices, const ProcessLabels& labels, Conditions& c) {
  for (const auto& [key, all] : devices) {
    std::vector<DeviceUser> computing;
    std::copy_if(all.begin(), all.end(), std::back_inserter(computing), Computes);
    const std::vector<DeviceUser> users = UsersAtTheSameTime(std::move(computing));
    if (users.empty()) continue;
    SharedDevice shared{
        .host = key.first, .ordinal = static_cast<int>(users.front().ordinal), .ranks = {}, .processes = {}};
    for (const DeviceUser& user : users) {
      const v1::Identity& id = user.process->identity();
      shared.processes.push_back(labels.Of(*user.process));
      if (HasRank(id) && (shared.ranks.empty() || shared.ranks.back() != id.rank()))
        shared.ranks.push_back(id.rank());
    }
    c.shared_devices.push_back(std::move(shared));
  }
}

// Memory on devices on which other processes compute and its owner does not.
void FillStrayMemory(const Devices& devices, const ProcessLabels& labels, Conditions& c) {
  for (const auto& [key, users] : devices) {
    const auto owner = std::find_if(users.begin(), users.end(), Computes);
    if (owner == users.end()) continue;
    StrayMemory stray{.host = key.first,
                      .ordinal = static_cast<int>(owner->ordinal),
                      .owner = labels.Of(*owner->process),
                      .users = {}};
    for (const DeviceUser& user : users) {
      if (user.computes || user.peak_bytes < thresholds::kStrayBytes) continue;
      // A process that computes nowhere may be there for its memory: a server, a cache.
      const auto& own = user.process->devices();
      if (std::none_of(own.begin(), own.end(), [](const auto& d) { return d.second.kernels > 0; })) continue;
      stray.users.push_back({.label = labels.Of(*user.process),
                             .rank = HasRank(user.process->identity())
                                         ? std::optional(user.process->identity().rank())
                                         : std::nullopt,
                             .peak_bytes = user.peak_bytes,
                             .held_bytes = user.held_bytes});
    }
    std::stable_sort(stray.users.begin(), stray.users.end(), [](const auto& a, const auto& b) {
      return a.rank.value_or(INT32_MAX) < b.rank.value_or(INT32_MAX);
    });
    if (!stray.users.empty()) c.stray_memory.push_back(std::move(stray));
  }
}

void FillIdleDevices(const Devices& devices, Conditions& c) {
  std::set<std::string> computing;  // hosts
  for (const auto& [key, users] : devices) {
    if (std::any_of(users.begin(), users.end(), Computes)) computing.insert(key.first);
  }
  for (const auto& [key, users] : devices) {
    if (!computing.contains(key.first) || std::any_of(users.begin(), users.end(), [](const DeviceUser& user) {
          return Computes(user) || IsUnknown(user);
        }))
      continue;
    IdleDevice idle{.host = key.first, .ordinal = static_cast<int>(users.front().ordinal)};
    for (const DeviceUser& user : users) {
      idle.peak_bytes += user.peak_bytes;
      idle.held_bytes += user.held_bytes;
      idle.kernels += user.kernels;
    }
    c.idle_devices.push_back(std::move(idle));
  }
  std::stable_sort(c.idle_devices.begin(), c.idle_devices.end(),
                   [](const IdleDevice& a, const IdleDevice& b) {
                     return std::tie(a.host, a.ordinal) < std::tie(b.host, b.ordinal);
                   });
}

}  // namespace

void FillDeviceSharing(const model::JobModel& job, const ProcessLabels& labels, Conditions& c) {
  const Devices devices = DevicesOf(job);
  FillSharedDevices(devices, labels, c);
  FillStrayMemory(devices, labels, c);
  FillIdleDevices(devices, c);
}

}  // namespace gpuprobe::analysis
