// NCCL functions that the program imports and the table of entry points does not have.
//
// Separate because it is about what is not seen: calls of them cannot be counted, their importers can.
// Thread: noted by whoever scans relocations, read by the batch builder. Allocation: none; kUnknownFunctions
// places. Failure: beyond them a name is dropped; of more than eight importers eight are counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuprobe::injector::nccl {

inline constexpr size_t kUnknownFunctions = 16;

// `symbol` as an object imports it. Ignores what is none of NCCL's, and what says nothing about the device's
// work (error texts, configuration, custom reductions).
void NoteUnknownFunction(const char* symbol) noexcept;

// The name in this place, empty behind the last one, and how many objects import it.
const char* UnknownFunction(size_t place, uint32_t* imports) noexcept;

void ForgetUnknownFunctionsForTest() noexcept;

}  // namespace gpuprobe::injector::nccl
