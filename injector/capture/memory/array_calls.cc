#include "injector/capture/memory/array_calls.h"

#include "injector/capture/cupti/context_devices.h"
#include "injector/capture/memory/array_bytes.h"
#include "injector/capture/memory/calls.h"

namespace gpuprobe::injector::memory_calls {

namespace {

// A sparse array has no memory of its own: cuMemCreate obtains the memory mapped into it.
template <typename Handle>
void ReportArray(ThreadState& thread, const CUpti_CallbackData& data, const Handle* handle, uint64_t bytes,
                 unsigned flags) noexcept {
  const bool empty = (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) != 0;
  const uint64_t address =
      Succeeded(data) && handle != nullptr ? reinterpret_cast<uint64_t>(*handle) : uint64_t{0};
  ReportAllocation(thread, data,
                   {wire::MemoryKind::kMemoryKindArray, address, empty ? 0 : bytes,
                    DeviceOfContext(data.context), data.context, empty ? uint8_t{kImported} : uint8_t{0}});
}
static_assert(int{cudaArraySparse} == CUDA_ARRAY3D_SPARSE &&
              int{cudaArrayDeferredMapping} == CUDA_ARRAY3D_DEFERRED_MAPPING);

// cudaMallocArray, cudaMalloc3DArray and cudaMallocMipmappedArray, which describe an element by its bits.
uint64_t BytesOfRuntimeArray(const cudaChannelFormatDesc* element, const cudaExtent& extent, unsigned flags,
                             unsigned levels) noexcept {
  if (element == nullptr) return 0;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = extent.width;
  descriptor.Height = extent.height;
  descriptor.Depth = extent.depth;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  descriptor.NumChannels = static_cast<unsigned>(element->x + element->y + element->z + element->w) / 8;
  descriptor.Flags = flags;
  return injector::ArrayBytes(descriptor, levels);
}
static_assert(cudaArrayLayered == CUDA_ARRAY3D_LAYERED);

}  // namespace

void AllocatedArray(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuArrayCreate_v2_params>(data);
  if (arguments.pAllocateArray == nullptr) return;
  ReportArray(thread, data, arguments.pHandle, ArrayBytes(*arguments.pAllocateArray), 0);
}

void AllocatedArray3D(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuArray3DCreate_v2_params>(data);
  if (arguments.pAllocateArray == nullptr) return;
  ReportArray(thread, data, arguments.pHandle, ArrayBytes(*arguments.pAllocateArray, 1),
              arguments.pAllocateArray->Flags);
}

void AllocatedMipmaps(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cuMipmappedArrayCreate_params>(data);
  if (arguments.pMipmappedArrayDesc == nullptr) return;
  ReportArray(thread, data, arguments.pHandle,
              ArrayBytes(*arguments.pMipmappedArrayDesc, arguments.numMipmapLevels),
              arguments.pMipmappedArrayDesc->Flags);
}

void AllocatedRuntimeArray(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cudaMallocArray_v3020_params>(data);
  ReportArray(thread, data, arguments.array,
              BytesOfRuntimeArray(arguments.desc, {arguments.width, arguments.height, 0}, arguments.flags, 1),
              arguments.flags);
}

void AllocatedRuntimeArray3D(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cudaMalloc3DArray_v3020_params>(data);
  ReportArray(thread, data, arguments.array,
              BytesOfRuntimeArray(arguments.desc, arguments.extent, arguments.flags, 1), arguments.flags);
}

void AllocatedRuntimeMipmaps(ThreadState& thread, const CUpti_CallbackData& data) noexcept {
  const auto& arguments = ArgumentsOf<cudaMallocMipmappedArray_v5000_params>(data);
  ReportArray(thread, data, arguments.mipmappedArray,
              BytesOfRuntimeArray(arguments.desc, arguments.extent, arguments.flags, arguments.numLevels),
              arguments.flags);
}

}  // namespace gpuprobe::injector::memory_calls
