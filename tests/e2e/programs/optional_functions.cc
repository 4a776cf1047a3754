// A program that runs with any NCCL and uses what the one it finds has: weak references and look-ups by name.
//
// usage: optional_functions        says which functions it finds, and what came of calling one of them
//        optional_functions moves  calls the one-sided functions that NCCL 2.29 brought; 3 if it lacks them
//        optional_functions captured  likewise, in a CUDA graph that is launched three times
//        optional_functions new    calls functions that nobody knows, one by each way; 3 if it lacks them

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#pragma weak ncclAlltoAll
#pragma weak ncclCommShrink
#pragma weak ncclCommInitRankScalable
#pragma weak ncclMemAlloc
extern "C" __attribute__((weak)) ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int,
                                                            ncclWindow_t, size_t, int, int, unsigned int,
                                                            ncclComm_t, cudaStream_t);
extern "C" __attribute__((weak)) ncclResult_t ncclConjure(ncclComm_t);

namespace {

void Check(int result, int line) {
  if (result == 0) return;
  std::fprintf(stderr, "optional_functions.cc:%d: %d\n", line, result);
  std::exit(1);
}
#define CHECK(call) Check(static_cast<int>(call), __LINE__)

struct Communicators {
  Communicators() {
    CHECK(cudaSetDevice(0));
    CHECK(ncclCommInitAll(comms, 2, nullptr));
  }
  void Destroy() const {
    for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm));
  }
  ncclComm_t comms[2] = {};
};

template <typename Function>
const char* Has(Function* function) {
  return function != nullptr ? "yes" : "no";
}

int Ask() {
  void* nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  const auto ask = [nccl] {
    std::printf("weak: %s %s %s %s\n", Has(ncclAlltoAll), Has(ncclCommShrink), Has(ncclCommInitRankScalable),
                Has(ncclMemAlloc));
    for (const char* name : {"ncclAllReduce", "ncclAlltoAll", "pncclAlltoAll", "ncclCommShrink",
                             "ncclGroupSimulateEnd", "ncclCommRevoke", "ncclMemAlloc"}) {
      dlerror();
      const void* anywhere = dlsym(RTLD_DEFAULT, name);
      const char* why = dlerror();
      std::printf("%s: %s%s %s\n", name, Has(anywhere), why != nullptr ? " with a reason" : "",
                  Has(dlsym(nccl, name)));
    }
  };
  ask();
  const Communicators both;  // initialises CUDA: a probe may begin here
  ask();
  both.Destroy();
  return 0;
}

// Two that copy, a signal, and a wait.
int Move() {
  const Communicators both;
  if (ncclPutSignal == nullptr) return 3;
  constexpr size_t kCount = 1 << 18;
  void* buffer = nullptr;
  cudaStream_t stream = nullptr;
  CHECK(cudaMalloc(&buffer, kCount * sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto put = [&](size_t count) {
    CHECK(ncclPutSignal(buffer, count, ncclFloat, 1, nullptr, 0, 0, 0, 0, both.comms[0], stream));
  };
  put(kCount);
  using Signal = ncclResult_t (*)(int, int, int, unsigned int, ncclComm_t, cudaStream_t);
  const auto signal = reinterpret_cast<Signal>(dlsym(RTLD_DEFAULT, "ncclSignal"));
  if (signal == nullptr) return 3;
  CHECK(signal(1, 0, 0, 0, both.comms[0], stream));
  struct Description {
    int operations, peer, signal, context;
  } descriptions[2] = {{1, 1, 0, 0}, {1, 1, 1, 0}};
  using Wait = ncclResult_t (*)(int, Description*, ncclComm_t, cudaStream_t);
  const auto wait = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "ncclWaitSignal"));
  if (wait == nullptr) return 3;
  CHECK(wait(2, descriptions, both.comms[0], stream));
  put(kCount / 4);
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(buffer));
  both.Destroy();
  return 0;
}

// Two puts, one of them in a group, in a graph that is launched three times.
int Captured() {
  const Communicators both;
  if (ncclPutSignal == nullptr) return 3;
  constexpr size_t kCount = 1 << 16;
  void* buffer = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  CHECK(cudaMalloc(&buffer, kCount * sizeof(float)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const auto put = [&](size_t count) {
    CHECK(ncclPutSignal(buffer, count, ncclFloat, 1, nullptr, 0, 0, 0, 0, both.comms[0], stream));
  };
  put(kCount / 8);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  put(kCount);
  CHECK(cudaMemcpyAsync(buffer, buffer, 64, cudaMemcpyDeviceToDevice, stream));  // nobody's
  CHECK(ncclGroupStart());
  put(kCount / 2);
  CHECK(ncclGroupEnd());
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(exec, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(buffer));
  both.Destroy();
  return 0;
}

int New() {
  const Communicators both;
  if (ncclConjure == nullptr) return 3;
  CHECK(ncclConjure(both.comms[0]));
  const auto vanish = reinterpret_cast<ncclResult_t (*)(ncclComm_t)>(dlsym(RTLD_DEFAULT, "ncclVanish"));
  if (vanish == nullptr) return 3;
  CHECK(vanish(both.comms[0]));
  both.Destroy();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "moves") == 0) return Move();
  if (argc > 1 && std::strcmp(argv[1], "captured") == 0) return Captured();
  if (argc > 1 && std::strcmp(argv[1], "new") == 0) return New();
  return Ask();
}
