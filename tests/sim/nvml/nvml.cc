// libnvidia-ml.so.1 of the simulated node: as much of NVML as a real NCCL asks for when it looks at the node,
// and PyTorch when memory runs out.
//
// The toolkit of the build machine may lack nvml.h, so the few types are written out here, as NVML's
// reference manual has them. No NVLink, no fabric, no confidential computing: what is absent is not exported,
// and NCCL takes that for an answer.
#include <cuda.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/memory.h"

namespace {

enum Result { kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };

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
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  *generation = 5;
  return kSuccess;
}

NVML_API(nvmlDeviceGetCurrPcieLinkWidth, Device device, unsigned* lanes) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  *lanes = 16;
  return kSuccess;
}

NVML_API(nvmlDeviceGetPcieLinkMaxSpeed, Device device, unsigned* speed) {
  unsigned ordinal = 0;
  if (!OrdinalOf(device, &ordinal)) return kInvalidArgument;
  *speed = 32000;
  return kSuccess;
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
    default:
      return "Unknown Error";
  }
}
