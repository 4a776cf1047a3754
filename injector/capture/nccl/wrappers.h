// The wrappers around NCCL's functions, generated from entry_points.inc: real function, scope, result.
//
// A template over the way in, so that each copy of NCCL has wrappers that call that copy. Thread: the
// application's. Allocation: none. Failure: without a real function behind it (a program that runs on NCCL
// always has one) the result is ncclSystemError.
#pragma once

#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/scopes.h"

namespace gpuprobe::injector::nccl {

#define GPUPROBE_UNPACK(...) __VA_ARGS__

template <int kWay>
struct Wrappers {
// `name`, `params`, `args` and `facts` are pieces of code, not expressions.
// NOLINTBEGIN(bugprone-macro-parentheses) Not noexcept: a thread that is cancelled inside NCCL unwinds
// through here.
#define NCCL_ENTRY(scope, name, params, args, facts)                     \
  static ncclResult_t name params {                                      \
    using Function = ncclResult_t(*) params;                             \
    const auto real = RealFunction<Function>(kWay, EntryPoint::k##name); \
    if (real == nullptr) return ncclSystemError;                         \
    scope##Scope around(Origin{kWay, EntryPoint::k##name});              \
    around.Begin(GPUPROBE_UNPACK facts);                                 \
    const ncclResult_t result = real args;                               \
    around.End(result);                                                  \
    return result;                                                       \
  }
#include "injector/capture/nccl/entry_points.inc"
#undef NCCL_ENTRY
  // NOLINTEND(bugprone-macro-parentheses)
};

}  // namespace gpuprobe::injector::nccl
