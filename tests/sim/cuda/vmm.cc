// Virtual memory management: reserved addresses, physical handles, and the mappings between them.
//
// All physical memory of the process is one anonymous file, so that one handle can be mapped at several
// addresses; a handle is an offset into it. A handle's memory is given back with its last reference, and a
// mapping is a reference.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/sim/core/memory.h"
#include "tests/sim/cuda/api.h"

namespace {

constexpr size_t kGranularity = size_t{2} << 20;

struct Physical {
  int device = 0;
  bool in_host = false;
  size_t bytes = 0;
  off_t offset = 0;
  int references = 1;
  CUmemAllocationProp properties{};
};

struct Mapping {
  CUmemGenericAllocationHandle handle = 0;
  size_t bytes = 0;
};

struct State {
  std::mutex mutex;
  int file = -1;
  off_t file_bytes = 0;
  CUmemGenericAllocationHandle next_handle = 1;
  std::vector<CUmemGenericAllocationHandle> given_back;  // are given out again, the last one first
  std::map<CUmemGenericAllocationHandle, Physical> handles;
  std::map<CUdeviceptr, size_t> reservations;
  std::map<CUdeviceptr, Mapping> mappings;
};

State& All() {
  static auto* state = new State;
  return *state;
}

void* At(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}  // NOLINT(performance-no-int-to-ptr)

bool GrowLocked(size_t bytes, off_t* offset) {
  State& state = All();
  if (state.file < 0) state.file = memfd_create("gpusim-vmm", MFD_CLOEXEC);
  if (state.file < 0 || ftruncate(state.file, state.file_bytes + static_cast<off_t>(bytes)) != 0)
    return false;
  *offset = state.file_bytes;
  state.file_bytes += static_cast<off_t>(bytes);
  return true;
}

CUresult DropReference(CUmemGenericAllocationHandle handle) {
  Physical gone;
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    const auto found = All().handles.find(handle);
    if (found == All().handles.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.references > 0) return CUDA_SUCCESS;
    gone = found->second;
    All().handles.erase(found);
    fallocate(All().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, gone.offset,
              static_cast<off_t>(gone.bytes));
  }
  gpusim::ReleaseVmm(gone.device, gone.bytes, handle, gone.in_host);
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().given_back.push_back(handle);
  return CUDA_SUCCESS;
}

bool IsReservedLocked(CUdeviceptr address, size_t bytes) {
  auto after = All().reservations.upper_bound(address);
  if (after == All().reservations.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

}  // namespace

DRIVER_API(cuMemGetAllocationGranularity,
           (size_t * granularity, const CUmemAllocationProp* prop, CUmemAllocationGranularity_flags option),
           (granularity, prop, option)) {
  if (granularity == nullptr || prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAddressReserve,
           (CUdeviceptr * ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags),
           (ptr, size, alignment, addr, flags)) {
  if (ptr == nullptr || size == 0 || size % kGranularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  // Room to align by hand; what is too much is given back at once.
  const size_t align = alignment > kGranularity ? alignment : kGranularity;
  void* mapped = mmap(nullptr, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<CUdeviceptr>(mapped);
  const CUdeviceptr aligned = (start + align - 1) / align * align;
  if (aligned > start) munmap(mapped, aligned - start);
  if (start + align > aligned) munmap(At(aligned + size), start + align - aligned);
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().reservations[aligned] = size;
  *ptr = aligned;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size)) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().reservations.find(ptr);
  if (found == All().reservations.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  munmap(At(ptr), size);
  All().reservations.erase(found);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemCreate,
           (CUmemGenericAllocationHandle * handle, size_t size, const CUmemAllocationProp* prop,
            unsigned long long flags),
           (handle, size, prop, flags)) {
  if (handle == nullptr || prop == nullptr || size == 0 || size % kGranularity != 0 || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  const bool in_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      (!in_host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!in_host && !gpusim::IsDevice(prop->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  Physical physical;
  CUmemGenericAllocationHandle id = 0;
  physical.device = in_host ? 0 : prop->location.id;
  physical.in_host = in_host;
  physical.bytes = size;
  physical.properties = *prop;
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    if (All().given_back.empty()) {
      id = All().next_handle++;
    } else {
      id = All().given_back.back();
      All().given_back.pop_back();
    }
  }
  GPUSIM_CHECK(gpusim::AccountVmm(physical.device, size, id, in_host));
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    if (GrowLocked(size, &physical.offset)) {
      All().handles[id] = physical;
      *handle = id;
      return CUDA_SUCCESS;
    }
  }
  gpusim::ReleaseVmm(physical.device, size, id, in_host);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

DRIVER_API(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle)) { return DropReference(handle); }

DRIVER_API(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void* addr), (handle, addr)) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  auto after = All().mappings.upper_bound(reinterpret_cast<CUdeviceptr>(addr));
  if (handle == nullptr || after == All().mappings.begin()) return CUDA_ERROR_INVALID_VALUE;
  --after;
  if (reinterpret_cast<CUdeviceptr>(addr) >= after->first + after->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *handle = after->second.handle;
  ++All().handles[*handle].references;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemGetAllocationPropertiesFromHandle,
           (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle)) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const auto found = All().handles.find(handle);
  if (prop == nullptr || found == All().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *prop = found->second.properties;
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemMap,
           (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
            unsigned long long flags),
           (ptr, size, offset, handle, flags)) {
  int device = 0;
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    const auto found = All().handles.find(handle);
    if (found == All().handles.end() || offset + size > found->second.bytes || flags != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (!IsReservedLocked(ptr, size) || All().mappings.count(ptr) != 0) return CUDA_ERROR_INVALID_VALUE;
    // No access until cuMemSetAccess, as on hardware.
    void* mapped = mmap(At(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED, All().file,
                        found->second.offset + static_cast<off_t>(offset));
    if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    ++found->second.references;
    All().mappings[ptr] = {handle, size};
    device = found->second.device;
  }
  gpusim::NoteMapping(ptr, size, device);
  return CUDA_SUCCESS;
}

DRIVER_API(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size)) {
  if (CUctx_st* context = gpusim::CurrentContextOrNull())
    gpusim::WaitForContext(context);  // queued work may still use it
  CUmemGenericAllocationHandle handle = 0;
  {
    const std::lock_guard<std::mutex> lock(All().mutex);
    const auto found = All().mappings.find(ptr);
    if (found == All().mappings.end() || found->second.bytes != size) return CUDA_ERROR_INVALID_VALUE;
    handle = found->second.handle;
    All().mappings.erase(found);
    mmap(At(ptr), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  gpusim::ForgetMapping(ptr);
  return DropReference(handle);
}

DRIVER_API(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count),
           (ptr, size, desc, count)) {
  if (desc == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard<std::mutex> lock(All().mutex);
  if (!IsReservedLocked(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  int protection = PROT_NONE;
  for (size_t i = 0; i < count; ++i) {
    if ((desc[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0) protection |= PROT_READ;
    if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) protection |= PROT_WRITE;
  }
  return mprotect(At(ptr), size, protection) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
