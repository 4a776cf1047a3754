// A program that runs with any NCCL and uses what the one it finds has: weak references and look-ups by name.
//
// usage: optional_functions        says which functions it finds, and what came of calling one of them
//        optional_functions moves  calls functions that NCCL 2.29 brought, one by each way; 3 if it lacks
//        them

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

int Move() {
  const Communicators both;
  if (ncclPutSignal == nullptr) return 3;
  CHECK(ncclPutSignal(nullptr, 0, ncclInt8, 1, nullptr, 0, 0, 0, 0, both.comms[0], nullptr));
  using Signal = ncclResult_t (*)(int, int, int, unsigned int, ncclComm_t, cudaStream_t);
  const auto signal = reinterpret_cast<Signal>(dlsym(RTLD_DEFAULT, "ncclSignal"));
  if (signal == nullptr) return 3;
  CHECK(signal(1, 0, 0, 0, both.comms[0], nullptr));
  both.Destroy();
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return argc > 1 && std::strcmp(argv[1], "moves") == 0 ? Move() : Ask(); }
