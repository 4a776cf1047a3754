// Situations of bad_situations that a program gets into by system calls of its own: processes, signals,
// users, folders, limits.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/programs/bad_situations.h"

extern char** environ;

namespace bad_situations {
namespace {

void PrintStatus(const char* who, int status) {
  if (WIFSIGNALED(status)) {
    std::printf("%s ended by signal %d\n", who, WTERMSIG(status));
  } else {
    std::printf("%s ended with %d\n", who, WEXITSTATUS(status));
  }
  std::fflush(stdout);
}

void Reap(const char* who, pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) std::perror("waitpid");
  PrintStatus(who, status);
}

const char* Self() {
  static const std::string kPath = [] {
    char path[4096] = {};
    return std::string(
        path, static_cast<size_t>(std::max<ssize_t>(0, readlink("/proc/self/exe", path, sizeof(path)))));
  }();
  return kPath.c_str();
}

std::string WorkArgument(int kernels) { return "work:" + std::to_string(kernels); }

void VforkAndExec(int kernels) {
  const std::string work = WorkArgument(kernels);
  const char* const self = Self();
  const pid_t child = vfork();
  if (child == 0) {
    execl(self, self, work.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  Reap("vfork", child);
}

void VforkAndExit(int) {
  const pid_t child = vfork();
  if (child == 0) _exit(9);
  Reap("vfork", child);
}

void Spawn(int kernels) {
  std::string work = WorkArgument(kernels);
  char* arguments[] = {const_cast<char*>(Self()), work.data(), nullptr};
  pid_t child = -1;
  if (posix_spawn(&child, Self(), nullptr, nullptr, arguments, environ) != 0) std::abort();
  Reap("posix_spawn", child);
}

void System(int) {
  PrintStatus("system", std::system("exit 4"));
  FILE* pipe = popen("echo through a pipe", "r");
  char line[64] = {};
  if (pipe == nullptr || std::fgets(line, sizeof(line), pipe) == nullptr) std::abort();
  std::fputs(line, stdout);
  PrintStatus("popen", pclose(pipe));
}

// A daemon is a grandchild: what it does, it does after this process has ended.
void Daemon(int kernels) {
  if (daemon(1, 1) != 0) std::abort();
  Work(kernels);
  Print("daemon done");
}

void ExecOver(int kernels) {
  const std::string work = WorkArgument(kernels);
  execl(Self(), Self(), work.c_str(), "print:the new program", static_cast<char*>(nullptr));
}

// Children fork while eight threads are in the middle of CUDA calls.
void ForkAmongThreads(int children) {
  Work(1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&stop] {
      while (!stop) Work(2);
    });
  }
  int well = 0;
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(5);
    int status = 0;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5) ++well;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::printf("%d children well\n", well);
}

// A program that reaps whatever child there is must find its own only.
void NoChildOfOurs(int) {
  Work(1);
  usleep(300'000);  // the probe's thread has started what it starts
  errno = 0;
  const pid_t child = waitpid(-1, nullptr, WNOHANG);
  std::printf("waitpid %d %s\n", static_cast<int>(child), child < 0 ? std::strerror(errno) : "");
}

// As an init does: whatever its children leave behind becomes its child.
void AdoptOrphans(int) {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) std::abort();
}

std::vector<pid_t> left_running;

// A child that uses CUDA, and again after the file "go" has come.
void LeaveRunning(int kernels) {
  std::string work = WorkArgument(kernels);
  char* arguments[] = {const_cast<char*>(Self()),     work.data(), const_cast<char*>("touch:ready"),
                       const_cast<char*>("await:go"), work.data(), nullptr};
  pid_t child = -1;
  if (posix_spawn(&child, Self(), nullptr, nullptr, arguments, environ) != 0) std::abort();
  left_running.push_back(child);
}

// Waits for every child there is, as an init does before it ends, and says how its own ended.
void ReapAll(int) {
  int status = 0;
  for (pid_t child = 0; (child = waitpid(-1, &status, 0)) > 0;) {
    if (std::find(left_running.begin(), left_running.end(), child) != left_running.end())
      PrintStatus("child", status);
  }
  std::printf("then %s\n", std::strerror(errno));
}

void SetUser(int user) {
  if (setgroups(0, nullptr) != 0 ||
      setresgid(static_cast<gid_t>(user), static_cast<gid_t>(user), static_cast<gid_t>(user)) != 0 ||
      setresuid(static_cast<uid_t>(user), static_cast<uid_t>(user), static_cast<uid_t>(user)) != 0) {
    std::perror("setresuid");
    std::exit(2);
  }
}

// As a control loop does, on a core that is kept free for it. Prints what it may not do.
void RealTime(int) {
  sched_param priority{};
  priority.sched_priority = 20;
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) std::perror("SCHED_FIFO");
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  if (sched_setaffinity(0, sizeof(first), &first) != 0) std::perror("affinity");
  if (setpriority(PRIO_PROCESS, 0, -5) != 0) std::perror("nice");
}

// Until the probe's thread has done what it does once in a while.
void WaitLong(int) { usleep(700'000); }

void SpinLong(int) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void ClearEnvironment(int) { clearenv(); }

void CloseAll(int) {
  for (int fd = 3; fd < 4096; ++fd) close(fd);
}

// A filter that refuses sockets, as a sandbox may: the program itself makes none.
void NoSockets(int) {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof(code) / sizeof(code[0]), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    std::abort();
}

// A filter that ends the process at what only a library beside the program does; `early`: and what loading
// one does.
std::vector<sock_filter> KillingFilter(bool early) {
  std::vector<long> forbidden = {
      SYS_socket, SYS_connect,          SYS_sendto, SYS_recvmsg,           SYS_poll,
      SYS_fcntl,  SYS_getpid,           SYS_tgkill, SYS_madvise,           SYS_flock,
      SYS_wait4,  SYS_process_vm_readv, SYS_getcwd, SYS_sched_setaffinity, SYS_clone,
      SYS_uname,  SYS_clock_gettime};
  if (!early) {
    for (const long number : {SYS_openat, SYS_close, SYS_prctl, SYS_pread64, SYS_read, SYS_munmap})
      forbidden.push_back(number);
  }
  std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long number : forbidden) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return code;
}

using Install = long (*)(const sock_fprog*);

Install InstallOfModule() {
  void* module = dlopen(FILTER_MODULE, RTLD_NOW);
  return module == nullptr ? nullptr : reinterpret_cast<Install>(dlsym(module, "Install"));
}

// Installed for this thread by prctl (0) or the system call (1), for all threads (2), or before CUDA (3); by
// functions that were looked up, prctl (4) or syscall (5); by a library that has just been opened (6).
void KillFilter(int way) {
  std::vector<sock_filter> code = KillingFilter(way == 3);
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) std::abort();
  auto* by_prctl = &prctl;
  auto* by_syscall = &syscall;
  if (way == 4) by_prctl = reinterpret_cast<decltype(by_prctl)>(dlsym(RTLD_DEFAULT, "prctl"));
  if (way == 5) by_syscall = reinterpret_cast<decltype(by_syscall)>(dlsym(RTLD_DEFAULT, "syscall"));
  long installed = -1;
  if (way == 6) {
    installed = InstallOfModule()(&program);
  } else if (way == 0 || way == 3 || way == 4) {
    installed = by_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  } else {
    installed =
        by_syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, way == 1 ? 0 : SECCOMP_FILTER_FLAG_TSYNC, &program);
  }
  if (installed != 0) std::abort();
}

volatile sig_atomic_t on_alternate_stack = 0;
volatile sig_atomic_t elsewhere = 0;
char alternate_stack[1 << 16];

void OnTimer(int, siginfo_t*, void*) {
  char here = 0;
  if (&here >= alternate_stack && &here < alternate_stack + sizeof(alternate_stack)) {
    on_alternate_stack = 1;
  } else {
    elsewhere = elsewhere + 1;
  }
}

// Two interval timers that interrupt every thread that takes signals, on an alternate stack of the main
// thread's.
void Timers(int kernels) {
  stack_t stack{};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof(alternate_stack);
  if (sigaltstack(&stack, nullptr) != 0) std::abort();
  struct sigaction action {};
  action.sa_sigaction = OnTimer;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO | SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  sigaction(SIGPROF, &action, nullptr);
  const itimerval timer{{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  setitimer(ITIMER_PROF, &timer, nullptr);
  for (int i = 0; i < kernels; ++i) Work(1);
  const itimerval off{};
  setitimer(ITIMER_REAL, &off, nullptr);
  setitimer(ITIMER_PROF, &off, nullptr);
  std::printf("alternate stack %d\n", static_cast<int>(on_alternate_stack));
}

volatile sig_atomic_t handled[65];

void Count(int number) { handled[number] = handled[number] + 1; }

// Every signal that can be handled is handled, sent to the process many times, and handled as often, on the
// program's threads.
void EverySignal(int times) {
  for (int number = 1; number <= 64; ++number) {
    struct sigaction action {};
    action.sa_handler = Count;
    action.sa_flags = SA_RESTART;
    if (number != SIGKILL && number != SIGSTOP) sigaction(number, &action, nullptr);
  }
  Work(1);
  int sent = 0;
  int taken = 0;
  for (int round = 0; round < times; ++round) {
    for (int number = 1; number <= 64; ++number) {
      if (number == SIGKILL || number == SIGSTOP || number == 32 || number == 33) continue;
      const int before = handled[number];
      kill(getpid(), number);
      ++sent;
      for (int i = 0; i < 2000 && handled[number] == before; ++i) usleep(100);
      taken += handled[number] != before ? 1 : 0;
    }
    Work(1);
  }
  std::printf("signals %d of %d\n", taken, sent);
}

// What a process has besides memory and descriptors, in words.
std::string ProcessState() {
  std::string state;
  for (int number = 1; number <= 64; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) == 0) {
      state += action.sa_handler == SIG_DFL ? 'd' : action.sa_handler == SIG_IGN ? 'i' : 'h';
    }
  }
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  for (int number = 1; number <= 64; ++number) state += sigismember(&mask, number) == 1 ? 'b' : '-';
  const mode_t creation = umask(0);
  umask(creation);
  char text[4096] = {};
  if (getcwd(text, sizeof(text)) == nullptr) text[0] = '\0';
  state += " umask " + std::to_string(creation) + " in " + text + " locale " + setlocale(LC_ALL, nullptr) +
           " rounding " + std::to_string(fegetround()) + " nice " +
           std::to_string(getpriority(PRIO_PROCESS, 0)) + " dumpable " +
           std::to_string(prctl(PR_GET_DUMPABLE)) + " death ";
  int death = -1;
  prctl(PR_GET_PDEATHSIG, &death);
  char name[17] = {};
  prctl(PR_GET_NAME, name);
  state += std::to_string(death) + " name " + name + " session " + std::to_string(getsid(0) == getpid());
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit) {
    rlimit value{};
    getrlimit(static_cast<__rlimit_resource>(limit), &value);
    state += " " + std::to_string(value.rlim_cur) + "/" + std::to_string(value.rlim_max);
  }
  for (const int timer : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval value{};
    getitimer(static_cast<__itimer_which>(timer), &value);
    state += value.it_value.tv_sec != 0 || value.it_value.tv_usec != 0 ? " timer" : " no timer";
  }
  return state;
}

void State(int kernels) {
  umask(027);
  signal(SIGUSR1, SIG_IGN);
  const std::string before = ProcessState();
  Work(kernels);
  const std::string after = ProcessState();
  Print(before == after ? "state unchanged" : ("before " + before + "\nafter  " + after).c_str());
}

// Takes every descriptor that is left, and goes on without.
void NoDescriptors(int kernels) {
  int count = 0;
  while (open("/dev/null", O_RDONLY) >= 0) ++count;
  Work(kernels);
  std::printf("took some: %d\n", count > 0 ? 1 : 0);
}

// In the program's own hands the library is opened and closed, again and again.
void OpenAndClose(const std::string& library) {
  Work(1);
  for (int i = 0; i < 20; ++i) {
    void* handle = dlopen(library.c_str(), RTLD_NOW);
    if (handle != nullptr) dlclose(handle);
  }
  Work(1);
}

constexpr Situation kSituations[] = {
    {"vfork-exec", VforkAndExec},
    {"vfork-exit", VforkAndExit},
    {"spawn", Spawn},
    {"system", System},
    {"daemon", Daemon},
    {"exec-over", ExecOver},
    {"fork-among-threads", ForkAmongThreads},
    {"no-child", NoChildOfOurs},
    {"adopt-orphans", AdoptOrphans},
    {"leave-running", LeaveRunning},
    {"reap-all", ReapAll},
    {"wait-long", WaitLong},
    {"spin-long", SpinLong},
    {"real-time", RealTime},
    {"set-user", SetUser},
    {"clear-environment", ClearEnvironment},
    {"close-all", CloseAll},
    {"no-sockets", NoSockets},
    {"kill-filter", KillFilter},
    {"timers", Timers},
    {"every-signal", EverySignal},
    {"state", State},
    {"no-descriptors", NoDescriptors},
};

}  // namespace

bool PerformSystem(const std::string& name, const std::string& value) {
  for (const Situation& situation : kSituations) {
    if (name != situation.name) continue;
    situation.perform(std::atoi(value.c_str()));
    return true;
  }
  if (name == "open-and-close") {
    OpenAndClose(value);
  } else if (name == "chdir") {
    if (chdir(value.c_str()) != 0) std::perror("chdir");
  } else if (name == "chroot") {
    if (chroot(value.c_str()) != 0 || chdir("/") != 0) std::perror("chroot");
  } else if (name == "rmdir") {
    if (rmdir(value.c_str()) != 0) std::perror("rmdir");
  } else if (name == "touch") {
    close(open(value.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  } else if (name == "await") {
    while (access(value.c_str(), F_OK) != 0) usleep(1000);
  } else {
    return false;
  }
  return true;
}

}  // namespace bad_situations
