// The control groups that a process is in: whether they are frozen, how much CPU they may use, whether they
// lack memory. Both hierarchies, the unified one and that of single controllers.
//
// A quota may be set on a group above the process's own (a Kubernetes pod's), so all groups up to the root
// are read. Open finds out which groups there are; if the process moves later, only another Open sees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/observe/proc_text.h"

namespace gpuprobe::observe {

// Counters since the groups were made.
struct CgroupReading {
  bool frozen = false;
  uint64_t quota_periods = 0;
  uint64_t throttled_periods = 0;
  uint32_t quota_millicpus = 0;  // the tightest; 0: none
  std::optional<uint64_t> memory_stall_us;
  uint64_t oom_kills = 0;
};

// The group whose limit leaves the least memory.
struct MemoryLimit {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;  // by all of the group, without files that the kernel can drop

  uint64_t left_bytes() const { return limit_bytes - std::min(limit_bytes, used_bytes); }
};

// Where hierarchies are mounted, by controller, as this process sees it; read once.
const std::map<std::string, CgroupMount>& CgroupMounts();

class Cgroups {
 public:
  // Groups above a process's own that are looked at.
  static constexpr size_t kMostLevels = 8;

  // As /proc/self/mountinfo and /proc/PID/cgroup say.
  static Cgroups Open(const std::map<std::string, CgroupMount>& mounts,
                      const std::map<std::string, std::string>& paths);
  CgroupReading Read() const;
  // nullopt: none has a limit.
  std::optional<MemoryLimit> ReadMemoryLimit() const;
  bool operator==(const Cgroups&) const = default;

 private:
  struct Quota {
    std::string folder;
    uint32_t millicpus = 0;
    bool operator==(const Quota&) const = default;
  };
  std::string unified_;  // folders; empty: not seen
  std::string freezer_;
  std::string memory_;
  std::vector<std::string> memory_groups_;  // from the process's own up
  std::vector<Quota> quotas_;
};

}  // namespace gpuprobe::observe
