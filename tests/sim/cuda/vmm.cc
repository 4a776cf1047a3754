// Virtual memory management: reserved addresses, physical handles, and the mappings between them.
#include "tests/sim/cuda/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/sim/core/memory.h"

namespace gpusim {

VirtualMemory& Virtual() {
  static auto* state = new VirtualMemory;
  return *state;
}

CUmemGenericAllocationHandle NewHandle() {
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  if (Virtual().given_back.empty()) return Virtual().next_handle++;
  const CUmemGenericAllocationHandle handle = Virtual().given_back.back();
  Virtual().given_back.pop_back();
  return handle;
}

CUresult DropReference(CUmemGenericAllocationHandle handle) {
  Physical gone;
  {
    const std::lock_guard<std::mutex> lock(Virtual().mutex);
    const auto found = Virtual().handles.find(handle);
    if (found == Virtual().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references > 0) return CUDA_SUCCESS;
    gone = found->second;
    Virtual().handles.erase(found);
    if (gone.file >= 0) {
      close(gone.file);
    } else if (gone.multicast == nullptr) {
      fallocate(Virtual().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gone.offset,
                static_cast<off_t>(gone.bytes));
    }
  }
  if (gone.multicast != nullptr) {
    for (const auto& [place, bound] : gone.multicast->bindings) DropReference(bound.memory);
  } else if (!gone.imported) {
    ReleaseVmm(gone.device, gone.bytes, handle, gone.in_host);
  }
  const std::lock_guard<std::mutex> lock(Virtual().mutex);
  Virtual().given_back.push_back(handle);
  return CUDA_SUCCESS;
}

const Mapping* MappingAtLocked(CUdeviceptr address) {
  auto after = Virtual().mappings.upper_bound(address);
  if (after == Virtual().mappings.begin()) return nullptr;
  --after;
  return address < after->first + after->second.bytes ? &after->second : nullptr;
}

}  // namespace gpusim

namespace {

using gpusim::DropReference;
using gpusim::Mapping;
using gpusim::Physical;

constexpr size_t kVirtualGranularity = size_t{2} << 20;

gpusim::VirtualMemory& AllVirtual() { return gpusim::Virtual(); }

void* VirtualAt(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool GrowLocked(size_t bytes, off_t* offset) {
  gpusim::VirtualMemory& state = AllVirtual();
  if (state.file < 0) state.file = memfd_create("gpusim-vmm", MFD_CLOEXEC);
  if (state.file < 0 || ftruncate(state.file, state.file_bytes + static_cast<off_t>(bytes)) != 0)
    return false;
  *offset = state.file_bytes;
  state.file_bytes += static_cast<off_t>(bytes);
  return true;
}

// A file of its own, which tells whoever imports it where the memory is.
int FileOf(const Physical& physical) {
  char name[32];
  std::snprintf(name, sizeof name, "gpusim-vmm-%d-%d", physical.device, physical.in_host ? 1 : 0);
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(physical.bytes)) != 0) {
    close(file);
    return -1;
  }
  return file;
}

// What a descriptor is of. False: of something else.
bool PhysicalOf(int file, Physical* physical) {
  char path[64];
  char name[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct stat about {};
  int in_host = 0;
  if (readlink(path, name, sizeof name - 1) <= 0 || fstat(file, &about) != 0 ||
      std::sscanf(name, "/memfd:gpusim-vmm-%d-%d", &physical->device, &in_host) != 2)
    return false;
  physical->in_host = in_host != 0;
  physical->bytes = static_cast<size_t>(about.st_size);
  return true;
}

bool IsReservedLocked(CUdeviceptr address, size_t bytes) {
  auto after = AllVirtual().reservations.upper_bound(address);
  if (after == AllVirtual().reservations.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

}  // namespace

DRIVER_API(cuMemGetAllocationGranularity,
           (size_t * granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option),
           (granularity, prop, option)) {
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kVirtualGranularity;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAddressReserve,
           (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
           (ptr, size, alignment, addr, flags)) {
  if (ptr == nullptr || size == 0 || size % kVirtualGranularity != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Room to align by hand; what is too much is given back at once.
  const size_t align = alignment > kVirtualGranularity ? alignment : kVirtualGranularity;
  void* mapped = mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<CUdeviceptr>(mapped);
  const CUdeviceptr aligned = (start + align - 1) / align * align;
  if (aligned > start) munmap(mapped, aligned - start);
  if (start + align > aligned) munmap(VirtualAt(aligned + size), start + align - aligned);
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  AllVirtual().reservations[aligned] = size;
  *ptr = aligned;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size)) {
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  const auto found = AllVirtual().reservations.find(ptr);
  if (found == AllVirtual().reservations.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  munmap(VirtualAt(ptr), size);
  AllVirtual().reservations.erase(found);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemCreate,
           (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* prop,
            unsigned long long flags),
           (handle, size, prop, flags)) {
  if (handle == nullptr || prop == nullptr || size == 0 || size % kVirtualGranularity != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool in_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
                       prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
                       prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      (!in_host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!in_host && !gpusim::IsDevice(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  const bool shareable = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (!shareable && prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  Physical physical;
  physical.device = in_host ? 0 : prop->location.id;
  physical.in_host = in_host;
  physical.bytes = size;
  physical.properties = *prop;
  const CUmemGenericAllocationHandle id = gpusim::NewHandle();
  GPUSIM_CHECK(gpusim::AccountVmm(physical.device, size, id, in_host));
  {
    const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
    if (shareable) physical.file = FileOf(physical);
    if (shareable ? physical.file >= 0 : GrowLocked(size, &physical.offset)) {
      AllVirtual().handles[id] = physical;
      *handle = id;
      return CUDA_SUCCESS;
    }
  }
  gpusim::ReleaseVmm(physical.device, size, id, in_host);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) { return DropReference(handle); }

DRIVER_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void* addr), (handle, addr)) {
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  const Mapping* mapping = gpusim::MappingAtLocked(reinterpret_cast<CUdeviceptr>(addr));
  if (handle == nullptr || mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = mapping->handle;
  ++AllVirtual().handles[*handle].references;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemExportToShareableHandle,
           (void* shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType,
            unsigned long long flags),
           (shareableHandle, handle, handleType, flags)) {
  if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  const auto found = AllVirtual().handles.find(handle);
  if (found == AllVirtual().handles.end() || found->second.file < 0 ||
      handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const int file = fcntl(found->second.file, F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *static_cast<int*>(shareableHandle) = file;
  return CUDA_SUCCESS;
}

// A handle of its own, whatever is imported: also what this process exported.
DRIVER_API(cuMemImportFromShareableHandle,
           (CUmemGenericAllocationHandle * handle, void* osHandle, CUmemAllocationHandleType shHandleType),
           (handle, osHandle, shHandleType)) {
  if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return CUDA_ERROR_INVALID_VALUE;
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  Physical physical;
  if (!PhysicalOf(file, &physical)) return CUDA_ERROR_INVALID_VALUE;
  physical.imported = true;
  physical.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  physical.properties.location.type =
      physical.in_host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
  physical.properties.location.id = physical.in_host ? 0 : physical.device;
  physical.file = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (physical.file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = gpusim::NewHandle();
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  AllVirtual().handles[*handle] = physical;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetAllocationPropertiesFromHandle,
           (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle)) {
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  const auto found = AllVirtual().handles.find(handle);
  if (prop == nullptr || found == AllVirtual().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->second.properties;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemMap,
           (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
            unsigned long long flags),
           (ptr, size, offset, handle, flags)) {
  int device = 0;
  {
    const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
    const auto found = AllVirtual().handles.find(handle);
    if (found == AllVirtual().handles.end() || offset + size > found->second.bytes || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (!IsReservedLocked(ptr, size) || AllVirtual().mappings.count(ptr) != 0)
      return CUDA_ERROR_INVALID_VALUE;
    // No access until cuMemSetAccess, as on hardware. What is behind a multicast object, nothing here moves.
    const Physical& physical = found->second;
    const int file = physical.file >= 0 ? physical.file : AllVirtual().file;
    void* mapped = physical.multicast != nullptr
                       ? mmap(VirtualAt(ptr), size, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)
                       : mmap(VirtualAt(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
                              physical.offset + static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    ++found->second.references;
    AllVirtual().mappings[ptr] = {handle, size};
    device = found->second.device;
  }
  gpusim::NoteMapping(ptr, size, device);
  return CUDA_SUCCESS;
}

namespace {

// What is mapped there from end to end, whole mappings only; empty: it is not.
std::vector<CUdeviceptr> MappingsLocked(CUdeviceptr begin, size_t bytes) {
  std::vector<CUdeviceptr> found;
  CUdeviceptr reached = begin;
  while (reached < begin + bytes) {
    const auto mapping = AllVirtual().mappings.find(reached);
    if (mapping == AllVirtual().mappings.end()) return {};
    found.push_back(reached);
    reached += mapping->second.bytes;
  }
  return reached == begin + bytes ? found : std::vector<CUdeviceptr>{};
}

}  // namespace

// One mapping, or all of several that lie side by side.
DRIVER_API(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size)) {
  if (CUctx_st* context = gpusim::CurrentContextOrNull())
    gpusim::WaitForContext(context);  // queued work may still use it
  std::vector<CUdeviceptr> addresses;
  std::vector<CUmemGenericAllocationHandle> handles;
  {
    const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
    addresses = MappingsLocked(ptr, size);
    if (addresses.empty()) return CUDA_ERROR_INVALID_VALUE;
    const void* emptied =
        mmap(VirtualAt(ptr), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (emptied == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    for (const CUdeviceptr address : addresses) {
      handles.push_back(AllVirtual().mappings.at(address).handle);
      AllVirtual().mappings.erase(address);
    }
  }
  for (const CUdeviceptr address : addresses) gpusim::ForgetMapping(address);
  for (const CUmemGenericAllocationHandle handle : handles) DropReference(handle);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count),
           (ptr, size, desc, count)) {
  if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(AllVirtual().mutex);
  if (!IsReservedLocked(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  int protection = PROT_NONE;
  for (size_t i = 0; i < count; ++i) {
    if ((desc[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0) protection |= PROT_READ;
    if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
  }
  return mprotect(VirtualAt(ptr), size, protection) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
