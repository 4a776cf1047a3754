// Threads in the system calls that a stop could end with EINTR, threads that run, and signals that must
// arrive: what test_native_stacks.py looks at from outside. On a line from its input it prints each call that
// has returned, with its error, and ends.
//
// Usage: native_stacks             all of these
//        native_stacks vfork       waits for a child where it cannot be interrupted
//        native_stacks undumpable  forbids others to look at it
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

namespace {

constexpr int kLongS = 1000;
constexpr timespec kLong{kLongS, 0};
int silent[2];  // a pipe
int semaphores;
char byte;

long InRead() {
  return read(silent[0], &byte, 1);  // here: read
}

long InEpoll() {
  static const int kSet = epoll_create1(0);
  epoll_event event;
  return epoll_wait(kSet, &event, 1, kLongS * 1000);  // here: epoll
}

long InPoll() {
  pollfd one{silent[0], POLLIN, 0};
  return poll(&one, 1, kLongS * 1000);  // here: poll
}

long InSleep() {
  return nanosleep(&kLong, nullptr);  // here: sleep
}

long InSleepUntil() {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kLongS;
  errno = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);  // here: until
  return -1;
}

long InFutex() {
  static int word = 0;
  return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &kLong, nullptr, 0);  // here: futex
}

long InSemaphore() {
  sembuf take{0, -1, 0};
  return semtimedop(semaphores, &take, 1, &kLong);  // here: semaphore
}

long InReceive() {
  static int ends[2];
  static const int kMade = socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
  const timeval limit{kLongS + kMade, 0};
  setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return recv(ends[0], &byte, 1, 0);  // here: receive
}

long InSigwait() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  return sigtimedwait(&set, nullptr, &kLong);  // here: sigwait
}

long InWait() {
  static const pid_t kChild = fork();
  if (kChild == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pause();
  }
  return waitpid(kChild, nullptr, 0);  // here: wait
}

// Short calls and a sum that must be right.
long Running() {
  static uint64_t rounds = 0;
  const auto sum = [] {
    uint64_t value = 1;
    for (int i = 0; i < 100'000; ++i) value = value * 6364136223846793005U + 1442695040888963407U;
    return value;
  };
  static const uint64_t kExpected = sum();
  const timespec moment{0, 10'000};
  while (sum() == kExpected && nanosleep(&moment, nullptr) == 0) ++rounds;
  return -1;
}

std::atomic<int> received{0};
int sent = 0;
std::atomic<bool> sends{true};
pthread_t receiver;

long Receiver() {
  while (true) pause();
}

struct Waiting {
  const char* name;
  long (*call)();
  pthread_t thread = {};
  std::atomic<int> returned{0};
  std::atomic<int> error{0};
};

Waiting waiting[] = {{"read", InRead},           {"epoll", InEpoll},      {"poll", InPoll},
                     {"sleep", InSleep},         {"until", InSleepUntil}, {"futex", InFutex},
                     {"semaphore", InSemaphore}, {"receive", InReceive},  {"sigwait", InSigwait},
                     {"wait", InWait},           {"runs", Running},       {"signals", Receiver}};

void* Run(void* data) {
  Waiting& one = *static_cast<Waiting*>(data);
  pthread_setname_np(pthread_self(), one.name);
  while (true) {
    one.call();
    one.error = errno;
    ++one.returned;
  }
}

int LookedAt() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  struct sigaction action = {};
  action.sa_handler = [](int) { ++received; };
  sigaction(SIGRTMIN, &action, nullptr);
  if (pipe(silent) != 0) return 1;
  semaphores = semget(IPC_PRIVATE, 1, 0600);
  for (Waiting& one : waiting) pthread_create(&one.thread, nullptr, Run, &one);
  receiver = waiting[std::size(waiting) - 1].thread;
  pthread_t sender;
  pthread_create(
      &sender, nullptr,
      [](void*) -> void* {
        for (; sends; ++sent) {
          pthread_sigqueue(receiver, SIGRTMIN, {});
          usleep(200);
        }
        return nullptr;
      },
      nullptr);
  std::puts("ready");
  std::fflush(stdout);
  std::getchar();
  sends = false;
  pthread_join(sender, nullptr);
  for (int i = 0; i < 10'000 && received != sent; ++i) usleep(1000);
  for (const Waiting& one : waiting)
    if (one.returned > 0) std::printf("%s: %s\n", one.name, std::strerror(one.error));
  if (received != sent) std::printf("%d signals of %d\n", received.load(), sent);
  semctl(semaphores, 0, IPC_RMID);
  std::puts("end");
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int count, char** words) {
  const std::string how = count > 1 ? words[1] : "";
  if (how == "vfork") {
    if (vfork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      pause();
    }
  }
  if (how == "undumpable") {
    prctl(PR_SET_DUMPABLE, 0);
    std::puts("ready");
    std::fflush(stdout);
    pause();
  }
  return how.empty() ? LookedAt() : 0;
}
