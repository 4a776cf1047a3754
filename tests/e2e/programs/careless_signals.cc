/* Signal handlers that make NVTX calls, or leave them by siglongjmp, whatever their thread is doing.
 * `careless_signals calls N`: a timer's handler pushes, marks and pops N times in all, on the thread's stack
 * and on an alternate one, while the program annotates. `careless_signals jumps N`: it jumps out of N calls,
 * at changing depths, and then the program annotates 100 launches. */
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void* memory = nullptr;
sigjmp_buf back;
volatile sig_atomic_t handled = 0;
volatile sig_atomic_t most = 0;
volatile sig_atomic_t may_jump = 0;
char alternate_stack[65536];

void Check(cudaError_t result) {
  if (result != cudaSuccess) std::abort();
}

void Call(int) {
  if (gettid() != getpid() || handled >= most) return;
  handled = handled + 1;
  nvtxRangePushA("in the handler");
  nvtxMarkA("mark of the handler");
  nvtxRangePop();
}

void Jump(int) {
  if (gettid() != getpid() || may_jump == 0) return;
  may_jump = 0;
  handled = handled + 1;
  siglongjmp(back, 1);
}

void StartTimers(void (*handler)(int), bool alternately) {
  stack_t stack{};
  stack.ss_sp = alternate_stack;
  stack.ss_size = sizeof(alternate_stack);
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaddset(&action.sa_mask, SIGALRM);
  sigaddset(&action.sa_mask, SIGVTALRM);
  sigaction(SIGALRM, &action, nullptr);
  if (alternately) action.sa_flags |= SA_ONSTACK;
  sigaction(SIGVTALRM, &action, nullptr);
  const itimerval timer{{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &timer, nullptr);
  setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

void StopTimers() {
  const itimerval off{};
  setitimer(ITIMER_REAL, &off, nullptr);
  setitimer(ITIMER_VIRTUAL, &off, nullptr);
}

// A frame of about `depth` times 200 bytes below the caller's.
[[gnu::noinline]] void MarkDeeper(int depth, int times) {
  volatile char frame[200];
  frame[0] = static_cast<char>(depth);
  if (depth > 0) {
    MarkDeeper(depth - 1, times);
  } else {
    for (int i = 0; i < times; ++i) nvtxMarkA("loop");
  }
  frame[1] = frame[0];
}

void Calls() {
  StartTimers(Call, true);
  int rounds = 0;
  for (; handled < most; ++rounds) {
    nvtxRangePushA("round");
    for (int i = 0; i < 200; ++i) {
      nvtxRangePushA("loop");
      nvtxRangePop();
    }
    nvtxRangePop();
    usleep(300);
  }
  StopTimers();
  std::fprintf(stderr, "rounds %d\n", rounds);
}

void Jumps() {
  StartTimers(Jump, false);
  while (handled < most) {
    if (sigsetjmp(back, 1) != 0) continue;
    may_jump = 1;
    while (handled < most) {
      MarkDeeper(handled % 7, 300);
      usleep(300);
    }
  }
  may_jump = 0;
  StopTimers();
  for (int i = 0; i < 100; ++i) {
    nvtxRangePushA("after the jumps");
    Check(cudaMemset(memory, 0, static_cast<size_t>(i + 1)));
    nvtxRangePop();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  most = std::atoi(arguments[2]);
  Check(cudaMalloc(&memory, 4096));
  nvtxInitialize(nullptr);  // whoever jumps out of this leaves NVTX itself waiting for ever
  if (std::strcmp(arguments[1], "calls") == 0) Calls();
  if (std::strcmp(arguments[1], "jumps") == 0) Jumps();
  Check(cudaDeviceSynchronize());
  std::printf("%d\n", static_cast<int>(handled));
  return 0;
}
