// What the collector asks for at level idle (Control.capture).
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

struct CaptureOrder {
  uint64_t id = 0;
  wire::CaptureClock clock = wire::CaptureClock::kCaptureClockNone;  // none: where are you?
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t communicator = 0;  // hash
  uint32_t calls_per_step = 0;
  uint32_t limit_ms = 0;
};

}  // namespace gpuprobe::injector
