// Copies and fills.
#include "tests/sim/core/copy.h"

#include "tests/sim/core/array.h"
#include "tests/sim/cuda/api.h"

using gpusim::Copy;
using gpusim::CopyCall;
using gpusim::CopyLine;
using gpusim::Fill;

namespace {

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// One end of a 2D or 3D copy.
struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t pitch;
  size_t height;
  size_t x_bytes;
  size_t y;
  size_t z;
};

struct Corner {
  uint64_t address;
  size_t pitch;
  size_t slice;
  bool array;
};

Corner CornerOf(const End& end, size_t width_bytes, size_t copy_height) {
  uint64_t base = 0;
  size_t pitch = end.pitch != 0 ? end.pitch : width_bytes;
  size_t height = end.height != 0 ? end.height : copy_height;
  switch (end.type) {
    case CU_MEMORYTYPE_HOST:
      base = Address(end.host);
      break;
    case CU_MEMORYTYPE_ARRAY:
      base = end.array->address;
      pitch = end.array->pitch;
      height = end.array->rows;
      break;
    default:
      base = end.device != 0 ? end.device : Address(end.host);
  }
  const size_t slice = pitch * height;
  return {base + end.z * slice + end.y * pitch + end.x_bytes, pitch, slice, end.type == CU_MEMORYTYPE_ARRAY};
}

gpusim::CopyShape ShapeOf(const End& source, const End& destination, size_t width_bytes, size_t height,
                          size_t depth) {
  const Corner from = CornerOf(source, width_bytes, height);
  const Corner to = CornerOf(destination, width_bytes, height);
  gpusim::CopyShape shape;
  shape.source = from.address;
  shape.source_pitch = from.pitch;
  shape.source_slice = from.slice;
  shape.source_is_array = from.array;
  shape.destination = to.address;
  shape.destination_pitch = to.pitch;
  shape.destination_slice = to.slice;
  shape.destination_is_array = to.array;
  shape.width_bytes = width_bytes;
  shape.height = height;
  shape.depth = depth;
  return shape;
}

CUresult Copy2D(const CUDA_MEMCPY2D* copy, CopyCall call, CUstream stream) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const End source{copy->srcMemoryType, copy->srcHost,  copy->srcDevice,
                   copy->srcArray,      copy->srcPitch, 0,
                   copy->srcXInBytes,   copy->srcY,     0};
  const End destination{copy->dstMemoryType, copy->dstHost,  copy->dstDevice,
                        copy->dstArray,      copy->dstPitch, 0,
                        copy->dstXInBytes,   copy->dstY,     0};
  return Copy(ShapeOf(source, destination, copy->WidthInBytes, copy->Height, 1), call, stream);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CopyCall call, CUstream stream) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpusim::CopyShape shape;
  GPUSIM_CHECK(gpusim::ShapeOfCopy3D(*copy, &shape));
  return Copy(shape, call, stream);
}

CUresult FillLine(CUdeviceptr address, uint32_t value, unsigned element_bytes, size_t count, CopyCall call,
                  CUstream stream) {
  gpusim::FillShape shape;
  shape.destination = address;
  shape.value = value;
  shape.element_bytes = element_bytes;
  shape.width = count;
  return Fill(shape, call, stream);
}

CUresult FillBox(CUdeviceptr address, size_t pitch, uint32_t value, unsigned element_bytes, size_t width,
                 size_t height, CopyCall call, CUstream stream) {
  gpusim::FillShape shape;
  shape.destination = address;
  shape.pitch = pitch;
  shape.value = value;
  shape.element_bytes = element_bytes;
  shape.width = width;
  shape.height = height;
  return Fill(shape, call, stream);
}

}  // namespace

namespace gpusim {

CUresult ShapeOfCopy3D(const CUDA_MEMCPY3D& copy, CopyShape* shape) {
  const End source{copy.srcMemoryType, copy.srcHost,     copy.srcDevice, copy.srcArray, copy.srcPitch,
                   copy.srcHeight,     copy.srcXInBytes, copy.srcY,      copy.srcZ};
  const End destination{copy.dstMemoryType, copy.dstHost,     copy.dstDevice, copy.dstArray, copy.dstPitch,
                        copy.dstHeight,     copy.dstXInBytes, copy.dstY,      copy.dstZ};
  if ((source.type == CU_MEMORYTYPE_ARRAY && source.array == nullptr) ||
      (destination.type == CU_MEMORYTYPE_ARRAY && destination.array == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *shape = ShapeOf(source, destination, copy.WidthInBytes, copy.Height, copy.Depth);
  return CUDA_SUCCESS;
}

}  // namespace gpusim

#define SYNC CopyCall::kSynchronous
#define ASYNC CopyCall::kAsynchronous

DRIVER_STREAM_API(cuMemcpy, _ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount),
                  (dst, src, ByteCount)) {
  return CopyLine(dst, src, ByteCount, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount),
                  (dstDevice, srcHost, ByteCount)) {
  return CopyLine(dstDevice, Address(srcHost), ByteCount, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpyDtoH_v2, _ptds, (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount),
                  (dstHost, srcDevice, ByteCount)) {
  return CopyLine(Address(dstHost), srcDevice, ByteCount, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
                  (dstDevice, srcDevice, ByteCount)) {
  return CopyLine(dstDevice, srcDevice, ByteCount, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpyPeer, _ptds,
                  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                   size_t ByteCount),
                  (dstDevice, dstContext, srcDevice, srcContext, ByteCount)) {
  return CopyLine(dstDevice, srcDevice, ByteCount, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpyAsync, _ptsz,
                  (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream),
                  (dst, src, ByteCount, hStream)) {
  return CopyLine(dst, src, ByteCount, ASYNC, hStream);
}
// One record a copy: CUPTI counts several in one "based on certain heuristics" (CUpti_ActivityMemcpy6).
DRIVER_STREAM_API(cuMemcpyBatchAsync_v2, _ptsz,
                  (CUdeviceptr * dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                   CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs, CUstream hStream),
                  (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream)) {
  if (dsts == nullptr || srcs == nullptr || sizes == nullptr || attrs == nullptr || attrsIdxs == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (count == 0 || numAttrs == 0 || numAttrs > count || attrsIdxs[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) GPUSIM_CHECK(CopyLine(dsts[i], srcs[i], sizes[i], ASYNC, hStream));
  return CUDA_SUCCESS;
}
DRIVER_STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz,
                  (CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream),
                  (dstDevice, srcHost, ByteCount, hStream)) {
  return CopyLine(dstDevice, Address(srcHost), ByteCount, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz,
                  (void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
                  (dstHost, srcDevice, ByteCount, hStream)) {
  return CopyLine(Address(dstHost), srcDevice, ByteCount, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz,
                  (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
                  (dstDevice, srcDevice, ByteCount, hStream)) {
  return CopyLine(dstDevice, srcDevice, ByteCount, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemcpyPeerAsync, _ptsz,
                  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                   size_t ByteCount, CUstream hStream),
                  (dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream)) {
  return CopyLine(dstDevice, srcDevice, ByteCount, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* pCopy), (pCopy)) {
  return Copy2D(pCopy, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* pCopy), (pCopy)) {
  return Copy2D(pCopy, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* pCopy, CUstream hStream),
                  (pCopy, hStream)) {
  return Copy2D(pCopy, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* pCopy), (pCopy)) {
  return Copy3D(pCopy, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* pCopy, CUstream hStream),
                  (pCopy, hStream)) {
  return Copy3D(pCopy, ASYNC, hStream);
}

DRIVER_STREAM_API(cuMemsetD8_v2, _ptds, (CUdeviceptr dstDevice, unsigned char uc, size_t N),
                  (dstDevice, uc, N)) {
  return FillLine(dstDevice, uc, 1, N, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD16_v2, _ptds, (CUdeviceptr dstDevice, unsigned short us, size_t N),
                  (dstDevice, us, N)) {
  return FillLine(dstDevice, us, 2, N, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD32_v2, _ptds, (CUdeviceptr dstDevice, unsigned int ui, size_t N),
                  (dstDevice, ui, N)) {
  return FillLine(dstDevice, ui, 4, N, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD8Async, _ptsz,
                  (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream),
                  (dstDevice, uc, N, hStream)) {
  return FillLine(dstDevice, uc, 1, N, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemsetD16Async, _ptsz,
                  (CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream),
                  (dstDevice, us, N, hStream)) {
  return FillLine(dstDevice, us, 2, N, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemsetD32Async, _ptsz,
                  (CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream),
                  (dstDevice, ui, N, hStream)) {
  return FillLine(dstDevice, ui, 4, N, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemsetD2D8_v2, _ptds,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height),
                  (dstDevice, dstPitch, uc, Width, Height)) {
  return FillBox(dstDevice, dstPitch, uc, 1, Width, Height, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD2D16_v2, _ptds,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height),
                  (dstDevice, dstPitch, us, Width, Height)) {
  return FillBox(dstDevice, dstPitch, us, 2, Width, Height, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD2D32_v2, _ptds,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height),
                  (dstDevice, dstPitch, ui, Width, Height)) {
  return FillBox(dstDevice, dstPitch, ui, 4, Width, Height, SYNC, nullptr);
}
DRIVER_STREAM_API(cuMemsetD2D8Async, _ptsz,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width, size_t Height,
                   CUstream hStream),
                  (dstDevice, dstPitch, uc, Width, Height, hStream)) {
  return FillBox(dstDevice, dstPitch, uc, 1, Width, Height, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemsetD2D16Async, _ptsz,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width, size_t Height,
                   CUstream hStream),
                  (dstDevice, dstPitch, us, Width, Height, hStream)) {
  return FillBox(dstDevice, dstPitch, us, 2, Width, Height, ASYNC, hStream);
}
DRIVER_STREAM_API(cuMemsetD2D32Async, _ptsz,
                  (CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width, size_t Height,
                   CUstream hStream),
                  (dstDevice, dstPitch, ui, Width, Height, hStream)) {
  return FillBox(dstDevice, dstPitch, ui, 4, Width, Height, ASYNC, hStream);
}
