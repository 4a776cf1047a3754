// A probe that breaks the rules on the application's thread when CUDA starts: the test of the rules must find
// it. BREAK_CALLS lists functions, separated by commas; "all" makes every call that a program survives.
// Everything else of the library is as it is.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "injector/probe/probe.h"

extern "C" pid_t _Fork(void);

namespace {

constexpr int kForeign = 499;  // a number that may be the program's
constexpr const char* kNoProgram = "/no/such/program";

constexpr char* kEnd = nullptr;

char text[] = "x\n";
char variable[] = "BROKEN=1";
char* const no_arguments[] = {text, nullptr};
iovec part{text, sizeof(text) - 1};
volatile long result = 0;  // of whatever was called

void* Nothing(void* argument) { return argument; }

int EndAtOnce(void*) { _exit(0); }

void EndChild(pid_t child) {
  if (child == 0) _exit(0);
  if (child > 0) waitpid(child, nullptr, __WALL);
}

void Clone() {
  alignas(16) static char stack[65536];
  EndChild(clone(EndAtOnce, stack + sizeof(stack), CLONE_VM | CLONE_VFORK, nullptr));
}

void ClearOtherEnvironment() {
  static char* none[] = {nullptr};
  char** const before = environ;
  environ = none;
  clearenv();
  environ = before;
}

void Allocate(void* (*function)()) {
  void* volatile block = function();
  std::free(block);
}

void Spawn(decltype(&posix_spawn) function) {
  pid_t child = -1;
  if (function(&child, "/bin/true", nullptr, nullptr, no_arguments, environ) == 0) EndChild(child);
}

void Lock() {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}

void StartThread() {
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, Nothing, nullptr) == 0) pthread_detach(thread);
}

void BlockAndForget() {
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

void SetSameLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  setrlimit(RLIMIT_CORE, &limit);
}

void SetSameLimitByPid() {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  prlimit(0, RLIMIT_CORE, &limit, nullptr);
}

void SetSameProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) sched_setaffinity(0, sizeof(set), &set);
}

void ClosePopen() {
  FILE* pipe = popen("true", "r");
  if (pipe != nullptr) pclose(pipe);
}

struct Call {
  const char* function;
  void (*make)();
  bool survived = true;
};

#define CALL(function, ...)        \
  Call {                           \
#function, [] { __VA_ARGS__; } \
  }
#define LAST_CALL(function)               \
  Call {                                  \
#function, [] { function(3); }, false \
  }

constexpr sched_param kOrdinary{};

const Call kCalls[] = {
    CALL(clearenv, ClearOtherEnvironment()),
    CALL(setenv, setenv("BROKEN", "1", 1)),
    CALL(putenv, putenv(variable)),
    CALL(unsetenv, unsetenv("BROKEN")),
    CALL(close, close(kForeign)),
    CALL(dup2, dup2(kForeign, kForeign)),
    CALL(dup3, dup3(kForeign, kForeign - 1, 0)),
    CALL(close_range, close_range(kForeign, kForeign, 0)),
    CALL(read, result = read(kForeign, text, 1)),
    CALL(recv, result = recv(kForeign, text, 1, 0)),
    CALL(recvmsg, msghdr message{}; result = recvmsg(kForeign, &message, 0)),
    CALL(fcntl, fcntl(kForeign, F_SETFD, 0)),
    CALL(send, result = send(kForeign, text, 1, MSG_NOSIGNAL)),
    CALL(sendto, result = sendto(kForeign, text, 1, MSG_NOSIGNAL, nullptr, 0)),
    CALL(sendmsg, msghdr message{}; result = sendmsg(kForeign, &message, MSG_NOSIGNAL)),
    CALL(sendmmsg, mmsghdr message{}; result = sendmmsg(kForeign, &message, 1, MSG_NOSIGNAL)),
    CALL(pwrite, result = pwrite(kForeign, text, 1, 0)),
    CALL(pwrite64, result = pwrite64(kForeign, text, 1, 0)),
    CALL(pwritev, result = pwritev(kForeign, &part, 1, 0)),
    CALL(write, result = write(STDERR_FILENO, text, 2)),
    CALL(writev, result = writev(STDERR_FILENO, &part, 1)),
    CALL(sigaction, struct sigaction action{}; action.sa_handler = SIG_IGN;
         sigaction(SIGUSR1, &action, nullptr)),
    CALL(signal, std::signal(SIGUSR1, SIG_IGN)),
    CALL(sigprocmask, sigset_t set; sigemptyset(&set); sigprocmask(SIG_BLOCK, &set, nullptr)),
    CALL(pthread_sigmask, BlockAndForget()),
    CALL(sigaltstack, stack_t stack{}; stack.ss_flags = SS_DISABLE; sigaltstack(&stack, nullptr)),
    CALL(kill, kill(getpid(), 0)),
    CALL(raise, raise(SIGUSR1)),  // ignored by now
    CALL(malloc, Allocate([] { return std::malloc(100); })),
    CALL(calloc, Allocate([] { return std::calloc(1, 100); })),
    CALL(realloc, Allocate([] { return std::realloc(std::malloc(10), 100); })),
    CALL(aligned_alloc, Allocate([] { return std::aligned_alloc(64, 128); })),
    CALL(pthread_mutex_lock, Lock()),
    CALL(nanosleep, const timespec moment{0, 1}; nanosleep(&moment, nullptr)),
    CALL(usleep, usleep(1)),
    CALL(sleep, sleep(0)),
    CALL(poll, poll(nullptr, 0, 1)),
    CALL(pthread_join, pthread_t thread{};
         if (pthread_create(&thread, nullptr, Nothing, nullptr) == 0) pthread_join(thread, nullptr)),
    CALL(fork, EndChild(fork())),
    CALL(_Fork, EndChild(_Fork())),
    CALL(vfork, EndChild(vfork())),
    CALL(clone, Clone()),
    CALL(waitpid, waitpid(-1, nullptr, WNOHANG)),
    CALL(wait, wait(nullptr)),
    CALL(waitid, waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG)),
    CALL(system, result = std::system("true")),
    CALL(popen, ClosePopen()),
    CALL(execve, execve(kNoProgram, no_arguments, environ)),
    CALL(execv, execv(kNoProgram, no_arguments)),
    CALL(execvp, execvp(kNoProgram, no_arguments)),
    CALL(execvpe, execvpe(kNoProgram, no_arguments, environ)),
    CALL(execl, execl(kNoProgram, text, kEnd)),
    CALL(execlp, execlp(kNoProgram, text, kEnd)),
    CALL(execle, execle(kNoProgram, text, kEnd, environ)),
    CALL(fexecve, fexecve(kForeign, no_arguments, environ)),
    CALL(execveat, execveat(kForeign, text, no_arguments, environ, 0)),
    CALL(posix_spawn, Spawn(posix_spawn)),
    CALL(posix_spawnp, Spawn(posix_spawnp)),
    CALL(chdir, result = chdir(".")),
    CALL(umask, umask(umask(022))),
    CALL(setlocale, std::setlocale(LC_ALL, nullptr)),
    CALL(setrlimit, SetSameLimit()),
    CALL(prlimit, SetSameLimitByPid()),
    CALL(sched_setscheduler, sched_setscheduler(0, SCHED_OTHER, &kOrdinary)),
    CALL(sched_setparam, sched_setparam(0, &kOrdinary)),
    CALL(sched_setaffinity, SetSameProcessors()),
    CALL(setpriority, setpriority(PRIO_PROCESS, 0, 0)),
    CALL(nice, result = nice(0)),
    CALL(pthread_create, StartThread()),
    CALL(syscall, syscall(SYS_close, kForeign)),
    LAST_CALL(exit),
    LAST_CALL(_exit),
    LAST_CALL(_Exit),
    LAST_CALL(quick_exit),
    Call{"abort", std::abort, false},
    Call{"daemon", [] { _exit(daemon(1, 1)); }, false},
};

bool IsListed(const char* function, const char* list) {
  const size_t length = std::strlen(function);
  for (const char* at = list; (at = std::strstr(at, function)) != nullptr; ++at) {
    if ((at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0')) return true;
  }
  return false;
}

void BreakRules(const char* list) {
  const bool all = std::strcmp(list, "all") == 0;
  for (const Call& call : kCalls) {
    if (all ? call.survived : IsListed(call.function, list)) call.make();
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() noexcept {
  gpuprobe::injector::StartProbe();
  const char* list = getenv("BREAK_CALLS");
  if (list != nullptr) BreakRules(list);
  return 1;
}

namespace {

__attribute__((constructor)) void OnLoad(int argc, char** argv, char**) noexcept {
  gpuprobe::injector::AnnounceLibrary(argv + argc + 1);
}

}  // namespace
