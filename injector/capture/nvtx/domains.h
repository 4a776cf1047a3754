// NVTX domains, registered strings and open start/end ranges: the handles that we give to the program.
//
// Bounded lock-free tables. Thread: any application thread; names are read by the probe's own. Allocation:
// none: static tables. Failure: a full table returns a valid handle that stands for "one more, without a
// name" and counts LOSS_DEFINITIONS_FULL; a range that found no place gets an id that says so and is never
// reported as unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::injector::nvtx {

inline constexpr size_t kMaxDomains = 256;
inline constexpr size_t kMaxDomainName = 120;
inline constexpr size_t kMaxStrings = 8192;
inline constexpr size_t kStringBytes = size_t{1} << 20;
inline constexpr size_t kMaxOpenRanges = 8192;

// A domain's handle is an address in a table of ours; 0 is the default domain. Domains of one name are one
// domain, as several libraries may create it.
void* CreateDomain(std::string_view name) noexcept;
void DestroyDomain(void* domain) noexcept;
// Position in the table, 0 for the default domain and for handles that are not ours.
uint16_t DomainIndex(const void* domain) noexcept;
// Name of the domain behind an event's `domain`, empty for the default one.
std::string_view DomainName(uint64_t handle) noexcept;

void* RegisterString(std::string_view text) noexcept;
// Text of a registered string; empty for handles that are not ours.
std::string_view RegisteredText(const void* handle) noexcept;

// Notes that range `id` is open; returns what the program gets for it.
uint64_t OpenRange(uint64_t id) noexcept;
// The id behind what the program got, whether it is open or not.
uint64_t IdOfOpen(uint64_t program_id) noexcept;
// The id behind what the program got, 0 if no such range is open.
uint64_t CloseRange(uint64_t program_id) noexcept;

}  // namespace gpuprobe::injector::nvtx
