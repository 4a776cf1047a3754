#include "collector/records/system_calls.h"

#include <sys/syscall.h>

namespace gpuprobe::model {
namespace {

using Waits = SystemCallInfo::Waits;

struct KnownCall {
  int64_t number;
  SystemCallInfo info;
};

constexpr KnownCall kCalls[] = {
    {SYS_read, {"read", Waits::kForDescriptor, true}},
    {SYS_readv, {"readv", Waits::kForDescriptor, true}},
    {SYS_pread64, {"pread", Waits::kForDescriptor, true}},
    {SYS_write, {"write", Waits::kForDescriptor}},
    {SYS_writev, {"writev", Waits::kForDescriptor}},
    {SYS_pwrite64, {"pwrite", Waits::kForDescriptor}},
    {SYS_recvfrom, {"recvfrom", Waits::kForDescriptor}},
    {SYS_recvmsg, {"recvmsg", Waits::kForDescriptor}},
    {SYS_sendto, {"sendto", Waits::kForDescriptor}},
    {SYS_sendmsg, {"sendmsg", Waits::kForDescriptor}},
    {SYS_connect, {"connect", Waits::kForDescriptor}},
    {SYS_accept, {"accept", Waits::kForDescriptor}},
    {SYS_accept4, {"accept4", Waits::kForDescriptor}},
    {SYS_flock, {"flock", Waits::kForDescriptor}},
    {SYS_fcntl, {"fcntl", Waits::kForDescriptor}},
    {SYS_ioctl, {"ioctl", Waits::kForDescriptor}},
    {SYS_fsync, {"fsync", Waits::kForDescriptor}},
    {SYS_fdatasync, {"fdatasync", Waits::kForDescriptor}},
    {SYS_openat, {"open", Waits::kForOutside}},
    {SYS_wait4, {"wait4", Waits::kForOutside}},
    {SYS_waitid, {"waitid", Waits::kForOutside}},
    {SYS_sync, {"sync", Waits::kForOutside}},
    {SYS_ppoll, {"poll", Waits::kForOutside}},
    {SYS_epoll_pwait, {"epoll_wait", Waits::kForOutside}},
    {SYS_pselect6, {"select", Waits::kForOutside}},
#ifdef SYS_poll  // where the kernel has the older forms, too
    {SYS_poll, {"poll", Waits::kForOutside}},
    {SYS_epoll_wait, {"epoll_wait", Waits::kForOutside}},
    {SYS_select, {"select", Waits::kForOutside}},
#endif
    {SYS_futex, {"futex", Waits::kForThread}},
    {SYS_nanosleep, {"nanosleep", Waits::kForTime}},
    {SYS_clock_nanosleep, {"nanosleep", Waits::kForTime}},
    {SYS_sched_yield, {"sched_yield", Waits::kNot}},
    {SYS_rt_sigtimedwait, {"sigwait", Waits::kForTime}},
    {SYS_rt_sigsuspend, {"sigsuspend", Waits::kForTime}},
    {SYS_mmap, {"mmap", Waits::kNot}},
    {SYS_munmap, {"munmap", Waits::kNot}},
    {SYS_madvise, {"madvise", Waits::kNot}},
};

}  // namespace

SystemCallInfo SystemCallOf(int64_t number) {
  for (const KnownCall& call : kCalls) {
    if (call.number == number) return call.info;
  }
  return {};
}

}  // namespace gpuprobe::model
