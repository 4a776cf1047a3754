#include "collector/observe/thread_copy.h"

#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <optional>
#include <thread>

namespace gpuprobe::observe {
namespace {

// What functions below may use of the stack beyond its pointer.
constexpr uint64_t kRedZone = 128;

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The status that wait() gives when the thread has stopped or ended. Nothing: it has done neither.
// `not_yet_ns`: when it was last seen to run.
std::optional<int> WaitFor(pid_t tid, uint64_t until_ns, uint64_t& not_yet_ns) {
  for (int i = 0;; ++i) {
    int status = 0;
    const uint64_t now_ns = NowNs();
    const pid_t which = waitpid(tid, &status, __WALL | WNOHANG);
    if (which == tid) return status;
    if (which < 0 && errno != EINTR) return std::nullopt;
    if (now_ns > until_ns) return std::nullopt;
    not_yet_ns = now_ns;
    constexpr int kShortPauses = 200;  // most stop within some microseconds
    const timespec pause{.tv_sec = 0, .tv_nsec = i < kShortPauses ? 5'000 : 100'000};
    nanosleep(&pause, nullptr);
  }
}

#ifdef __x86_64__

bool ReadRegisters(pid_t tid, ThreadCopy& copy) {
  user_regs_struct r{};
  iovec part{.iov_base = &r, .iov_len = sizeof r};
  constexpr uint64_t k64BitCode = 0x33;
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof r ||
      r.cs != k64BitCode)
    return false;
  copy.registers = {r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8,
                    r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rip};
  constexpr int64_t kRestart = -514;  // ERESTARTNOHAND, in the kernel: begin anew unless a handler runs
  if (static_cast<int64_t>(r.rax) == -EINTR && CanBeginAnew(r.orig_rax)) {
    r.rax = static_cast<uint64_t>(kRestart);
    ptrace(PTRACE_SETREGSET, tid, NT_PRSTATUS, &part);
  }
  return true;
}

#else

bool ReadRegisters(pid_t /*tid*/, ThreadCopy& /*copy*/) { return false; }

#endif

// Ctrl-Z must not stop us while another's thread is stopped.
class StopsBlocked {
 public:
  StopsBlocked() {
    sigset_t stops;
    sigemptyset(&stops);
    for (const int signal : {SIGTSTP, SIGTTIN, SIGTTOU}) sigaddset(&stops, signal);
    pthread_sigmask(SIG_BLOCK, &stops, &before_);
  }
  ~StopsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopsBlocked(const StopsBlocked&) = delete;
  StopsBlocked& operator=(const StopsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

#ifdef __x86_64__

bool CanBeginAnew(uint64_t call) {
  constexpr uint64_t kCalls[] = {
      SYS_epoll_wait,     SYS_epoll_pwait, SYS_semop,    SYS_semtimedop,   SYS_rt_sigtimedwait,
      SYS_read,           SYS_readv,       SYS_recvfrom, SYS_recvmsg,      SYS_recvmmsg,
      SYS_accept,         SYS_accept4,     SYS_write,    SYS_writev,       SYS_sendto,
      SYS_sendmsg,        SYS_sendmmsg,    SYS_connect,  SYS_io_getevents,
#ifdef SYS_io_pgetevents
      SYS_io_pgetevents,
#endif
#ifdef SYS_epoll_pwait2
      SYS_epoll_pwait2,
#endif
#ifdef SYS_io_uring_enter
      SYS_io_uring_enter,
#endif
  };
  return std::find(std::begin(kCalls), std::end(kCalls), call) != std::end(kCalls);
}

#else

bool CanBeginAnew(uint64_t /*call*/) { return false; }

#endif

void TakePriority() {
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
  sched_setscheduler(0, SCHED_FIFO, &lowest);
}

size_t ThreadCopier::CopyStack(uint64_t from, uint64_t end, uint64_t until_ns) {
  constexpr size_t kPiece = size_t{64} << 10;
  const size_t size = end > from ? std::min<uint64_t>(end - from, buffer_.size()) : 0;
  size_t copied = 0;
  while (copied < size && NowNs() < until_ns) {
    const size_t wanted = std::min(kPiece, size - copied);
    const size_t got = memory_.ReadSome(from + copied, buffer_.data() + copied, wanted);
    copied += got;
    if (got < wanted) break;
  }
  return copied;
}

void ThreadCopier::Trace(pid_t tid, const std::function<uint64_t(uint64_t)>& stack_end,
                         const std::function<void(uint64_t)>& meanwhile, ThreadCopy& copy, size_t& copied) {
  if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
    copy.stopped = errno == ESRCH ? Stopped::kEnded : Stopped::kNotPermitted;
    return;
  }
  TakePriority();
  uint64_t begin_ns = NowNs();
  const uint64_t wait_ns = std::min(kMostWaitNs, wait_left_ns_);
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) {
    copy.stopped = Stopped::kEnded;
    return;
  }
  const std::optional<int> status = WaitFor(tid, begin_ns + wait_ns, begin_ns);
  const uint64_t stopped_ns = NowNs();
  if (!status.has_value()) {
    copy.stopped = Stopped::kNotInTime;
    wait_left_ns_ -= wait_ns;
    return;
  }
  if (!WIFSTOPPED(*status)) {
    copy.stopped = Stopped::kEnded;
    return;
  }
  copy.stopped = ReadRegisters(tid, copy) ? Stopped::kYes : Stopped::kNotAmd64;
  if (copy.stopped == Stopped::kYes) {
    const uint64_t until_ns = stopped_ns + kMostStoppedNs;
    copy.stack_begin = copy.registers[ThreadCopy::kStackPointer] - kRedZone;
    copied = CopyStack(copy.stack_begin, stack_end(copy.stack_begin), until_ns);
    meanwhile(until_ns);
  }
  // A signal that was about to be delivered is.
  const bool is_signal = *status >> 16 == 0;
  ptrace(PTRACE_DETACH, tid, nullptr, is_signal ? WSTOPSIG(*status) : 0);
  copy.stopped_ns = NowNs() - begin_ns;
}

ThreadCopy ThreadCopier::Copy(pid_t tid, const std::function<uint64_t(uint64_t)>& stack_end,
                              const std::function<void(uint64_t)>& meanwhile) {
  ThreadCopy copy;
  size_t copied = 0;
  const StopsBlocked blocked;
  std::thread([&] { Trace(tid, stack_end, meanwhile, copy, copied); }).join();
  copy.stack.assign(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(copied));
  return copy;
}

}  // namespace gpuprobe::observe
