// Watches the health of this host's GPUs through NVML, once a second, in a thread of its own: a GPU that no
// longer answers must not keep anybody waiting.
//
// Example: rank 3 launches its first kernel on GPU-6770...; the recorder says Add, and from then on takes an
// observation of that GPU a second: clock, power, temperature, what keeps the clock down, errors since the
// one before.
//
// At most a thousandth of the time is spent in NVML, which holds the driver's lock: where looks take longer
// than a millisecond, they are rarer. The fastest of some counts, since a thread that waits for a processor
// holds up nobody. Errors are asked for every kErrorsEvery looks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::observe {

class DeviceWatch {
 public:
  static constexpr uint64_t kEveryNs = 1'000'000'000;
  static constexpr uint64_t kErrorsEvery = 10;
  static constexpr size_t kMostDevices = 64;
  // Observations that nobody took; older ones are dropped.
  static constexpr size_t kMostKept = 4096;

  // `library`: NVML's file name. Nothing is loaded, and no thread runs, before the first Add.
  explicit DeviceWatch(std::string library = "libnvidia-ml.so.1");
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Watches this GPU, too. A later call for the same one does nothing.
  void Add(const std::string& uuid);
  // What was seen since the last call, by uuid. Device ordinals are not set.
  std::vector<std::pair<std::string, v1::DeviceObservation>> Take();

 private:
  struct Shared;
  static void Run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive the watch in a call that hangs
  bool running_ = false;
};

}  // namespace gpuprobe::observe
