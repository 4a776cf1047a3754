// libnvidia-ml.so.1 of the simulated node: as much of NVML as a real NCCL asks for when it looks at the node,
// PyTorch when memory runs out, and the collector about the devices' health.
//
// The toolkit of the build machine may lack nvml.h, so the few types are written out here, as NVML's
// reference manual has them. No NVLink, no fabric, no confidential computing: what is absent is not exported,
// and NCCL takes that for an answer.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/nvml/health.h"

namespace {

enum Result {
  kSuccess = 0,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kTimeout = 10
};

// nvmlPciInfo_t, as of nvmlDeviceGetPciInfo_v3
struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};

// nvmlPciInfoExt_v1_t
struct PciInfoExt {
  unsigned version;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  unsigned base_class;
  unsigned sub_class;
  char bus_id[32];
};

// nvmlProcessInfo_v1_t
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
};

// nvmlUtilization_t
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

// nvmlFieldValue_t
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp_us;
  long long latency_us;
  int type;
  int result;
  unsigned long long value;
};
constexpr int kUnsignedLongLong = 3;
constexpr unsigned kPowerCapNs = 74;  // NVML_FI_DEV_PERF_POLICY_POWER
constexpr unsigned kThermalNs = 75;   // NVML_FI_DEV_PERF_POLICY_THERMAL

// nvmlEventData_t, and what an event set is here
struct EventData {
  char* device;
  unsigned long long type;
  unsigned long long data;
  unsigned gpu_instance;
  unsigned compute_instance;
};
struct EventSet {
  std::map<unsigned, size_t> taken;  // by device: how many of its Xids are not new any more
};
constexpr unsigned long long kXid = 8;
constexpr unsigned long long kXidAndEcc = 8 | 2;

constexpr unsigned kDeviceId = 0x233010de;  // an H100, NVIDIA's number below
constexpr unsigned kDisplayController = 3;
constexpr unsigned kThreeD = 2;

// A handle is the ordinal and one.
using Device = char*;
Device HandleOf(unsigned ordinal) { return reinterpret_cast<Device>(static_cast<uintptr_t>(ordinal) + 1); }
bool OrdinalOf(Device device, unsigned* ordinal) {
  *ordinal = static_cast<unsigned>(reinterpret_cast<uintptr_t>(device) - 1);
  return *ordinal < gpusim::DeviceCount();
}
// As cuDeviceGetPCIBusId says.
unsigned BusOf(unsigned ordinal) { return ordinal + 1; }

// "GPU-67707573-...", as the probe writes what CUDA says.
std::string UuidOf(unsigned ordinal) {
  const gpusim::DeviceFacts facts = gpusim::FactsOfDevice(ordinal);
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof facts.uuid; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", facts.uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += hex;
  }
  return text;
}

// Hands a member of the device's health to the caller.
template <typename T, typename M>
int Tell(Device device, T* out, M gpusim::Health::*member) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal) || out == nullptr) return kInvalidArgument;
  *out = static_cast<T>(gpusim::HealthOf(ordinal).*member);
  return kSuccess;
}

}  // namespace

#define NVML_API(name, ...) extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__)

NVML_API(nvmlInit_v2) { return kSuccess; }
NVML_API(nvmlShutdown) { return kSuccess; }

NVML_API(nvmlDeviceGetCount_v2, unsigned* count) {
  *count = static_cast<unsigned>(gpusim::DeviceCount());
  return kSuccess;
}

NVML_API(nvmlDeviceGetHandleByIndex, unsigned index, Device* device) {
  if (index >= gpusim::DeviceCount()) return kInvalidArgument;
  *device = HandleOf(index);
  return kSuccess;
}

NVML_API(nvmlDeviceGetHandleByPciBusId, const char* bus_id, Device* device) {
  unsigned domain = 0;
  unsigned bus = 0;
  if (bus_id == nullptr || std::sscanf(bus_id, "%x:%x:", &domain, &bus) != 2) return kInvalidArgument;
  if (bus == 0 || bus > gpusim::DeviceCount()) return kNotFound;
  *device = HandleOf(bus - 1);
  return kSuccess;
}

NVML_API(nvmlDeviceGetHandleByPciBusId_v2, const char* bus_id, Device* device) {
  return nvmlDeviceGetHandleByPciBusId(bus_id, device);
}

// Only of this process: the node counts memory by process.
NVML_API(nvmlDeviceGetComputeRunningProcesses, Device device, unsigned* count, ProcessInfo* processes) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal) || count == nullptr) return kInvalidArgument;
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
  gpusim::MemoryInfo(static_cast<int>(ordinal), &free_bytes, &total_bytes);
  const unsigned room = *count;
  *count = free_bytes < total_bytes ? 1 : 0;
  if (*count > room) return kInsufficientSize;
  if (*count > 0) *processes = {static_cast<unsigned>(getpid()), total_bytes - free_bytes};
  return kSuccess;
}

NVML_API(nvmlDeviceGetHandleByIndex_v2, unsigned index, Device* device) {
  return nvmlDeviceGetHandleByIndex(index, device);
}

// nvmlProcessInfo_v2_t
struct ProcessInfo2 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

// Those that GPUSIM_HEALTH names.
NVML_API(nvmlDeviceGetComputeRunningProcesses_v3, Device device, unsigned* count, ProcessInfo2* processes) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal) || count == nullptr) return kInvalidArgument;
  const std::vector<unsigned> pids = gpusim::HealthOf(ordinal).processes;
  const unsigned room = *count;
  *count = static_cast<unsigned>(pids.size());
  if (*count > room) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) processes[i] = {pids[i], 0, 0, 0};
  return kSuccess;
}

constexpr unsigned kLongestText = 96;

NVML_API(nvmlSystemGetDriverVersion, char* text, unsigned size) {
  return std::snprintf(text, std::min(size, kLongestText), "580.65.06") > 0 ? kSuccess : kInvalidArgument;
}

NVML_API(nvmlDeviceGetName, Device device, char* text, unsigned size) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal) || text == nullptr) return kInvalidArgument;
  std::snprintf(text, std::min(size, kLongestText), "%s", gpusim::FactsOfDevice(ordinal).name);
  return kSuccess;
}

NVML_API(nvmlSystemGetCudaDriverVersion_v2, int* version) {
  return cuDriverGetVersion(version) == CUDA_SUCCESS ? kSuccess : kInvalidArgument;
}

// No NVLink.
NVML_API(nvmlDeviceGetNvLinkRemoteDeviceType, Device, unsigned, int*) { return kNotSupported; }
NVML_API(nvmlDeviceGetNvLinkRemotePciInfo_v2, Device, unsigned, PciInfo*) { return kNotSupported; }

NVML_API(nvmlDeviceGetIndex, Device device, unsigned* index) {
  return OrdinalOf(device, index) ? kSuccess : kInvalidArgument;
}

NVML_API(nvmlDeviceGetCudaComputeCapability, Device device, int* major, int* minor) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  const gpusim::DeviceFacts facts = gpusim::FactsOfDevice(ordinal);
  *major = static_cast<int>(facts.compute_major);
  *minor = static_cast<int>(facts.compute_minor);
  return kSuccess;
}

NVML_API(nvmlDeviceGetP2PStatus, Device one, Device other, int capability, int* status) {
  static_cast<void>(capability);
  unsigned ordinal = 0;
  if (!OrdinalOf(one, &ordinal) || !OrdinalOf(other, &ordinal)) return kInvalidArgument;
  *status = 0;  // every device reaches every other one
  return kSuccess;
}

NVML_API(nvmlDeviceGetPciInfo_v3, Device device, PciInfo* info) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  *info = PciInfo{};
  info->bus = BusOf(ordinal);
  info->device_id = kDeviceId;
  std::snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "0000:%02X:00.0", info->bus);
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return kSuccess;
}

NVML_API(nvmlDeviceGetPciInfoExt, Device device, PciInfoExt* info) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  const unsigned version = info->version;
  *info = PciInfoExt{};
  info->version = version;
  info->bus = BusOf(ordinal);
  info->device_id = kDeviceId;
  info->base_class = kDisplayController;
  info->sub_class = kThreeD;
  std::snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
  return kSuccess;
}

// A link as an H100's: 16 lanes of the fifth generation, each of 32,000 Mbit/s.
NVML_API(nvmlDeviceGetCurrPcieLinkGeneration, Device device, unsigned* generation) {
  return Tell(device, generation, &gpusim::Health::pcie_generation);
}

NVML_API(nvmlDeviceGetCurrPcieLinkWidth, Device device, unsigned* lanes) {
  return Tell(device, lanes, &gpusim::Health::pcie_lanes);
}

NVML_API(nvmlDeviceGetMaxPcieLinkGeneration, Device device, unsigned* generation) {
  return Tell(device, generation, &gpusim::Health::max_pcie_generation);
}

NVML_API(nvmlDeviceGetMaxPcieLinkWidth, Device device, unsigned* lanes) {
  return Tell(device, lanes, &gpusim::Health::max_pcie_lanes);
}

NVML_API(nvmlDeviceGetPcieLinkMaxSpeed, Device device, unsigned* speed) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  *speed = 32000;
  return kSuccess;
}

NVML_API(nvmlDeviceGetHandleByUUID, const char* uuid, Device* device) {
  for (unsigned i = 0; i < gpusim::DeviceCount(); ++i) {
    if (uuid == nullptr || UuidOf(i) != uuid) continue;
    *device = HandleOf(i);
    return kSuccess;
  }
  return kNotFound;
}

// Clock 1 is that of the multiprocessors.
NVML_API(nvmlDeviceGetClockInfo, Device device, int clock, unsigned* mhz) {
  return clock == 1 ? Tell(device, mhz, &gpusim::Health::sm_clock) : kNotSupported;
}

NVML_API(nvmlDeviceGetMaxClockInfo, Device device, int clock, unsigned* mhz) {
  return clock == 1 ? Tell(device, mhz, &gpusim::Health::max_sm_clock) : kNotSupported;
}

NVML_API(nvmlDeviceGetPowerUsage, Device device, unsigned* milliwatts) {
  return Tell(device, milliwatts, &gpusim::Health::power);
}

NVML_API(nvmlDeviceGetEnforcedPowerLimit, Device device, unsigned* milliwatts) {
  return Tell(device, milliwatts, &gpusim::Health::power_limit);
}

// Sensor 0 is the GPU's.
NVML_API(nvmlDeviceGetTemperature, Device device, int sensor, unsigned* celsius) {
  return sensor == 0 ? Tell(device, celsius, &gpusim::Health::temperature) : kInvalidArgument;
}

NVML_API(nvmlDeviceGetUtilizationRates, Device device, Utilization* rates) {
  if (rates == nullptr) return kInvalidArgument;
  rates->memory = 0;
  return Tell(device, &rates->gpu, &gpusim::Health::utilisation);
}

NVML_API(nvmlDeviceGetCurrentClocksEventReasons, Device device, unsigned long long* reasons) {
  return Tell(device, reasons, &gpusim::Health::reasons);
}

NVML_API(nvmlDeviceGetFieldValues, Device device, int count, FieldValue* values) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  const gpusim::Health health = gpusim::HealthOf(ordinal);
  for (int i = 0; i < count; ++i) {
    values[i].type = kUnsignedLongLong;
    values[i].result = kSuccess;
    if (values[i].field == kPowerCapNs) {
      values[i].value = gpusim::CounterOf(health.power_share);
    } else if (values[i].field == kThermalNs) {
      values[i].value = gpusim::CounterOf(health.thermal_share);
    } else {
      values[i].result = kNotSupported;
    }
  }
  return kSuccess;
}

// Errors of kind 0 are corrected, of kind 1 not; counter 0 counts since the driver was loaded.
NVML_API(nvmlDeviceGetTotalEccErrors, Device device, int kind, int counter, unsigned long long* errors) {
  if (counter != 0) return kNotSupported;
  return Tell(device, errors, kind == 0 ? &gpusim::Health::ecc_corrected : &gpusim::Health::ecc_uncorrected);
}

NVML_API(nvmlDeviceGetRemappedRows, Device device, unsigned* corrected, unsigned* uncorrected,
         unsigned* pending, unsigned* failed) {
  *corrected = *uncorrected = 0;
  Tell(device, pending, &gpusim::Health::remap_pending);
  return Tell(device, failed, &gpusim::Health::remap_failed);
}

NVML_API(nvmlDeviceGetPcieReplayCounter, Device device, unsigned* replays) {
  return Tell(device, replays, &gpusim::Health::pcie_replays);
}

NVML_API(nvmlEventSetCreate, EventSet** set) {
  *set = new EventSet;
  return kSuccess;
}

NVML_API(nvmlEventSetFree, EventSet* set) {
  delete set;
  return kSuccess;
}

NVML_API(nvmlDeviceRegisterEvents, Device device, unsigned long long types, EventSet* set) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal) || set == nullptr) return kInvalidArgument;
  if ((types & ~kXidAndEcc) != 0) return kNotSupported;
  set->taken[ordinal] = gpusim::HealthOf(ordinal).xids.size();
  return kSuccess;
}

// Does not wait: nobody here asks it to.
NVML_API(nvmlEventSetWait_v2, EventSet* set, EventData* event, unsigned) {
  for (auto& [ordinal, taken] : set->taken) {
    const gpusim::Health health = gpusim::HealthOf(ordinal);
    if (taken >= health.xids.size()) continue;
    *event = {HandleOf(ordinal), kXid, health.xids[taken++], 0, 0};
    return kSuccess;
  }
  return kTimeout;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "Success";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotSupported:
      return "Not Supported";
    case kNotFound:
      return "Not Found";
    case kInsufficientSize:
      return "Insufficient Size";
    case kTimeout:
      return "Timeout";
    default:
      return "Unknown Error";
  }
}
