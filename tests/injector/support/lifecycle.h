// Starts and stops the probe's life as often as a test or benchmark needs; the product's goes one way.
#pragma once

#include "injector/base/lifecycle.h"

namespace gpuprobe::injector {

// Off if not live.
inline void SetLive(bool live) {
  const LifecycleState state = live ? LifecycleState::kLive : LifecycleState::kOff;
  lifecycle_page.state.store(static_cast<int32_t>(state), std::memory_order_release);
}

}  // namespace gpuprobe::injector
