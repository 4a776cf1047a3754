// Devices: what they are, and how they reach each other.
#include <cstdio>
#include <cstring>

#include "tests/sim/core/memory.h"
#include "tests/sim/cuda/api.h"

namespace {

int Attribute(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return 65535;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return 48 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 227 << 10;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return 228 << 10;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return 1024;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return 64 << 10;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return 2048;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1'980'000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 2'619'000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 5120;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return static_cast<int>(gpusim::FactsOfDevice(0).multiprocessors);
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 3;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return static_cast<int>(gpusim::FactsOfDevice(0).compute_major);
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return static_cast<int>(gpusim::FactsOfDevice(0).compute_minor);
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:  // by file descriptor
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
      return 1;
    default:
      return 0;  // not supported: cooperative launches, IPC of events, textures' limits ...
  }
}

}  // namespace

DRIVER_API(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal)) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetCount, (int* count), (count)) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(gpusim::DeviceCount());
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetName, (char* name, int len, CUdevice dev), (name, len, dev)) {
  if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(len), "%s", gpusim::FactsOfDevice(static_cast<uint32_t>(dev)).name);
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev), (uuid, dev)) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const gpusim::DeviceFacts facts = gpusim::FactsOfDevice(static_cast<uint32_t>(dev));
  std::memcpy(uuid->bytes, facts.uuid, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
extern "C" CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return cuDeviceGetUuid_v2(uuid, dev); }

DRIVER_API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), (bytes, dev)) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = gpusim::FactsOfDevice(static_cast<uint32_t>(dev)).memory_bytes;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetAttribute, (int* pi, CUdevice_attribute attrib, CUdevice dev), (pi, attrib, dev)) {
  if (pi == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pi = Attribute(attrib, dev);
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceComputeCapability, (int* major, int* minor, CUdevice dev), (major, minor, dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *major = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev);
  *minor = Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev);
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetPCIBusId, (char* pciBusId, int len, CUdevice dev), (pciBusId, len, dev)) {
  if (pciBusId == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(pciBusId, static_cast<size_t>(len), "0000:%02X:00.0", static_cast<unsigned>(dev + 1));
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetByPCIBusId, (CUdevice * dev, const char* pciBusId), (dev, pciBusId)) {
  unsigned domain = 0;
  unsigned bus = 0;
  if (dev == nullptr || pciBusId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (std::sscanf(pciBusId, "%x:%x:", &domain, &bus) != 2) return CUDA_ERROR_INVALID_VALUE;
  if (domain != 0 || bus == 0 || !gpusim::IsDevice(static_cast<CUdevice>(bus) - 1))
    return CUDA_ERROR_INVALID_DEVICE;
  *dev = static_cast<CUdevice>(bus) - 1;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceCanAccessPeer, (int* canAccessPeer, CUdevice dev, CUdevice peerDev),
           (canAccessPeer, dev, peerDev)) {
  if (!gpusim::IsDevice(dev) || !gpusim::IsDevice(peerDev)) return CUDA_ERROR_INVALID_DEVICE;
  *canAccessPeer = dev != peerDev ? 1 : 0;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetP2PAttribute,
           (int* value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice),
           (value, attrib, srcDevice, dstDevice)) {
  if (!gpusim::IsDevice(srcDevice) || !gpusim::IsDevice(dstDevice) || srcDevice == dstDevice)
    return CUDA_ERROR_INVALID_DEVICE;
  *value = attrib == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? 0 : 1;
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool_out, CUdevice dev), (pool_out, dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = gpusim::DefaultPool(gpusim::PoolOfDevice(dev));
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice dev), (pool, dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = gpusim::CurrentPool(gpusim::PoolOfDevice(dev));
  return CUDA_SUCCESS;
}

DRIVER_API(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), (dev, pool)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  if (pool == nullptr || pool->imported || pool->place != gpusim::PoolOfDevice(dev))
    return CUDA_ERROR_INVALID_VALUE;
  gpusim::SetCurrentPool(pool->place, pool);
  return CUDA_SUCCESS;
}
