// A program as the preloaded library meets it; says what happened on stdout. One of:
//   linked      calls NCCL that it is linked against
//   module FILE calls it through a module that is loaded later, with its NCCL, in a scope of its own (as
//   Python does)
//   absent      looks for NCCL in a process without it
#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>

#include "tests/injector/capture/nccl/fake_nccl.h"

namespace {

using AllReduce = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                   cudaStream_t);

#ifdef LINKED_AGAINST_NCCL
int RunLinked() {
  ncclComm_t comm = nullptr;
  const int devices[] = {0};
  const ncclResult_t made = ncclCommInitAll(&comm, 1, devices);
  fake_nccl()->fail_next("AllGather", ncclRemoteError);
  const ncclResult_t reduced = ncclAllReduce(nullptr, nullptr, 4, ncclFloat, ncclSum, comm, nullptr);
  const ncclResult_t profiled = pncclAllReduce(nullptr, nullptr, 4, ncclFloat, ncclSum, comm, nullptr);
  const ncclResult_t failed = ncclAllGather(nullptr, nullptr, 4, ncclFloat, comm, nullptr);
  std::printf("%d %d %d %d calls %d\n", made, reduced, profiled, failed, fake_nccl()->calls("AllReduce"));
  return 0;
}
#endif

int RunModule(const char* file) {
  void* module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return 1;
  const auto init = reinterpret_cast<ncclResult_t (*)(ncclComm_t*, int)>(dlsym(module, "victim_init"));
  const auto reduce =
      reinterpret_cast<ncclResult_t (*)(ncclComm_t, size_t)>(dlsym(module, "victim_all_reduce"));
  ncclComm_t comm = nullptr;
  const ncclResult_t made = init(&comm, 2);
  std::printf("%d %d\n", made, reduce(comm, 4));
  return 0;
}

// By pointers, so that this program can be linked without NCCL.
int RunAbsent() {
  const auto reduce = reinterpret_cast<AllReduce>(dlsym(RTLD_DEFAULT, "ncclAllReduce"));
  if (reduce == nullptr) {
    std::printf("no symbol\n");
    return 0;
  }
  std::printf("%d\n", reduce(nullptr, nullptr, 4, ncclFloat, ncclSum, nullptr, nullptr));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
#ifdef LINKED_AGAINST_NCCL
  if (std::strcmp(argv[1], "linked") == 0) return RunLinked();
#endif
  if (std::strcmp(argv[1], "module") == 0 && argc > 2) return RunModule(argv[2]);
  return std::strcmp(argv[1], "absent") == 0 ? RunAbsent() : 2;
}
