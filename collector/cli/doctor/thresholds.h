// Where a value of this host becomes something to act on.
#pragma once

#include <cstdint>

namespace gpuprobe::cli::doctor {

// The probe takes a sixteenth at most of what limits on address space and data leave
// (injector/probe/probe.cc): of the first of these it gets all that it takes by default, of the second not
// even its smallest share.
inline constexpr uint64_t kAmpleMemoryLeftBytes = uint64_t{9} << 30;
inline constexpr uint64_t kLeastMemoryLeftBytes = uint64_t{3584} << 20;

// Left of a control group's memory: a collector and the probes of eight ranks take less.
inline constexpr uint64_t kGroupMemoryLeftBytes = uint64_t{1} << 30;

// The probe's own descriptors begin here (injector/base/own_descriptor.h); below, they take the program's.
inline constexpr uint64_t kOwnDescriptors = 512;
inline constexpr uint64_t kFewestDescriptors = 64;
// A probe has one thread, and starts a collector, which has a few.
inline constexpr uint64_t kFewestProcessesLeft = 16;

// docs/performance.md, "A hub": what a rank that launches and computes 5,000 things a second writes.
inline constexpr double kRecordsPerSecond = 5000;
inline constexpr double kBytesPerRecord = 2.8;
// Less than this is full in minutes, whatever --keep allows.
inline constexpr uint64_t kLeastFreeBytes = uint64_t{64} << 20;
// A run has a few files for each rank and generation.
inline constexpr uint64_t kFewestFreeFiles = 1000;

// Of a Unix socket's path.
inline constexpr uint64_t kLongestSocketPath = 107;

// CUDA 11.8, the oldest that is supported, as drivers and cuptiGetVersion number it.
inline constexpr uint32_t kOldestCuda = 11080;
inline constexpr uint32_t kOldestCupti = 18;

}  // namespace gpuprobe::cli::doctor
