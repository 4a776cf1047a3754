// A CUDA program that stands in one bad situation after another; its arguments say in which. What it prints
// must not depend on the probe.
//
//   work:N            launches N kernels and waits for them
//   print:TEXT        a line on stdout, flushed
// Everything else is a row of the table at the end of the file. What a program can get into by system calls
// of its own stands in bad_situations_system.cc.

#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "samples/common/check.h"
#include "tests/e2e/programs/bad_situations.h"

namespace bad_situations {
namespace {

__global__ void EdgeKernel(int* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

void Launch(int count, cudaStream_t stream) {
  static int* const kCounter = [] {
    int* made = nullptr;
    CHECK_CUDA(cudaMalloc(&made, 1024));
    return made;
  }();
  for (int i = 0; i < count; ++i) EdgeKernel<<<1, 32, 0, stream>>>(kCounter);
  CHECK_CUDA(cudaGetLastError());
}

}  // namespace

void Work(int count) {
  Launch(count, nullptr);
  CHECK_CUDA(cudaDeviceSynchronize());
}

void Print(const char* text) {
  std::printf("%s\n", text);
  std::fflush(stdout);
}

namespace {

int in_handlers = 0;

// NCCL and frameworks call CUDA when they are torn down.
void WorkAtTheEnd(const char* who) {
  int device = -1;
  CHECK_CUDA(cudaGetDevice(&device));
  Work(in_handlers);
  std::printf("%s finds device %d\n", who, device);
  std::fflush(stdout);
}

struct StaticObject {
  int kernels = 0;
  ~StaticObject() {
    if (kernels > 0) WorkAtTheEnd("static destructor");
  }
} static_object;

void ExitHandlers(int kernels) {
  in_handlers = kernels;
  std::atexit([] { WorkAtTheEnd("handler from before CUDA"); });
  Work(kernels);
  std::atexit([] { WorkAtTheEnd("handler from after CUDA"); });
}

void StaticDestructor(int kernels) {
  in_handlers = kernels;
  Work(kernels);
  static_object.kernels = kernels;
}

void QuickExit(int kernels) {
  in_handlers = kernels;
  std::at_quick_exit([] { WorkAtTheEnd("quick handler"); });
  Work(kernels);
  std::quick_exit(3);
}

void ExitFromThread(int kernels) {
  Work(kernels);
  std::thread([] { std::exit(6); }).join();
}

void MainThreadLeaves(int kernels) {
  std::thread([kernels, main = pthread_self()] {
    pthread_join(main, nullptr);
    Work(kernels);
    Print("the last thread of the program ends it");  // the driver has threads, too
    std::exit(8);
  }).detach();
  pthread_exit(nullptr);
}

void Streams(int count) {
  std::vector<cudaStream_t> streams(static_cast<size_t>(count));
  for (cudaStream_t& stream : streams) CHECK_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (cudaStream_t stream : streams) Launch(1, stream);
  CHECK_CUDA(cudaDeviceSynchronize());
  for (cudaStream_t stream : streams) CHECK_CUDA(cudaStreamDestroy(stream));
}

void Resets(int count) {
  for (int i = 0; i < count; ++i) {
    void* memory = nullptr;
    CHECK_CUDA(cudaMalloc(&memory, 4096));
    EdgeKernel<<<1, 32>>>(static_cast<int*>(memory));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaDeviceReset());
  }
}

// All at once: each waits for the others before it launches.
void Threads(int count) {
  Work(1);
  pthread_barrier_t all_there;
  pthread_barrier_init(&all_there, nullptr, static_cast<unsigned>(count));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&all_there] {
      pthread_barrier_wait(&all_there);
      Launch(1, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_CUDA(cudaDeviceSynchronize());
}

__attribute__((noinline)) int Recurse(int depth) {
  volatile char frame[256];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : Recurse(depth - 1) + (frame[0] != 0 ? 1 : 0);
}

// Uses up most of a stack of 64 KiB, comes back, and calls CUDA from half way down.
void SmallStacks(int kernels) {
  Work(1);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 10);
  pthread_t thread{};
  const auto body = [](void* count) -> void* {
    (void)Recurse(100);
    Launch(*static_cast<int*>(count), nullptr);
    return nullptr;
  };
  if (pthread_create(&thread, &attributes, body, &kernels) != 0) std::abort();
  pthread_join(thread, nullptr);
  CHECK_CUDA(cudaDeviceSynchronize());
}

void ThrowsAcrossLaunches(int kernels) {
  for (int i = 0; i < kernels; ++i) {
    try {
      Work(1);
      throw std::string("thrown");
    } catch (const std::string& what) {
      if (what != "thrown") std::abort();
    }
  }
}

constexpr Situation kSituations[] = {
    {"work", Work},
    {"exit-handlers", ExitHandlers},
    {"static-destructor", StaticDestructor},
    {"quick-exit", QuickExit},
    {"exit-from-thread", ExitFromThread},
    {"main-thread-leaves", MainThreadLeaves},
    {"streams", Streams},
    {"resets", Resets},
    {"threads", Threads},
    {"small-stacks", SmallStacks},
    {"exceptions", ThrowsAcrossLaunches},
};

}  // namespace
}  // namespace bad_situations

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t colon = std::min(argument.find(':'), argument.size());
    const std::string name = argument.substr(0, colon);
    const std::string value = colon < argument.size() ? argument.substr(colon + 1) : "";
    bool known = name == "print";
    if (known) bad_situations::Print(value.c_str());
    for (const bad_situations::Situation& situation : bad_situations::kSituations) {
      if (name != situation.name) continue;
      situation.perform(std::atoi(value.c_str()));
      known = true;
    }
    if (!known && !bad_situations::PerformSystem(name, value)) {
      std::fprintf(stderr, "unknown situation %s\n", name.c_str());
      return 2;
    }
  }
  return 0;
}
