// Holds libgpuprobe.so to the rules of CONTRIBUTING.md ("Rules in the host"): preloaded before it, this
// library stands before the calls that could hurt the program, looks at the return address, and writes down
// every call of the probe's that a rule forbids. Everything is passed on.
//
// HOST_RULES_REPORT names the file; a line is "<rule> <function>", once for each, and at the end of a process
// "checked <calls of the probe's that were looked at>". Threads: "own" are those that the probe made,
// "worker" those that CUDA's own libraries made (CUPTI's), all others are the application's.
#include "tests/host_rules/host_rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

constexpr int kMostBreaks = 256;

std::atomic<uintptr_t> probe_begin{0};
std::atomic<uintptr_t> probe_end{0};
std::atomic<uint64_t> checked{0};
pid_t process = 0;
char report[512];

__attribute__((tls_model("initial-exec"))) thread_local sigset_t mask_before;

bool InChild() { return syscall(SYS_getpid) != process; }

void WriteDown(const char* first, const char* second) {
  if (report[0] == '\0') return;
  char line[160];
  size_t size = 0;
  for (const char* text : {first, " ", second, "\n"}) {
    const size_t length = strlen(text);
    if (size + length > sizeof(line)) return;
    memcpy(line + size, text, length);
    size += length;
  }
  const int before = errno;
  const long fd = syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd >= 0) {
    syscall(SYS_write, fd, line, size);
    syscall(SYS_close, fd);
  }
  errno = before;
}

}  // namespace

namespace host_rules {

__attribute__((tls_model("initial-exec"))) thread_local Kind kind = Kind::kApplication;
__attribute__((tls_model("initial-exec"))) thread_local bool blocked = false;

bool IsProbe(const void* caller) {
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at - probe_begin.load(std::memory_order_relaxed) >=
      probe_end.load(std::memory_order_relaxed) - probe_begin.load(std::memory_order_relaxed))
    return false;
  checked.fetch_add(1, std::memory_order_relaxed);
  return !InChild();
}

void Break(const char* rule, const char* function) {
  static std::atomic<const char*> known_rule[kMostBreaks];
  static std::atomic<const char*> known_function[kMostBreaks];
  for (int i = 0; i < kMostBreaks; ++i) {
    const char* none = nullptr;
    if (known_function[i].compare_exchange_strong(none, function)) {
      known_rule[i].store(rule);
      break;
    }
    const char* before = known_rule[i].load();
    if (strcmp(none, function) == 0 && (before == nullptr || strcmp(before, rule) == 0)) return;
  }
  WriteDown(rule, function);
}

void BreakOnApplication(const void* caller, const char* rule, const char* function) {
  if (IsProbe(caller) && kind == Kind::kApplication) Break(rule, function);
}

}  // namespace host_rules

using namespace host_rules;

namespace {

struct Found {
  uintptr_t address;
  uintptr_t begin;
  uintptr_t end;
};

int FindObject(dl_phdr_info* info, size_t, void* data) {
  auto* found = static_cast<Found*>(data);
  uintptr_t begin = UINTPTR_MAX;
  uintptr_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uintptr_t from = info->dlpi_addr + segment.p_vaddr;
    if (from < begin) begin = from;
    if (from + segment.p_memsz > end) end = from + segment.p_memsz;
  }
  if (found->address < begin || found->address >= end) return 0;
  found->begin = begin;
  found->end = end;
  return 1;
}

struct Start {
  void* (*main)(void*);
  void* argument;
  Kind kind;
};

void* RunThread(void* data) {
  const Start start = *static_cast<Start*>(data);
  __libc_free(data);
  kind = start.kind;
  return start.main(start.argument);
}

bool IsIn(const void* address, const char* library) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
         strstr(info.dli_fname, library) != nullptr;
}

// Determined by the library that makes the thread. For a std::thread that library is known by the type of
// what it runs: the argument begins with its vtable.
Kind KindFor(const void* caller, const void* argument) {
  if (IsProbe(caller)) return Kind::kOwn;
  if (IsIn(caller, "libstdc++") && argument != nullptr) caller = *static_cast<const void* const*>(argument);
  return IsIn(caller, "libcupti") || IsIn(caller, "libcuda.") ? Kind::kWorker : Kind::kApplication;
}

__attribute__((constructor)) void OnLoad() {
  process = static_cast<pid_t>(syscall(SYS_getpid));
  const char* path = getenv("HOST_RULES_REPORT");
  if (path != nullptr && strlen(path) < sizeof(report)) strcpy(report, path);
}

__attribute__((destructor)) void OnEnd() {
  if (InChild()) return;
  if (blocked) Break("signals", "pthread_sigmask");
  char number[24];
  char* digit = number + sizeof(number) - 1;
  *digit = '\0';
  uint64_t count = checked.load();
  do {
    *--digit = static_cast<char>('0' + count % 10);
    count /= 10;
  } while (count > 0);
  WriteDown("checked", digit);
}

}  // namespace

extern "C" {

// The first that the probe's constructor does is to ask for this: so we learn where it is.
char* getenv(const char* name) {
  NEXT(getenv);
  if (name[0] == 'G' && strcmp(name, "GPUPROBE_DISABLE") == 0 && probe_end.load() == 0) {
    Found found{reinterpret_cast<uintptr_t>(CALLER), 0, 0};
    if (dl_iterate_phdr(FindObject, &found) == 1) {
      probe_begin.store(found.begin);
      probe_end.store(found.end);
    }
  }
  return next(name);
}

// --- environment
int setenv(const char* name, const char* value, int replace) {
  NEXT(setenv);
  RULE("environment", setenv);
  return next(name, value, replace);
}
int unsetenv(const char* name) {
  NEXT(unsetenv);
  RULE("environment", unsetenv);
  return next(name);
}
int putenv(char* entry) {
  NEXT(putenv);
  RULE("environment", putenv);
  return next(entry);
}
int clearenv() {
  NEXT(clearenv);
  RULE("environment", clearenv);
  return next();
}

// --- signals
int sigaction(int number, const struct sigaction* action, struct sigaction* before) {
  NEXT(sigaction);
  if (action != nullptr) RULE("signals", sigaction);
  return next(number, action, before);
}
sighandler_t signal(int number, sighandler_t handler) {
  NEXT(signal);
  RULE("signals", signal);
  return next(number, handler);
}
int sigprocmask(int how, const sigset_t* set, sigset_t* before) {
  NEXT(sigprocmask);
  RULE("signals", sigprocmask);
  return next(how, set, before);
}
// Blocked for as long as a thread or process is made, and then as before.
int pthread_sigmask(int how, const sigset_t* set, sigset_t* before) {
  NEXT(pthread_sigmask);
  if (!IsProbe(CALLER)) return next(how, set, before);
  if (how == SIG_BLOCK && !blocked && before != nullptr) {
    const int result = next(how, set, before);
    blocked = true;
    mask_before = *before;
    return result;
  }
  if (how == SIG_SETMASK && blocked && set != nullptr) {
    bool same = true;
    for (int number = 1; number < 65; ++number)
      same = same && sigismember(set, number) == sigismember(&mask_before, number);
    if (!same) Break("signals", "pthread_sigmask");
    blocked = false;
  } else {
    Break("signals", "pthread_sigmask");
  }
  return next(how, set, before);
}
int sigaltstack(const stack_t* stack, stack_t* before) noexcept {
  NEXT(sigaltstack);
  if (stack != nullptr) RULE("signals", sigaltstack);  // otherwise it only asks
  return next(stack, before);
}
int kill(pid_t pid, int number) {
  NEXT(kill);
  RULE("signals", kill);
  return next(pid, number);
}
int raise(int number) {
  NEXT(raise);
  RULE("signals", raise);
  return next(number);
}

// --- memory of the program's allocator
void* malloc(size_t size) {
  RULE("allocation", malloc);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  RULE("allocation", calloc);
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  RULE("allocation", realloc);
  return __libc_realloc(block, size);
}
void free(void* block) {
  RULE("allocation", free);
  __libc_free(block);
}
void* aligned_alloc(size_t alignment, size_t size) {
  RULE("allocation", aligned_alloc);
  return __libc_memalign(alignment, size);
}

// --- locks and waiting, on the application's threads
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  NEXT(pthread_mutex_lock);
  BreakOnApplication(CALLER, "locks", "pthread_mutex_lock");
  return next(mutex);
}
int nanosleep(const timespec* time, timespec* left) {
  NEXT(nanosleep);
  BreakOnApplication(CALLER, "waiting", "nanosleep");
  return next(time, left);
}
int usleep(useconds_t time) {
  NEXT(usleep);
  BreakOnApplication(CALLER, "waiting", "usleep");
  return next(time);
}
unsigned int sleep(unsigned int time) {
  NEXT(sleep);
  BreakOnApplication(CALLER, "waiting", "sleep");
  return next(time);
}
int poll(pollfd* entries, nfds_t count, int timeout) {
  NEXT(poll);
  if (timeout != 0) BreakOnApplication(CALLER, "waiting", "poll");
  return next(entries, count, timeout);
}
int pthread_join(pthread_t thread, void** result) {
  NEXT(pthread_join);
  BreakOnApplication(CALLER, "waiting", "pthread_join");
  return next(thread, result);
}

// --- what a process has once
int chdir(const char* path) {
  NEXT(chdir);
  RULE("process-state", chdir);
  return next(path);
}
mode_t umask(mode_t mask) {
  NEXT(umask);
  RULE("process-state", umask);
  return next(mask);
}
char* setlocale(int category, const char* locale) {
  NEXT(setlocale);
  RULE("process-state", setlocale);
  return next(category, locale);
}
int setrlimit(__rlimit_resource_t resource, const rlimit* limit) {
  NEXT(setrlimit);
  RULE("process-state", setrlimit);
  return next(resource, limit);
}
int prlimit(pid_t pid, __rlimit_resource resource, const rlimit* limit, rlimit* before) noexcept {
  NEXT(prlimit);
  if (limit != nullptr) RULE("process-state", prlimit);
  return next(pid, resource, limit, before);
}

// --- priority, which a thread of ours may lower for itself
int sched_setscheduler(pid_t pid, int policy, const sched_param* parameters) noexcept {
  NEXT(sched_setscheduler);
  BreakOnApplication(CALLER, "priority", "sched_setscheduler");
  return next(pid, policy, parameters);
}
int sched_setparam(pid_t pid, const sched_param* parameters) noexcept {
  NEXT(sched_setparam);
  BreakOnApplication(CALLER, "priority", "sched_setparam");
  return next(pid, parameters);
}
int sched_setaffinity(pid_t pid, size_t bytes, const cpu_set_t* set) noexcept {
  NEXT(sched_setaffinity);
  BreakOnApplication(CALLER, "priority", "sched_setaffinity");
  return next(pid, bytes, set);
}
int setpriority(__priority_which_t which, id_t who, int priority) noexcept {
  NEXT(setpriority);
  BreakOnApplication(CALLER, "priority", "setpriority");
  return next(which, who, priority);
}
int nice(int more) noexcept {
  NEXT(nice);
  BreakOnApplication(CALLER, "priority", "nice");
  return next(more);
}

// --- threads, to know whose they are
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*main)(void*),
                   void* argument) {
  NEXT(pthread_create);
  auto* start = static_cast<Start*>(__libc_malloc(sizeof(Start)));
  if (start == nullptr) return ENOMEM;
  *start = {main, argument, KindFor(CALLER, argument)};
  if (start->kind == Kind::kOwn) {
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes != nullptr) pthread_attr_getdetachstate(attributes, &state);
    if (state != PTHREAD_CREATE_DETACHED || !blocked) Break("threads", "pthread_create");
  }
  const int result = next(thread, attributes, RunThread, start);
  if (result != 0) __libc_free(start);
  return result;
}
}
