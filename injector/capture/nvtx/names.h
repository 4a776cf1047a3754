// Names that the program gives to its threads, range categories, streams and devices.
//
// Unlike ranges, names are often given before CUDA is initialised: those that come before the probe is live
// wait in a table, and are reported when it is. Thread: any application thread; TellNames on the probe's own.
// Allocation: none; kEarlyNames places. Failure: early names beyond these places are counted as
// LOSS_DEFINITIONS_FULL.
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

// A CUstream; one whose number is not known (capture/cupti/stream_ids.h) stays without a name.
void NameStream(const void* stream, std::string_view name) noexcept;
void NameDevice(uint32_t ordinal, std::string_view name) noexcept;

// Reports the names that came too early. Cheap when there are none.
void TellNames() noexcept;

}  // namespace gpuprobe::injector::nvtx
