// Multicast objects: a team of devices, and the physical memory of each that is bound to them. They have no
// memory, and what is mapped of them is not moved by anything here; a binding keeps the memory it names.
#include <algorithm>

#include "tests/sim/cuda/vmm.h"

namespace {

using gpusim::Multicast;
using gpusim::Physical;
using gpusim::Virtual;

constexpr size_t kGranularity = size_t{2} << 20;

bool IsGranular(size_t offset, size_t bytes) {
  return bytes != 0 && offset % kGranularity == 0 && bytes % kGranularity == 0;
}

Multicast* FindLocked(CUmemGenericAllocationHandle handle) {
  const auto found = Virtual().handles.find(handle);
  return found != Virtual().handles.end() ? found->second.multicast.get() : nullptr;
}

// Hardware waits until all devices have joined; here nobody would come.
CUresult BindLocked(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle handle,
                    size_t bytes) {
  Multicast* multicast = FindLocked(object);
  const auto memory = Virtual().handles.find(handle);
  if (multicast == nullptr || memory == Virtual().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  Physical& physical = memory->second;
  if (!IsGranular(offset, bytes) || offset + bytes > multicast->properties.size || bytes > physical.bytes ||
      physical.multicast != nullptr || physical.in_host)
    return CUDA_ERROR_INVALID_VALUE;
  if (multicast->devices.size() < multicast->properties.numDevices) return CUDA_ERROR_ILLEGAL_STATE;
  const auto& devices = multicast->devices;
  if (std::find(devices.begin(), devices.end(), physical.device) == devices.end())
    return CUDA_ERROR_INVALID_DEVICE;
  if (!multicast->bindings.emplace(std::pair(physical.device, offset), Multicast::Bound{handle, bytes})
           .second)
    return CUDA_ERROR_INVALID_VALUE;
  ++physical.references;
  return CUDA_SUCCESS;
}

}  // namespace

DRIVER_API(cuMulticastGetGranularity,
           (size_t * granularity, const CUmulticastObjectProp* prop, CUmulticastGranularity_flags option),
           (granularity, prop, option)) {
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMulticastCreate, (CUmemGenericAllocationHandle * mcHandle, const CUmulticastObjectProp* prop),
           (mcHandle, prop)) {
  if (mcHandle == nullptr || prop == nullptr || prop->numDevices == 0 || prop->flags != 0 ||
      !IsGranular(0, prop->size))
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->numDevices > gpusim::DeviceCount()) return CUDA_ERROR_INVALID_DEVICE;
  Physical object;
  object.bytes = prop->size;
  object.multicast = std::make_shared<Multicast>();
  object.multicast->properties = *prop;
  *mcHandle = gpusim::NewHandle();
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  Virtual().handles[*mcHandle] = object;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMulticastAddDevice, (CUmemGenericAllocationHandle mcHandle, CUdevice dev), (mcHandle, dev)) {
  if (!gpusim::IsDevice(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  Multicast* multicast = FindLocked(mcHandle);
  if (multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto& devices = multicast->devices;
  if (devices.size() == multicast->properties.numDevices ||
      std::find(devices.begin(), devices.end(), dev) != devices.end())
    return CUDA_ERROR_INVALID_VALUE;
  devices.push_back(dev);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMulticastBindMem,
           (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle,
            size_t memOffset, size_t size, unsigned long long flags),
           (mcHandle, mcOffset, memHandle, memOffset, size, flags)) {
  if (flags != 0 || memOffset % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  return BindLocked(mcHandle, mcOffset, memHandle, size);
}

// Accepts only memory of the virtual memory API, not a pool's.
DRIVER_API(cuMulticastBindAddr,
           (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size,
            unsigned long long flags),
           (mcHandle, mcOffset, memptr, size, flags)) {
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  const gpusim::Mapping* mapping = gpusim::MappingAtLocked(memptr);
  if (flags != 0 || mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return BindLocked(mcHandle, mcOffset, mapping->handle, size);
}

DRIVER_API(cuMulticastUnbind,
           (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size),
           (mcHandle, dev, mcOffset, size)) {
  CUmemGenericAllocationHandle memory = 0;
  {
    const std::lock_guard<std::mutex> lock(Virtual().mutex);
    Multicast* multicast = FindLocked(mcHandle);
    if (multicast == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto bound = multicast->bindings.find({dev, mcOffset});
    if (bound == multicast->bindings.end() || bound->second.bytes != size) return CUDA_ERROR_INVALID_VALUE;
    memory = bound->second.memory;
    multicast->bindings.erase(bound);
  }
  return gpusim::DropReference(memory);
}
