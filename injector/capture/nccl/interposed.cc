// The exported nccl* and pnccl* symbols: what a program calls when the library was preloaded, of functions
// that every NCCL has.
#include <nccl.h>

#include "injector/capture/nccl/wrappers.h"

namespace {

template <int kWay>
using Wrappers = gpuprobe::injector::nccl::Wrappers<kWay>;
using gpuprobe::injector::nccl::kExportedProfilingWay;
using gpuprobe::injector::nccl::kExportedWay;

}  // namespace

#define NCCL_UNEXPORTED(...)
#define NCCL_ENTRY(scope, name, params, args, facts)                                  \
  extern "C" __attribute__((visibility("default"))) ncclResult_t nccl##name params {  \
    return Wrappers<kExportedWay>::name args;                                         \
  }                                                                                   \
  extern "C" __attribute__((visibility("default"))) ncclResult_t pnccl##name params { \
    return Wrappers<kExportedProfilingWay>::name args;                                \
  }
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
