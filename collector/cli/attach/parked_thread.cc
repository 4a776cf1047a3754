#include "collector/cli/attach/parked_thread.h"

#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collector/cli/attach/target.h"
#include "collector/observe/native_frames.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/small_file.h"
#include "collector/observe/thread_copy.h"

namespace gpuprobe::cli::attach {
namespace {

constexpr size_t kMostThreads = 32;                   // looked at in a round
constexpr std::chrono::milliseconds kFirstPause{20};  // between rounds; then twice as long each time
constexpr std::chrono::milliseconds kLongestPause{500};

enum class Fit : uint8_t { kNo, kInCuda, kYes };

std::string_view BaseOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool StartsWithAny(std::string_view text, const std::vector<std::string_view>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view each) { return text.starts_with(each); });
}

// Libraries in which a thread may hold the lock of an allocator or of the loader.
bool IsLoaderOrAllocator(std::string_view object) {
  return StartsWithAny(BaseOf(object), {"ld-linux", "ld-2.", "ld.so", "libjemalloc", "libtcmalloc",
                                        "libmimalloc", "libhoard", "libtbbmalloc", "libsnmalloc"});
}

bool IsCuda(std::string_view object) {
  return StartsWithAny(BaseOf(object), {"libcuda.so", "libcupti", "libnccl", "libnvidia-"});
}

// Functions that hold such locks, or run while a process begins, forks or ends. What the C library exports
// has a name also where the library is stripped.
bool HoldsLocks(std::string_view symbol) {
  const std::string_view name = symbol.substr(std::min(symbol.find_first_not_of('_'), symbol.size()));
  static const std::vector<std::string_view> kNames = {"malloc",
                                                       "calloc",
                                                       "realloc",
                                                       "free",
                                                       "memalign",
                                                       "posix_memalign",
                                                       "aligned_alloc",
                                                       "valloc",
                                                       "pvalloc",
                                                       "cfree",
                                                       "fork",
                                                       "vfork",
                                                       "exit",
                                                       "quick_exit",
                                                       "dlopen",
                                                       "dlclose",
                                                       "dlmopen",
                                                       "dlsym",
                                                       "dlvsym",
                                                       "dl_iterate_phdr",
                                                       "tls_get_addr",
                                                       "posix_spawn",
                                                       "posix_spawnp",
                                                       "system",
                                                       "popen",
                                                       "restore_rt",
                                                       "pthread_exit",
                                                       "cxa_finalize",
                                                       "run_exit_handlers",
                                                       "libc_fork",
                                                       "libc_malloc",
                                                       "libc_free",
                                                       "libc_calloc",
                                                       "libc_realloc"};
  static const std::vector<std::string_view> kBeginnings = {
      "int_malloc", "int_free",  "int_realloc", "int_memalign", "malloc_", "tcache_", "sysmalloc",
      "systrim",    "arena_get", "dl_",         "je_",          "tc_",     "mi_",     "pthread_create"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || StartsWithAny(name, kBeginnings);
}

Fit FitOf(const observe::NativeStack& stack) {
  if (!stack.whole) return Fit::kNo;
  Fit fit = Fit::kYes;
  for (size_t i = 0; i < stack.calls.size(); ++i) {
    const observe::NativeFrame& call = stack.calls[i];
    if (call.frames.empty() || call.frames.front().object.empty()) return Fit::kNo;
    const std::string& object = call.frames.front().object;
    if ((i > 0 && call.interrupted) || IsLoaderOrAllocator(object) || HoldsLocks(call.symbol))
      return Fit::kNo;
    for (const observe::StackFrame& frame : call.frames) {
      if (HoldsLocks(frame.function)) return Fit::kNo;
    }
    if (IsCuda(object)) fit = Fit::kInCuda;
  }
  return fit;
}

// Nothing: a return address is not where it should be.
std::optional<ParkedThread> Describe(pid_t tid, const observe::ThreadCopy& copy,
                                     const observe::NativeStack& stack) {
  ParkedThread thread{.tid = tid,
                      .rip = copy.registers.back(),
                      .rsp = copy.registers[observe::ThreadCopy::kStackPointer],
                      .returns = {}};
  for (size_t i = 1; i < stack.calls.size(); ++i) {
    ParkedThread::Return call{.at = stack.calls[i].stack_pointer - sizeof call.address, .address = 0};
    if (call.at < copy.stack_begin || call.at - copy.stack_begin + sizeof call.address > copy.stack.size())
      return std::nullopt;
    std::memcpy(&call.address, copy.stack.data() + (call.at - copy.stack_begin), sizeof call.address);
    thread.returns.push_back(call);
  }
  return thread;
}

std::vector<pid_t> WaitingThreads(pid_t pid) {
  std::vector<pid_t> tids;
  for (const pid_t tid : ThreadsOf(pid)) {
    const auto call = observe::ParseSystemCall(
        observe::ReadSmallFile(absl::StrCat("/proc/", pid, "/task/", tid, "/syscall")).value_or(""));
    if (call.has_value() && MayInterrupt(call->number)) tids.push_back(tid);
  }
  // Helpers before the main thread, on whose time the job depends most.
  std::stable_partition(tids.begin(), tids.end(), [pid](pid_t tid) { return tid != pid; });
  if (tids.size() > kMostThreads) tids.erase(tids.begin() + kMostThreads - 1, tids.end() - 1);
  return tids;
}

}  // namespace

bool MayInterrupt(int64_t system_call) {
  constexpr int64_t kCalls[] = {
#ifdef __x86_64__
      SYS_poll, SYS_select, SYS_epoll_wait, SYS_pause,
#endif
      // What a wait with a time limit goes on as after it was interrupted, by us or a debugger.
      SYS_restart_syscall, SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_nanosleep, SYS_clock_nanosleep,
      SYS_futex, SYS_read, SYS_recvfrom, SYS_recvmsg, SYS_accept, SYS_accept4, SYS_wait4, SYS_waitid,
      SYS_readv};
  return std::find(std::begin(kCalls), std::end(kCalls), system_call) != std::end(kCalls);
}

std::optional<std::string> FindParkedThread(pid_t pid, std::chrono::steady_clock::time_point until,
                                            const std::function<bool(const ParkedThread&)>& use) {
  observe::NativeUnwinder unwinder(pid);
  observe::ThreadCopier copier(pid);
  bool any_waits = false;
  bool any_fits = false;
  for (std::chrono::milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    std::vector<ParkedThread> in_cuda;
    for (const pid_t tid : WaitingThreads(pid)) {
      any_waits = true;
      const observe::ThreadCopy copy = copier.Copy(
          tid, [&](uint64_t at) { return unwinder.EndOfMapping(at); }, [](uint64_t /*until_ns*/) {});
      if (copy.stopped == observe::Stopped::kNotPermitted) return "the kernel forbids tracing it";
      if (copy.stopped != observe::Stopped::kYes) continue;
      const observe::NativeStack stack = unwinder.Unwind(copy);
      const Fit fit = FitOf(stack);
      std::optional<ParkedThread> thread = Describe(tid, copy, stack);
      if (fit == Fit::kNo || !thread.has_value()) continue;
      any_fits = true;
      if (fit == Fit::kYes && use(*thread)) return std::nullopt;
      if (fit == Fit::kInCuda) in_cuda.push_back(*std::move(thread));
      if (std::chrono::steady_clock::now() >= until) break;
    }
    for (const ParkedThread& thread : in_cuda) {
      if (use(thread)) return std::nullopt;
    }
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(pause);
  }
  if (any_fits) return "its threads moved on before they could be used";
  return any_waits
             ? "each thread that waits is in an allocator, the loader, a signal handler, or code that cannot "
               "be identified"
             : "no thread of it waits in a system call that can be interrupted";
}

}  // namespace gpuprobe::cli::attach
