// Another tool that takes CUPTI's activity buffers while we record: torch.profiler, for one.
//
// CUPTI has one pair of buffer callbacks for the process, and the last registration wins; what is enabled is
// shared, too. So the other tool's calls are led here by patched relocations (injector/nccl/patching.cc),
// which costs those calls a jump: when it registers, we bring our buffers in, switch our kinds off and step
// aside before it goes on; when it has switched off all that it enabled, and stays quiet, we come back.
// Thread: the other tool's. Allocation: none. Failure: a tool that is linked with a CUPTI of its own, or
// finds these functions by dlsym, is not seen here; its buffers are counted as LOSS_FOREIGN_BUFFER.
#pragma once

#include <cstdint>

#include "injector/cupti/function_table.h"

namespace gpuprobe::injector {

struct RivalHooks {
  // Before the other tool's buffer callbacks are registered.
  void (*registers)(void* self) noexcept = nullptr;
  void* self = nullptr;
};

// The functions that lead on to the real ones of `api`. Before anything is patched.
void WatchRivals(const CuptiApi& api, RivalHooks hooks) noexcept;

// What a slot of this name and value (null: not resolved yet) shall hold instead; null: leave it.
void* RivalReplacement(const char* symbol, const void* value) noexcept;

// True when another tool has registered and not switched off everything that it enabled.
bool RivalIsActive() noexcept;
// CLOCK_MONOTONIC of the other tool's last such call; 0: none.
uint64_t RivalLastCallNs() noexcept;

void ForgetRivalsForTest() noexcept;

}  // namespace gpuprobe::injector
