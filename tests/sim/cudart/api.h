// Macros that define a runtime function: see tests/sim/cuda/api.h. The runtime calls the driver's exported
// functions, so that their callbacks nest inside its own under one correlation id.
//
// RUNTIME_API(name, version, (declaration), (arguments)) { body }
//     version: the suffix of its CUPTI id
// RUNTIME_STREAM_API(name, version, suffix, suffix_version, (...), (...)) { body }
//     also exports its per-thread-default-stream twin
// RUNTIME_LAUNCH_API(name, version, suffix, suffix_version, symbol, (...), (...)) { body }
//     the twin too, and the kernel's name
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cupti.h>

#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"

#define GPUSIM_LIST(...) __VA_ARGS__

#define GPUSIM_RUNTIME_ENTRY(name, id, implementation, scope, symbol, declaration, arguments)          \
  extern "C" cudaError_t name declaration {                                                            \
    scope;                                                                                             \
    const id##_params params{GPUSIM_LIST arguments};                                                   \
    return gpusim::cudart::Remember(                                                                   \
        gpusim::Traced<cudaError_t>(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##id, #name, \
                                    &params, symbol, [&] { return implementation arguments; }));       \
  }

#define RUNTIME_API(name, version, declaration, arguments)                                               \
  static cudaError_t name##_body declaration;                                                            \
  GPUSIM_RUNTIME_ENTRY(name, name##_v##version, name##_body, static_cast<void>(0), nullptr, declaration, \
                       arguments)                                                                        \
  static cudaError_t name##_body declaration

#define RUNTIME_LAUNCH_API(name, version, suffix, suffix_version, symbol, declaration, arguments)       \
  static cudaError_t name##_body declaration;                                                           \
  GPUSIM_RUNTIME_ENTRY(name, name##_v##version, name##_body, static_cast<void>(0), symbol, declaration, \
                       arguments)                                                                       \
  GPUSIM_RUNTIME_ENTRY(name##suffix, name##suffix##_v##suffix_version, name##_body,                     \
                       const gpusim::PerThreadDefault per_thread, symbol, declaration, arguments)       \
  static cudaError_t name##_body declaration

#define RUNTIME_STREAM_API(name, version, suffix, suffix_version, declaration, arguments) \
  RUNTIME_LAUNCH_API(name, version, suffix, suffix_version, nullptr, declaration, arguments)

// A function that CUPTI has an id but no parameter structure for.
#define RUNTIME_API_WITHOUT_PARAMS(name, version)                                                           \
  static cudaError_t name##_body();                                                                         \
  extern "C" cudaError_t name() {                                                                           \
    return gpusim::cudart::Remember(gpusim::Traced<cudaError_t>(                                            \
        CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_##name##_v##version, #name, nullptr, nullptr, \
        name##_body));                                                                                      \
  }                                                                                                         \
  static cudaError_t name##_body()

// Leaves the enclosing function with the error, if there is one; takes results of both APIs.
#define GPUSIM_RETURN_IF(expression)                                  \
  do {                                                                \
    const cudaError_t check = gpusim::cudart::FromDriver(expression); \
    if (check != cudaSuccess) return check;                           \
  } while (false)

namespace gpusim::cudart {

cudaError_t Remember(cudaError_t error);  // for cudaGetLastError
cudaError_t FromDriver(CUresult result);
inline cudaError_t FromDriver(cudaError_t error) { return error; }

// The driver is up and the calling thread has a context: its device's primary one, if it had none.
cudaError_t Ready();
// The driver is up.
cudaError_t DriverReady();
int CurrentDeviceOrdinal();

// registration.cc: what nvcc's start-up code registered.
CUfunction FunctionOfEntry(const void* entry);  // or of a cudaKernel_t; null if neither
bool VariableAddress(const void* symbol, void** address, size_t* bytes);

}  // namespace gpusim::cudart
