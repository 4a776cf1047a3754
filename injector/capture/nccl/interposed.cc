// The exported nccl* and pnccl* symbols: what a program calls when the library was preloaded, of functions
// that every NCCL has.
//
// They have a version that is not the default one ("name@GPUPROBE"). Calls are bound to them, because NCCL's
// names have no version and glibc then accepts the first version of all; dlsym, which wants the default one,
// passes them over (check_match in elf/dl-lookup.c). So the program finds what it would find without us, and
// nothing where it has no NCCL.
#include <nccl.h>

#include "injector/capture/nccl/wrappers.h"

namespace {

template <int kWay>
using Wrappers = gpuprobe::injector::nccl::Wrappers<kWay>;
using gpuprobe::injector::nccl::kExportedProfilingWay;
using gpuprobe::injector::nccl::kExportedWay;

}  // namespace

#define GPUPROBE_EXPORT(way, name, params, args)                                                             \
  extern "C" __attribute__((visibility("default"))) ncclResult_t gpuprobe_##name params { return way args; } \
  asm(".symver gpuprobe_" #name ", " #name "@GPUPROBE");
#define NCCL_UNEXPORTED(...)
#define NCCL_ENTRY(scope, name, params, args, facts)                      \
  GPUPROBE_EXPORT(Wrappers<kExportedWay>::name, nccl##name, params, args) \
  GPUPROBE_EXPORT(Wrappers<kExportedProfilingWay>::name, pnccl##name, params, args)
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
