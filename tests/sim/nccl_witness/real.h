// The functions of the library that is watched.
#pragma once

#include <nccl.h>

namespace gpusim::nccl {

// The function of libnccl.so.2 behind the witness; null if it has none of that name. Not by plain dlsym,
// which a tool in the process may answer with its own.
void* RealFunction(const char* name);

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(RealFunction(name));
}

}  // namespace gpusim::nccl

// Calls the real function; ncclInvalidUsage where the library has none.
#define REAL_CALL(name, ...)                                             \
  [&]() -> ncclResult_t {                                                \
    static auto* const real = gpusim::nccl::Real<decltype(name)>(#name); \
    return real != nullptr ? real(__VA_ARGS__) : ncclInvalidUsage;       \
  }()
