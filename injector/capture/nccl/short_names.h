// Numbers the few names that NCCL has for its algorithms and protocols, so that an event carries one byte.
//
// Producers may not allocate, and the names belong to NCCL. Thread: any. Allocation: none; a fixed table to
// which unknown names are added. Failure: a name beyond the table's places, or longer than kShortNameBytes,
// gets number 0: none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr size_t kShortNameBytes = 23;
inline constexpr size_t kShortNames = 64;

// 0 for null and for an empty name.
uint8_t NumberOfName(const char* name) noexcept;

// Empty for 0 and for unassigned numbers.
const char* NameOfNumber(uint8_t number) noexcept;

}  // namespace gpuprobe::injector::nccl
