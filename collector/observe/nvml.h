// The few calls of NVML, the driver's library about the state of GPUs, that tell how well a GPU is. Bound at
// run time: a machine without the driver has no such library, and a build machine has no header. Types are as
// NVML's reference manual has them; what a driver does not know is absent.
//
// A call takes the driver's lock, and may hang if a GPU no longer answers: for a thread that nobody waits
// for. On an H100 those of a look take 1 to 10 us each, but for the counters and errors
// (docs/real-hardware.md).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::observe {

class Nvml {
 public:
  using Device = struct NvmlDevice*;

  // nullptr: there is none, or it cannot be used: `error`, if given, is then kNoLibrary or NVML's own number.
  // It stays loaded for good.
  static constexpr int kNoLibrary = -1;
  static std::unique_ptr<Nvml> Load(const char* library = "libnvidia-ml.so.1", int* error = nullptr);
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // "GPU-...", or "MIG-...", of which little is known.
  std::optional<Device> Find(const std::string& uuid) const;

  std::string DriverVersion() const;            // "580.65.06"; empty: not known
  std::optional<uint32_t> CudaVersion() const;  // the newest that the driver supports: 13000 is 13.0

  // All that this process may see, in NVML's order, which is nvidia-smi's.
  std::vector<Device> Devices() const;
  std::string Name(Device device) const;  // "NVIDIA H100 80GB HBM3"; empty: not known
  // Processes that have a context there. Slow (milliseconds): not for a loop.
  std::vector<pid_t> ProcessesOn(Device device) const;

  std::optional<uint32_t> SmClockMhz(Device device) const;
  std::optional<uint32_t> MaxSmClockMhz(Device device) const;  // takes a millisecond
  std::optional<uint32_t> PowerMilliwatts(Device device) const;
  std::optional<uint32_t> PowerLimitMilliwatts(Device device) const;
  std::optional<uint32_t> TemperatureCelsius(Device device) const;
  std::optional<uint32_t> Utilisation(Device device) const;  // percent of the last second or less

  // What keeps the clock down at the moment: bits below.
  std::optional<uint64_t> ClockReasons(Device device) const;
  static constexpr uint64_t kIdle = 0x1;
  static constexpr uint64_t kApplicationClocks = 0x2;
  static constexpr uint64_t kPowerCap = 0x4;
  static constexpr uint64_t kHardwareSlowdown = 0x8;
  static constexpr uint64_t kSyncBoost = 0x10;
  static constexpr uint64_t kThermal = 0x20;
  static constexpr uint64_t kHardwareThermal = 0x40;
  static constexpr uint64_t kPowerBrake = 0x80;

  // Nanoseconds since the driver was loaded in which the power limit, or the temperature, kept the clock
  // down. The numbers of later counters differ between drivers, so only these are read.
  struct LimitCounters {
    std::optional<uint64_t> power_cap_ns;
    std::optional<uint64_t> thermal_ns;
  };
  LimitCounters Counters(Device device) const;

  struct Link {
    uint32_t generation = 0;  // 0: not known
    uint32_t lanes = 0;
  };
  Link PcieLink(Device device) const;
  Link MaxPcieLink(Device device) const;

  // Errors since the driver was loaded.
  std::optional<uint64_t> EccErrors(Device device, bool corrected) const;
  std::optional<uint32_t> PcieReplays(Device device) const;
  struct Remapping {
    bool pending = false;
    bool failed = false;
  };
  std::optional<Remapping> RemappedRows(Device device) const;

  // From now on NextXid knows the errors that the driver reports of this GPU.
  void WatchXids(Device device);
  struct Xid {
    Device device;
    uint32_t number;
  };
  // The next of those since the call before; does not wait.
  std::optional<Xid> NextXid() const;

 private:
  struct Calls;
  Nvml();
  std::unique_ptr<Calls> calls_;
  struct NvmlEventSet* events_ = nullptr;
};

}  // namespace gpuprobe::observe
