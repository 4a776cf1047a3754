// The GPUSIM_* environment: what the simulated node claims to be and how long its work takes.
//
// Every number that a test can choose has its place here. Read once, at first use; a knob that cannot be
// parsed ends the process with its name, because a test that runs with other numbers than it asked for proves
// nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/core/nccl_seam.h"

namespace gpusim {

struct NameRule;  // a pattern that is searched for in a kernel's demangled or a function's name, and a
                  // duration

struct Knobs {
  int devices = 1;                                          // GPUSIM_DEVICES
  std::string device_name = "Simulated GPU";                // GPUSIM_DEVICE_NAME
  uint64_t memory_bytes = uint64_t{16} << 30;               // GPUSIM_MEMORY_GIB, per device and process
  std::vector<std::shared_ptr<const NameRule>> kernels;     // GPUSIM_KERNELS, first match wins
  LinkModel link{10'000, 300e9};                            // GPUSIM_LINK
  double pcie_bytes_per_s = 25e9;                           // GPUSIM_PCIE: host to device and back
  uint64_t nccl_buffer_bytes = 0;                           // GPUSIM_NCCL_BUFFERS_MIB, of each communicator
  double slow_factor = 1.0;                                 // GPUSIM_SLOW, if it names this rank
  int64_t hang_call = -1;                                   // GPUSIM_HANG, if it names this rank
  int64_t stuck_call = -1;                                  // GPUSIM_HANG without a rank
  std::vector<std::pair<std::string, std::string>> faults;  // GPUSIM_FAULT
  std::string truth_dir;                                    // GPUSIM_TRUTH
  bool note_calls = false;                                  // GPUSIM_CALLS
  std::vector<std::shared_ptr<const NameRule>> calls;       // GPUSIM_DRIVER_CALLS, first match wins
  int rank = -1;                                            // the launcher's environment
};

// Rates that no knob sets, of an H100's order.
constexpr double kPeerBytesPerS = 200e9;
constexpr double kDeviceCopyBytesPerS = 1500e9;
constexpr double kHostCopyBytesPerS = 10e9;
constexpr double kMemsetBytesPerS = 3000e9;
constexpr uint64_t kDeviceBandwidthBytesPerS = 3'350'000'000'000;
constexpr uint64_t kDefaultKernelNs = 10'000;

const Knobs& GetKnobs();

// Factors on how long work takes that is enqueued from now on. Not knobs: a program that is its own fault
// sets them while it runs, by `gpusim_set_pace(kernels, copies, link)`, which it looks up with dlsym.
struct Pace {
  std::atomic<double> kernels{1};
  std::atomic<double> copies{1};  // between host and device
  std::atomic<double> link{1};    // collectives' bytes, not their latency
};
Pace& CurrentPace();

// "12us", "1.5ms", "3s", "100" (nanoseconds); "25GB/s", "25e9". False if the text is neither.
bool ParseDuration(const std::string& text, uint64_t* nanoseconds);
bool ParseRate(const std::string& text, double* bytes_per_s);

// Duration of one kernel by its mangled name: rule, times this rank's slowness and pace. Remembered by name.
uint64_t KernelDurationNs(const char* mangled_name);
// The same for a kernel whose work is known: `usual_ns`, unless a rule names the kernel.
uint64_t KernelDurationNs(const char* mangled_name, uint64_t usual_ns);

// How much longer a driver function takes than the node needs for it.
uint64_t DriverCallNs(const char* function);

// Nanoseconds that `bytes` take at `bytes_per_s`, rounded up, at least 1.
uint64_t TransferNs(uint64_t bytes, double bytes_per_s);

}  // namespace gpusim
