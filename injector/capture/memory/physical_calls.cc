#include "injector/capture/memory/physical_calls.h"

#include <cstddef>

#include "injector/base/flat_map.h"
#include "injector/capture/memory/calls.h"

namespace gpuprobe::injector::memory_calls {

namespace {

void ReportPhysical(ThreadState& thread, PhysicalMemoryCall call, uint64_t handle, uint64_t address,
                    uint64_t bytes) noexcept {
  PhysicalMemoryEvent event{};
  event.time_ns = Stamp();
  event.handle = handle;
  event.address = address;
  event.bytes = bytes;
  event.range_id = InnermostRange(thread);
  event.began_ns = thread.memory_call_began_ns;
  event.call = static_cast<uint8_t>(call);
  Emit(thread, event);
}

void EmitBinding(ThreadState& thread, PhysicalMemoryCall call, uint64_t object, uint64_t memory,
                 uint64_t offset, int32_t device, bool by_address) noexcept {
  PhysicalMemoryEvent event{};
  event.time_ns = Stamp();
  event.handle = object;
  event.address = memory;
  event.bytes = offset;
  event.range_id = InnermostRange(thread);
  event.began_ns = thread.memory_call_began_ns;
  event.device = device;
  event.call = static_cast<uint8_t>(call);
  event.by_address = by_address ? 1 : 0;
  Emit(thread, event);
}

// Names a part of an array, with the same result when it is mapped and when it is unmapped.
uint64_t RegionOf(const CUarrayMapInfo& info) noexcept {
  const auto add = [](uint64_t name, uint64_t value) noexcept { return MixBits(name + value); };
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    const auto& tail = info.subresource.miptail;
    return add(add(add(1, tail.layer), tail.offset), tail.size);
  }
  const auto& part = info.subresource.sparseLevel;
  uint64_t name = 2;
  for (const uint64_t value : {part.level, part.layer, part.offsetX, part.offsetY, part.offsetZ,
                               part.extentWidth, part.extentHeight, part.extentDepth}) {
    name = add(name, value);
  }
  return name;
}

}  // namespace

void CreatedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemCreate_params>(data);
  const uint64_t handle = Succeeded(data) && arguments.handle != nullptr ? *arguments.handle : 0;
  if (arguments.prop == nullptr) return;
  const bool on_device = arguments.prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const auto kind = on_device ? wire::MemoryKind::kMemoryKindVmm : wire::MemoryKind::kMemoryKindPinned;
  const int32_t device = on_device ? arguments.prop->location.id : -1;
  ReportAllocation(thread, data, {kind, handle, arguments.size, device, nullptr, kPhysical});
}

void ReleasedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  if (Succeeded(data))
    ReportPhysical(thread, PhysicalMemoryCall::kReleased, ArgumentsOf<FreeArguments>(data).address, 0, 0);
}

void RetainedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemRetainAllocationHandle_params>(data);
  if (Succeeded(data) && arguments.handle != nullptr)
    ReportPhysical(thread, PhysicalMemoryCall::kRetained, *arguments.handle, 0, 0);
}

void MappedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemMap_params>(data);
  if (Succeeded(data))
    ReportPhysical(thread, PhysicalMemoryCall::kMapped, arguments.handle, arguments.ptr, arguments.size);
}

void UnmappedPhysical(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemUnmap_params>(data);
  if (Succeeded(data))
    ReportPhysical(thread, PhysicalMemoryCall::kUnmapped, 0, arguments.ptr, arguments.size);
}

// A part that is unmapped otherwise than it was mapped stays mapped, for the ledger, until its array ends.
void MappedIntoArrays(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMemMapArrayAsync_params>(data);
  if (!Succeeded(data) || arguments.mapInfoList == nullptr) return;
  for (unsigned i = 0; i < arguments.count; ++i) {
    const CUarrayMapInfo& info = arguments.mapInfoList[i];
    const auto array = reinterpret_cast<uint64_t>(info.resource.array);
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
      EmitBinding(thread, PhysicalMemoryCall::kBound, array, info.memHandle.memHandle, RegionOf(info), -1,
                  false);
    } else {
      const int device = info.deviceBitMask == 0 ? -1 : __builtin_ctz(info.deviceBitMask);
      EmitBinding(thread, PhysicalMemoryCall::kUnbound, array, 0, RegionOf(info), device, false);
    }
  }
}
static_assert(sizeof(CUarrayMapInfo::resource) == sizeof(uint64_t));

namespace {

// A handle without memory of this process. Both calls' arguments begin with the handle's destination.
void ReportHandle(ThreadState& thread, const CUpti_CallbackData& data, PhysicalMemoryCall call) noexcept {
  const auto& arguments = ArgumentsOf<cuMemImportFromShareableHandle_params>(data);
  if (Succeeded(data) && arguments.handle != nullptr) ReportPhysical(thread, call, *arguments.handle, 0, 0);
}
static_assert(offsetof(cuMemImportFromShareableHandle_params, handle) == 0);

}  // namespace

void ImportedHandle(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  ReportHandle(thread, data, PhysicalMemoryCall::kImported);
}

#if CUDA_VERSION >= 12020
static_assert(offsetof(cuMulticastCreate_params, mcHandle) == 0);

void MadeMulticastObject(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  ReportHandle(thread, data, PhysicalMemoryCall::kObjectMade);
}

void BoundMemory(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMulticastBindMem_params>(data);
  if (Succeeded(data))
    EmitBinding(thread, PhysicalMemoryCall::kBound, arguments.mcHandle, arguments.memHandle,
                arguments.mcOffset, -1, false);
}

void BoundAddress(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMulticastBindAddr_params>(data);
  if (Succeeded(data))
    EmitBinding(thread, PhysicalMemoryCall::kBound, arguments.mcHandle, arguments.memptr, arguments.mcOffset,
                -1, true);
}

void UnboundMemory(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMulticastUnbind_params>(data);
  if (Succeeded(data))
    EmitBinding(thread, PhysicalMemoryCall::kUnbound, arguments.mcHandle, 0, arguments.mcOffset,
                arguments.dev, false);
}
#endif

}  // namespace gpuprobe::injector::memory_calls
