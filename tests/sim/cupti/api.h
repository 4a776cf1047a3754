// What every exported function does first and last.
#pragma once

#include <cupti.h>

#include <mutex>
#include <optional>

#include "tests/sim/cupti/session.h"

#define GPUSIM_CUPTI_EXPORT extern "C" __attribute__((visibility("default")))

namespace gpusim::cupti {

// Remembers `result` for cuptiGetLastError and passes it on.
CUptiResult Return(CUptiResult result);

// GPUSIM_FAULT=lock_over_callbacks: the lock that also is held while a tool's buffer callback runs.
class ApiLock {
 public:
  ApiLock() {
    if (TheSession().GetKnobs().lock_over_callbacks) {
      lock_.emplace(TheSession().ApiMutex());
    }
  }

 private:
  std::optional<std::scoped_lock<std::recursive_mutex>> lock_;
};

}  // namespace gpusim::cupti
