// What somebody attaches to: `attach_target LAUNCHES [MODE ...]` launches a kernel about every millisecond,
// and ends with status 7 after a line that says whether anything was different from what it should have been.
//
// Modes add threads: `waits`: in each kind of system call that may be interrupted, whose results are checked;
// `registers`: one that waits with known values in its registers; `malloc`, `dlopen`: in these all the time;
// `handlers`: in a signal handler that sleeps. `busy`: the main thread never waits. `limited`: it may not
// have another thread. `forks`: children come and go. `environment`: it calls itself rank 3, and a thread
// changes variables all the time. `ready FILE`: the file is made once all threads run.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"

namespace {

std::atomic<bool> over{false};
std::atomic<long> wrong{0};

__global__ void AttachedKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

void Expect(bool right, const char* what) {
  if (right) return;
  if (wrong.fetch_add(1) < 5) std::fprintf(stderr, "%s: errno %d\n", what, errno);
}

constexpr int kMs = 15;

timespec Later() {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kMs * 1'000'000;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
  return until;
}

void Waits(std::vector<std::thread>& threads) {
  threads.emplace_back([] {
    while (!over) Expect(poll(nullptr, 0, kMs) == 0, "poll");
  });
  threads.emplace_back([] {
    const timespec pause{0, kMs * 1'000'000};
    while (!over) Expect(nanosleep(&pause, nullptr) == 0, "nanosleep");
  });
  threads.emplace_back([] {
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    while (!over) Expect(epoll_wait(epoll, &event, 1, kMs) == 0, "epoll_wait");
    close(epoll);
  });
  threads.emplace_back([] {
    while (!over) {
      timeval pause{0, kMs * 1000};
      Expect(select(0, nullptr, nullptr, nullptr, &pause) == 0, "select");
    }
  });
  threads.emplace_back([] {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    while (!over) {
      const timespec until = Later();
      Expect(pthread_cond_timedwait(&condition, &mutex, &until) == ETIMEDOUT, "pthread_cond_timedwait");
    }
    pthread_mutex_unlock(&mutex);
  });
  threads.emplace_back([] {
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    while (!over) {
      const timespec until = Later();
      Expect(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT, "sem_timedwait");
    }
  });
  static int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  threads.emplace_back([] {
    for (unsigned char next = 0; !over; ++next) {
      unsigned char got = 0;
      const bool right = read(ends[0], &got, 1) == 1 && got == next;
      Expect(right || over, "read");
    }
  });
  threads.emplace_back([] {
    for (unsigned char next = 0; !over; ++next) {
      Expect(write(ends[1], &next, 1) == 1, "write");
      usleep(kMs * 1000);
    }
    const unsigned char last = 0;  // for who still reads
    if (write(ends[1], &last, 1) != 1) std::abort();
  });
}

// In one call that does not end while the program runs.
void Sleeps(const std::string& kind) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  timespec long_time{1000, 0};
  timeval as_long{1000, 0};
  epoll_event event{};
  char byte = 0;
  int ends[2] = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  if (kind == "nanosleep") nanosleep(&long_time, nullptr);
  if (kind == "poll") poll(nullptr, 0, -1);
  if (kind == "timed-poll") poll(nullptr, 0, 1'000'000);
  if (kind == "select") select(0, nullptr, nullptr, nullptr, &as_long);
  if (kind == "epoll") epoll_wait(epoll_create1(EPOLL_CLOEXEC), &event, 1, -1);
  if (kind == "read" && read(ends[0], &byte, 1) < 0) std::perror("read");
  if (kind == "recv" && recv(ends[0], &byte, 1, 0) < 0) std::perror("recv");
  if (kind == "timed-recv") {
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &as_long, sizeof as_long);
    if (recv(ends[0], &byte, 1, 0) < 0) std::perror("recv");
  }
  if (kind == "condition") {
    pthread_mutex_lock(&mutex);
    pthread_cond_wait(&condition, &mutex);
  }
  if (kind == "timed-condition") {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1000;
    pthread_mutex_lock(&mutex);
    pthread_cond_timedwait(&condition, &mutex, &until);
  }
  Expect(false, kind.c_str());
}

// nanosleep with known values everywhere. What the kernel itself changes, rcx and r11, is left out.
void Registers() {
  struct {
    uint64_t general[12];  // rbx rbp rdx r8 r9 r10 r12 r13 r14 r15 flags mxcsr
    uint8_t vectors[16][16];
  } before, after;
  while (!over) {
    for (uint64_t& word : before.general) word = static_cast<uint64_t>(std::rand()) << 32 | std::rand();
    for (auto& vector : before.vectors) {
      for (uint8_t& byte : vector) byte = static_cast<uint8_t>(std::rand());
    }
    std::memset(&after, 0, sizeof after);
    before.general[10] = 0x202 | 0x8d4;  // overflow, sign, zero, auxiliary and parity
    before.general[11] = 0x1f80 | 0x6000;
    const timespec pause{0, 3'000'000};
    const void* in = &before;
    void* out = &after;
    const timespec* wait = &pause;
    asm volatile(
        "push %%rbp\n push %%rbx\n push %%r12\n push %%r13\n push %%r14\n push %%r15\n"
        "push %[out]\n push %[wait]\n mov %[in], %%rax\n"
        "movdqu 96(%%rax), %%xmm0\n movdqu 112(%%rax), %%xmm1\n movdqu 128(%%rax), %%xmm2\n"
        "movdqu 144(%%rax), %%xmm3\n movdqu 160(%%rax), %%xmm4\n movdqu 176(%%rax), %%xmm5\n"
        "movdqu 192(%%rax), %%xmm6\n movdqu 208(%%rax), %%xmm7\n movdqu 336(%%rax), %%xmm15\n"
        "ldmxcsr 88(%%rax)\n"
        "push 80(%%rax)\n popfq\n"
        "mov 0(%%rax), %%rbx\n mov 8(%%rax), %%rbp\n mov 16(%%rax), %%rdx\n mov 24(%%rax), %%r8\n"
        "mov 32(%%rax), %%r9\n mov 40(%%rax), %%r10\n mov 48(%%rax), %%r12\n mov 56(%%rax), %%r13\n"
        "mov 64(%%rax), %%r14\n mov 72(%%rax), %%r15\n"
        "mov $35, %%eax\n mov (%%rsp), %%rdi\n mov $0, %%esi\n syscall\n"
        "mov 8(%%rsp), %%rax\n"
        "mov %%rbx, 0(%%rax)\n mov %%rbp, 8(%%rax)\n mov %%rdx, 16(%%rax)\n mov %%r8, 24(%%rax)\n"
        "mov %%r9, 32(%%rax)\n mov %%r10, 40(%%rax)\n mov %%r12, 48(%%rax)\n mov %%r13, 56(%%rax)\n"
        "mov %%r14, 64(%%rax)\n mov %%r15, 72(%%rax)\n pushfq\n popq 80(%%rax)\n stmxcsr 88(%%rax)\n"
        "movdqu %%xmm0, 96(%%rax)\n movdqu %%xmm1, 112(%%rax)\n movdqu %%xmm2, 128(%%rax)\n"
        "movdqu %%xmm3, 144(%%rax)\n movdqu %%xmm4, 160(%%rax)\n movdqu %%xmm5, 176(%%rax)\n"
        "movdqu %%xmm6, 192(%%rax)\n movdqu %%xmm7, 208(%%rax)\n movdqu %%xmm15, 336(%%rax)\n"
        "pop %%rax\n pop %%rax\n pop %%r15\n pop %%r14\n pop %%r13\n pop %%r12\n pop %%rbx\n pop %%rbp\n"
        :
        : [in] "r"(in), [out] "r"(out), [wait] "r"(wait)
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
          "xmm5", "xmm6", "xmm7", "xmm15", "memory", "cc");
    for (int i = 8; i < 15; ++i) std::memcpy(after.vectors[i], before.vectors[i], 16);
    before.general[11] = static_cast<uint32_t>(before.general[11]);
    Expect(std::memcmp(before.general, after.general, sizeof after.general) == 0, "registers");
    Expect(std::memcmp(before.vectors, after.vectors, sizeof after.vectors) == 0, "vector registers");
  }
}

void Allocates() {
  std::vector<void*> held(64);
  for (uint32_t i = 0; !over; i = i * 1664525 + 1013904223) {
    void*& slot = held[i % held.size()];
    std::free(slot);
    slot = std::malloc(16 + i % 300'000);
    if (slot != nullptr) std::memset(slot, 1, 16);
  }
  for (void* each : held) std::free(each);
}

void Opens() {
  while (!over) {
    void* library = dlopen("libresolv.so.2", RTLD_NOW | RTLD_LOCAL);
    Expect(library != nullptr && dlsym(library, "ns_initparse") != nullptr, "dlopen");
    if (library != nullptr) dlclose(library);
  }
}

void Sleep(int) {
  const int kept = errno;
  usleep(800);
  errno = kept;
}

void SleepsInHandlers() {
  struct sigaction action {};
  action.sa_handler = Sleep;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, nullptr);
  const pthread_t self = pthread_self();
  std::thread sender([self] {
    while (!over) {
      pthread_kill(self, SIGUSR2);
      usleep(900);
    }
  });
  const auto begin = std::chrono::steady_clock::now();
  while (!over) {
    volatile int spin = 0;
    for (int i = 0; i < 10000; ++i) spin = spin + i;
  }
  sender.join();
  Expect(std::chrono::steady_clock::now() > begin, "clock");
}

void Forks() {
  while (!over) {
    const pid_t child = fork();
    if (child == 0) _exit(3);
    int status = 0;
    Expect(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 3,
           "fork");
    usleep(2000);
  }
}

// The array grows and shrinks, so that it is moved about.
void ChangesEnvironment() {
  const std::string value(64, 'x');
  while (!over) {
    for (int i = 0; i < 300; ++i) setenv(("ATTACH_TARGET_" + std::to_string(i)).c_str(), value.c_str(), 1);
    for (int i = 0; i < 300; ++i) unsetenv(("ATTACH_TARGET_" + std::to_string(i)).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long launches = argc > 1 ? std::atol(argv[1]) : 0;
  if (launches < 1) return 2;
  bool busy = false;
  bool limited = false;
  bool changes = false;
  std::string ready;
  std::vector<std::thread> threads;
  // Before CUDA makes threads of its own: the first that waits is the one that is used.
  for (int i = 2; i < argc; ++i) {
    const std::string mode = argv[i];
    if (mode == "waits") Waits(threads);
    if (mode.rfind("sleep:", 0) == 0) std::thread(Sleeps, mode.substr(6)).detach();
    if (mode == "registers") threads.emplace_back(Registers);
    if (mode == "malloc") {
      for (int n = 0; n < 3; ++n) threads.emplace_back(Allocates);
    }
    if (mode == "dlopen") threads.emplace_back(Opens);
    if (mode == "handlers") threads.emplace_back(SleepsInHandlers);
    if (mode == "forks") threads.emplace_back(Forks);
    if (mode == "busy") busy = true;
    if (mode == "limited") limited = true;
    if (mode == "environment") changes = true;
    if (mode == "ready" && i + 1 < argc) ready = argv[++i];
  }
  if (changes) setenv("RANK", "3", 1);
  int* counter = nullptr;
  CHECK_CUDA(cudaMalloc(&counter, sizeof(int)));
  uint64_t sum = 0;
  for (long i = 0; i < launches && !over; ++i) {
    AttachedKernel<<<1, 32>>>(counter);
    if (i == 10) {  // by now CUDA has made its threads
      const rlimit one{1, 1};
      if (limited) setrlimit(RLIMIT_NPROC, &one);
      if (changes) threads.emplace_back(ChangesEnvironment);
      if (!ready.empty()) close(open(ready.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    }
    sum = (sum ^ static_cast<uint64_t>(i)) * 1099511628211U;
    if (!busy) {
      usleep(1000);
      continue;
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1);
    while (std::chrono::steady_clock::now() < until) {
    }
  }
  CHECK_CUDA(cudaDeviceSynchronize());
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK_CUDA(cudaFree(counter));
  std::printf("%ld launches, sum %016lx, %ld wrong\n", launches, sum, wrong.load());
  return 7;
}
