// Names that the program gives: to its threads, categories of its ranges, streams and devices.
//
// Separate from the ranges because they are given before CUDA is initialised as often as not: what comes
// while the probe is not live yet waits in a table, and is told when it is. Thread: any application thread;
// TellNames on the probe's own. Allocation: none; kEarlyNames places. Failure: more early names than places,
// they are counted as LOSS_DEFINITIONS_FULL.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::injector::nvtx {

inline constexpr size_t kEarlyNames = 256;
inline constexpr size_t kEarlyNameBytes = 104;  // beyond, an early name is cut

// `tid` 0 is the calling thread.
void NameThread(uint32_t tid, std::string_view name) noexcept;

// `domain` as CreateDomain gives it; null: the default one.
void NameCategory(const void* domain, uint32_t category, std::string_view name) noexcept;

// A CUstream; one whose number is not known (cupti/stream_ids.h) stays without a name.
void NameStream(const void* stream, std::string_view name) noexcept;
void NameDevice(uint32_t ordinal, std::string_view name) noexcept;

// Tells the names that came too early. Cheap when there are none.
void TellNames() noexcept;

void ForgetNamesForTest() noexcept;

}  // namespace gpuprobe::injector::nvtx
