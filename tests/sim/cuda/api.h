// Macros that define a driver function: the exported symbol, its callbacks' parameter structure and its
// correlation id.
//
// DRIVER_API(name, (declaration), (arguments)) { body }
//     every function that needs the driver up
// DRIVER_STREAM_API(name, suffix, (...), (...)) { body }
//     also exports the per-thread-default-stream twin (_ptsz or _ptds)
// DRIVER_LAUNCH_API(name, suffix, symbol, (...), (...)) { body }
//     the twin too, and the kernel's name for the callbacks
//
// Functions without a parameter structure in CUPTI (cuCtxSynchronize, cuProfilerStart) are written out with
// Traced().
#pragma once

#include <cuda.h>
#include <cudaProfiler.h>
#include <cupti.h>

#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"

#define GPUSIM_LIST(...) __VA_ARGS__

#define GPUSIM_DRIVER_ENTRY(name, implementation, scope, symbol, declaration, arguments)               \
  extern "C" CUresult name declaration {                                                               \
    scope;                                                                                             \
    if (!gpusim::DriverIsUp()) return CUDA_ERROR_NOT_INITIALIZED;                                      \
    const name##_params params{GPUSIM_LIST arguments};                                                 \
    return gpusim::Traced<CUresult>(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_##name, #name, \
                                    &params, symbol, [&] { return implementation arguments; });        \
  }

#define DRIVER_API(name, declaration, arguments)                                                \
  static CUresult name##_body declaration;                                                      \
  GPUSIM_DRIVER_ENTRY(name, name##_body, static_cast<void>(0), nullptr, declaration, arguments) \
  static CUresult name##_body declaration

#define DRIVER_LAUNCH_API(name, suffix, symbol, declaration, arguments)                             \
  static CUresult name##_body declaration;                                                          \
  GPUSIM_DRIVER_ENTRY(name, name##_body, static_cast<void>(0), symbol, declaration, arguments)      \
  GPUSIM_DRIVER_ENTRY(name##suffix, name##_body, const gpusim::PerThreadDefault per_thread, symbol, \
                      declaration, arguments)                                                       \
  static CUresult name##_body declaration

#define DRIVER_STREAM_API(name, suffix, declaration, arguments) \
  DRIVER_LAUNCH_API(name, suffix, nullptr, declaration, arguments)

namespace gpusim {

// Leaves the enclosing function with the error, if there is one.
#define GPUSIM_CHECK(expression)             \
  do {                                       \
    const CUresult check = (expression);     \
    if (check != CUDA_SUCCESS) return check; \
  } while (false)

inline bool IsDevice(CUdevice device) { return device >= 0 && static_cast<size_t>(device) < DeviceCount(); }

}  // namespace gpusim
