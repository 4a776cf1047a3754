// Counts missing records by reason.
//
// Every part of the probe counts, only the batch builder reads. Thread: any, including callbacks. Allocation:
// none; one relaxed atomic add.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

inline constexpr int kLossReasons =
    24;  // greater than every value of wire::LossReason; checked by a test against the schema

void CountLoss(wire::LossReason reason, uint64_t records = 1) noexcept;

// Records lost for `reason` since the process started.
uint64_t LossCount(wire::LossReason reason) noexcept;

}  // namespace gpuprobe::injector
