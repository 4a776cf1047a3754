// What every exported function of the driver and the runtime is wrapped in: correlation ids and the enter and
// exit callbacks.
//
// The outermost traced call of a thread takes a fresh correlation id; driver calls that the runtime makes
// inside carry the same one. With no subscriber for the function the cost is a load and a compare.
#pragma once

#include <cstdint>

#include "tests/sim/core/cupti_seam.h"

namespace gpusim {

class ApiScope {
 public:
  ApiScope(int domain, uint32_t cbid, const char* name, const void* params, void* result, const char* symbol);
  ~ApiScope();
  ApiScope(const ApiScope&) = delete;
  ApiScope& operator=(const ApiScope&) = delete;

 private:
  void Enter();
  void Log(uint64_t work_ended_ns) const;

  ApiCall call_;
  const CuptiHooks* hooks_ = nullptr;
  bool outermost_ = false;
  uint64_t began_ns_ = 0;  // of a driver call that is logged if it is slow; else 0
  uint64_t work_began_ns_ = 0;
};

// Correlation id of the thread's current API call; a fresh one outside any.
uint32_t CurrentCorrelation();

// While alive, a null stream means the thread's own default stream (the _ptsz and _ptds entry points).
class PerThreadDefault {
 public:
  PerThreadDefault();
  ~PerThreadDefault();
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;

 private:
  bool before_;
};
bool NullStreamIsPerThread();

template <typename Result, typename Body>
Result Traced(int domain, uint32_t cbid, const char* name, const void* params, const char* symbol,
              Body body) {
  Result result{};
  const ApiScope scope(domain, cbid, name, params, &result, symbol);
  result = body();
  return result;
}

}  // namespace gpusim
