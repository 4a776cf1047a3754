// Copies and fills, handed to the driver function that the direction names.
#include "tests/sim/core/array.h"
#include "tests/sim/cudart/api.h"
#include "tests/sim/cudart/descriptors.h"

using gpusim::cudart::Device;
using gpusim::cudart::FromDriver;
using gpusim::cudart::Ready;

namespace {

cudaError_t CopyNow(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return FromDriver(cuMemcpyHtoD_v2(Device(dst), src, count));
    case cudaMemcpyDeviceToHost:
      return FromDriver(cuMemcpyDtoH_v2(dst, Device(src), count));
    case cudaMemcpyDeviceToDevice:
      return FromDriver(cuMemcpyDtoD_v2(Device(dst), Device(src), count));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return FromDriver(cuMemcpy(Device(dst), Device(src), count));
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t CopyInOrder(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return FromDriver(cuMemcpyHtoDAsync_v2(Device(dst), src, count, stream));
    case cudaMemcpyDeviceToHost:
      return FromDriver(cuMemcpyDtoHAsync_v2(dst, Device(src), count, stream));
    case cudaMemcpyDeviceToDevice:
      return FromDriver(cuMemcpyDtoDAsync_v2(Device(dst), Device(src), count, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return FromDriver(cuMemcpyAsync(Device(dst), Device(src), count, stream));
  }
  return cudaErrorInvalidMemcpyDirection;
}

CUDA_MEMCPY2D Describe2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                         size_t height) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = Device(src);
  copy.srcPitch = spitch;
  copy.dstDevice = Device(dst);
  copy.dstPitch = dpitch;
  copy.WidthInBytes = width;
  copy.Height = height;
  return copy;
}

size_t ElementBytes(cudaArray_t array) {
  const auto* known = reinterpret_cast<const CUarray_st*>(array);
  return gpusim::BytesOfElement(known->descriptor.Format, known->descriptor.NumChannels);
}

CUDA_MEMCPY3D Describe3D(const cudaMemcpy3DParms& parms) {
  CUDA_MEMCPY3D copy{};
  size_t element = 1;  // with an array, positions and the width count elements
  if (parms.srcArray != nullptr) element = ElementBytes(parms.srcArray);
  if (parms.dstArray != nullptr) element = ElementBytes(parms.dstArray);
  copy.srcMemoryType = parms.srcArray != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
  copy.srcArray = reinterpret_cast<CUarray>(parms.srcArray);
  copy.srcDevice = Device(parms.srcPtr.ptr);
  copy.srcPitch = parms.srcPtr.pitch;
  copy.srcHeight = parms.srcPtr.ysize;
  copy.srcXInBytes = parms.srcPos.x * (parms.srcArray != nullptr ? element : 1);
  copy.srcY = parms.srcPos.y;
  copy.srcZ = parms.srcPos.z;
  copy.dstMemoryType = parms.dstArray != nullptr ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_UNIFIED;
  copy.dstArray = reinterpret_cast<CUarray>(parms.dstArray);
  copy.dstDevice = Device(parms.dstPtr.ptr);
  copy.dstPitch = parms.dstPtr.pitch;
  copy.dstHeight = parms.dstPtr.ysize;
  copy.dstXInBytes = parms.dstPos.x * (parms.dstArray != nullptr ? element : 1);
  copy.dstY = parms.dstPos.y;
  copy.dstZ = parms.dstPos.z;
  copy.WidthInBytes = parms.extent.width * element;
  copy.Height = parms.extent.height;
  copy.Depth = parms.extent.depth;
  return copy;
}

cudaError_t SymbolPlace(const void* symbol, size_t count, size_t offset, char** place) {
  void* address = nullptr;
  size_t bytes = 0;
  if (!gpusim::cudart::VariableAddress(symbol, &address, &bytes)) return cudaErrorInvalidSymbol;
  if (offset > bytes || count > bytes - offset) return cudaErrorInvalidValue;
  *place = static_cast<char*>(address) + offset;
  return cudaSuccess;
}

}  // namespace

RUNTIME_STREAM_API(cudaMemcpy, 3020, _ptds, 7000,
                   (void* dst, const void* src, size_t count, enum cudaMemcpyKind kind),
                   (dst, src, count, kind)) {
  GPUSIM_RETURN_IF(Ready());
  return CopyNow(dst, src, count, kind);
}

RUNTIME_STREAM_API(cudaMemcpyAsync, 3020, _ptsz, 7000,
                   (void* dst, const void* src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
                   (dst, src, count, kind, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return CopyInOrder(dst, src, count, kind, stream);
}

RUNTIME_STREAM_API(cudaMemcpyBatchAsync, 13000, _ptsz, 13000,
                   (void* const* dsts, const void* const* srcs, const size_t* sizes, size_t count,
                    struct cudaMemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                    cudaStream_t stream),
                   (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemcpyBatchAsync_v2(
      reinterpret_cast<CUdeviceptr*>(const_cast<void**>(dsts)),
      reinterpret_cast<CUdeviceptr*>(const_cast<void**>(srcs)), const_cast<size_t*>(sizes), count,
      reinterpret_cast<CUmemcpyAttributes*>(attrs), attrsIdxs, numAttrs, stream));
}

RUNTIME_API(cudaMemcpyPeer, 4000, (void* dst, int dstDevice, const void* src, int srcDevice, size_t count),
            (dst, dstDevice, src, srcDevice, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemcpyPeer(Device(dst), nullptr, Device(src), nullptr, count));
}

RUNTIME_API(cudaMemcpyPeerAsync, 4000,
            (void* dst, int dstDevice, const void* src, int srcDevice, size_t count, cudaStream_t stream),
            (dst, dstDevice, src, srcDevice, count, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemcpyPeerAsync(Device(dst), nullptr, Device(src), nullptr, count, stream));
}

RUNTIME_STREAM_API(cudaMemcpy2D, 3020, _ptds, 7000,
                   (void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                    enum cudaMemcpyKind kind),
                   (dst, dpitch, src, spitch, width, height, kind)) {
  GPUSIM_RETURN_IF(Ready());
  if (width > dpitch || width > spitch) return cudaErrorInvalidPitchValue;
  const CUDA_MEMCPY2D copy = Describe2D(dst, dpitch, src, spitch, width, height);
  return FromDriver(cuMemcpy2DUnaligned_v2(&copy));
}

RUNTIME_STREAM_API(cudaMemcpy2DAsync, 3020, _ptsz, 7000,
                   (void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                    enum cudaMemcpyKind kind, cudaStream_t stream),
                   (dst, dpitch, src, spitch, width, height, kind, stream)) {
  GPUSIM_RETURN_IF(Ready());
  if (width > dpitch || width > spitch) return cudaErrorInvalidPitchValue;
  const CUDA_MEMCPY2D copy = Describe2D(dst, dpitch, src, spitch, width, height);
  return FromDriver(cuMemcpy2DAsync_v2(&copy, stream));
}

RUNTIME_STREAM_API(cudaMemcpy3D, 3020, _ptds, 7000, (const struct cudaMemcpy3DParms* p), (p)) {
  GPUSIM_RETURN_IF(Ready());
  if (p == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMCPY3D copy = Describe3D(*p);
  return FromDriver(cuMemcpy3D_v2(&copy));
}

RUNTIME_STREAM_API(cudaMemcpy3DAsync, 3020, _ptsz, 7000,
                   (const struct cudaMemcpy3DParms* p, cudaStream_t stream), (p, stream)) {
  GPUSIM_RETURN_IF(Ready());
  if (p == nullptr) return cudaErrorInvalidValue;
  const CUDA_MEMCPY3D copy = Describe3D(*p);
  return FromDriver(cuMemcpy3DAsync_v2(&copy, stream));
}

RUNTIME_STREAM_API(cudaMemcpyToSymbol, 3020, _ptds, 7000,
                   (const void* symbol, const void* src, size_t count, size_t offset,
                    enum cudaMemcpyKind kind),
                   (symbol, src, count, offset, kind)) {
  GPUSIM_RETURN_IF(Ready());
  char* place = nullptr;
  GPUSIM_RETURN_IF(SymbolPlace(symbol, count, offset, &place));
  return CopyNow(place, src, count, kind);
}

RUNTIME_STREAM_API(cudaMemcpyFromSymbol, 3020, _ptds, 7000,
                   (void* dst, const void* symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
                   (dst, symbol, count, offset, kind)) {
  GPUSIM_RETURN_IF(Ready());
  char* place = nullptr;
  GPUSIM_RETURN_IF(SymbolPlace(symbol, count, offset, &place));
  return CopyNow(dst, place, count, kind);
}

RUNTIME_STREAM_API(cudaMemcpyToSymbolAsync, 3020, _ptsz, 7000,
                   (const void* symbol, const void* src, size_t count, size_t offset,
                    enum cudaMemcpyKind kind, cudaStream_t stream),
                   (symbol, src, count, offset, kind, stream)) {
  GPUSIM_RETURN_IF(Ready());
  char* place = nullptr;
  GPUSIM_RETURN_IF(SymbolPlace(symbol, count, offset, &place));
  return CopyInOrder(place, src, count, kind, stream);
}

RUNTIME_STREAM_API(cudaMemcpyFromSymbolAsync, 3020, _ptsz, 7000,
                   (void* dst, const void* symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
                    cudaStream_t stream),
                   (dst, symbol, count, offset, kind, stream)) {
  GPUSIM_RETURN_IF(Ready());
  char* place = nullptr;
  GPUSIM_RETURN_IF(SymbolPlace(symbol, count, offset, &place));
  return CopyInOrder(dst, place, count, kind, stream);
}

RUNTIME_STREAM_API(cudaMemset, 3020, _ptds, 7000, (void* devPtr, int value, size_t count),
                   (devPtr, value, count)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemsetD8_v2(Device(devPtr), static_cast<unsigned char>(value), count));
}

RUNTIME_STREAM_API(cudaMemsetAsync, 3020, _ptsz, 7000,
                   (void* devPtr, int value, size_t count, cudaStream_t stream),
                   (devPtr, value, count, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemsetD8Async(Device(devPtr), static_cast<unsigned char>(value), count, stream));
}

RUNTIME_STREAM_API(cudaMemset2D, 3020, _ptds, 7000,
                   (void* devPtr, size_t pitch, int value, size_t width, size_t height),
                   (devPtr, pitch, value, width, height)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuMemsetD2D8_v2(Device(devPtr), pitch, static_cast<unsigned char>(value), width, height));
}

RUNTIME_STREAM_API(cudaMemset2DAsync, 3020, _ptsz, 7000,
                   (void* devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
                   (devPtr, pitch, value, width, height, stream)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(
      cuMemsetD2D8Async(Device(devPtr), pitch, static_cast<unsigned char>(value), width, height, stream));
}
