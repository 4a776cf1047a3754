// A library that uses NCCL, built several times: bound lazily, at once and read-only, and without a PLT.
#include <dlfcn.h>
#include <nccl.h>

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): as C libraries name their functions

// A function and a datum of a later NCCL's.
ncclResult_t ncclConjure(ncclComm_t comm);
extern int ncclConjured;
// Its own, as network plugins name theirs.
int ncclIbMalloc(int bytes);
int ncclIbMalloc(int bytes) { return bytes; }
extern int ncclNIbDevs;
int ncclNIbDevs = 3;
int victim_conjure(ncclComm_t comm) {
  return ncclIbMalloc(ncclNIbDevs) + ncclConjured + static_cast<int>(ncclConjure(comm));
}

ncclResult_t victim_init(ncclComm_t* comm, int ranks) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  return ncclCommInitRank(comm, ranks, id, 0);
}
ncclResult_t victim_all_reduce(ncclComm_t comm, size_t count) {
  return ncclAllReduce(nullptr, nullptr, count, ncclFloat, ncclSum, comm, nullptr);
}
ncclResult_t victim_bcast(ncclComm_t comm, size_t count) {
  return ncclBcast(nullptr, count, ncclFloat, 0, comm, nullptr);
}

// Filled by the loader: R_X86_64_64 relocations.
using AllReduce = ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                   cudaStream_t);
__attribute__((visibility("default"))) AllReduce victim_table[] = {ncclAllReduce, pncclAllReduce};
ncclResult_t victim_table_call(ncclComm_t comm, int which) {
  return victim_table[which](nullptr, nullptr, 4, ncclFloat, ncclSum, comm, nullptr);
}

ncclResult_t victim_dlsym(void* handle, const char* name, ncclComm_t comm) {
  const auto function = reinterpret_cast<AllReduce>(dlsym(handle, name));
  return function == nullptr ? ncclSystemError
                             : function(nullptr, nullptr, 4, ncclFloat, ncclSum, comm, nullptr);
}
void* victim_lookup(void* handle, const char* name) { return dlsym(handle, name); }
// Visible to this library only, when it is loaded RTLD_LOCAL: a look-up of RTLD_DEFAULT finds it only if
// dlsym knows who asks.
int victim_marker() { return 1; }
int next_to_victim_marker() { return 2; }
// NOLINTEND(readability-identifier-naming)
}
