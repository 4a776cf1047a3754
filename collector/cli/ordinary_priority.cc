#include "collector/cli/ordinary_priority.h"

#include <linux/ioprio.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <string>

namespace gpuprobe::cli {
namespace {

constexpr size_t kMostProcessors = 8192;

bool IsRealTime(int policy) {
  const int kind = policy & ~SCHED_RESET_ON_FORK;
  return policy >= 0 && kind != SCHED_OTHER && kind != SCHED_BATCH && kind != SCHED_IDLE;
}

void Lower(pid_t thread) {
  const int policy = sched_getscheduler(thread);
  if (IsRealTime(policy)) {
    const sched_param ordinary{};
    sched_setscheduler(thread, SCHED_OTHER | (policy & SCHED_RESET_ON_FORK), &ordinary);
  }
  if (getpriority(PRIO_PROCESS, static_cast<id_t>(thread)) < 0)
    setpriority(PRIO_PROCESS, static_cast<id_t>(thread), 0);
  const long disk = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, thread);
  if (disk > 0 && IOPRIO_PRIO_CLASS(disk) == IOPRIO_CLASS_RT)
    syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, thread, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_NONE, 0));
  // The kernel leaves out what the process's cpuset does not have.
  std::array<unsigned char, kMostProcessors / 8> all{};
  all.fill(0xff);
  sched_setaffinity(thread, all.size(), reinterpret_cast<const cpu_set_t*>(all.data()));
}

}  // namespace

void RunAtOrdinaryPriority() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string name = entry.path().filename();
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc()) Lower(thread);
  }
  if (error) Lower(0);
}

}  // namespace gpuprobe::cli
