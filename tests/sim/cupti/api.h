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

// For the functions with and without a subscription: both act on the first subscriber alike.
CUptiResult SetKindOfFirst(CUpti_ActivityKind kind, bool enable);
// False for a kind that this release does not have.
bool HasKind(CUpti_ActivityKind kind);
// The driver is not up, or not usable.
bool NeedsDriver();
CUptiResult PushExternalId(CUpti_ExternalCorrelationKind kind, uint64_t id);
CUptiResult PopExternalId(CUpti_ExternalCorrelationKind kind, uint64_t* last_id);

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
