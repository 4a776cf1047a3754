// Physical memory mapped into sparse arrays, tile by tile. Nothing here reads or writes such an array; what
// counts is that the memory stays as long as it is mapped. A part is unmapped as it was mapped.
#include <vector>

#include "tests/sim/cuda/vmm.h"

namespace gpusim {

namespace {

constexpr size_t kTileBytes = size_t{64} << 10;

Tile TileOf(const CUarrayMapInfo& info) {
  if (info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
    const auto& tail = info.subresource.miptail;
    return {info.resource.array, {1, tail.layer, tail.offset, tail.size}};
  }
  const auto& part = info.subresource.sparseLevel;
  return {info.resource.array,
          {0, part.level, part.layer, part.offsetX, part.offsetY, part.offsetZ, part.extentWidth,
           part.extentHeight, part.extentDepth}};
}

}  // namespace

void DropTiles(const void* array) {
  std::vector<CUmemGenericAllocationHandle> dropped;
  {
    const std::lock_guard<std::mutex> lock(Virtual().mutex);
    auto& tiles = Virtual().tiles;
    for (auto tile = tiles.lower_bound({array, {}}); tile != tiles.end() && tile->first.first == array;) {
      dropped.push_back(tile->second);
      tile = tiles.erase(tile);
    }
  }
  for (const CUmemGenericAllocationHandle handle : dropped) DropReference(handle);
}

CUresult MapTile(const CUarrayMapInfo& info) {
  if (info.resource.array == nullptr || info.flags != 0 || __builtin_popcount(info.deviceBitMask) != 1)
    return CUDA_ERROR_INVALID_VALUE;
  CUmemGenericAllocationHandle before = 0;
  {
    const std::lock_guard<std::mutex> lock(Virtual().mutex);
    auto& tiles = Virtual().tiles;
    const auto tile = tiles.find(TileOf(info));
    if (info.memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
      const auto memory = Virtual().handles.find(info.memHandle.memHandle);
      if (memory == Virtual().handles.end() || info.offset % kTileBytes != 0 ||
          info.offset >= memory->second.bytes || memory->second.in_host ||
          1u << memory->second.device != info.deviceBitMask)
        return CUDA_ERROR_INVALID_VALUE;
      ++memory->second.references;
      if (tile != tiles.end()) before = tile->second;
      tiles[TileOf(info)] = info.memHandle.memHandle;
    } else {
      if (tile == tiles.end()) return CUDA_ERROR_INVALID_VALUE;
      before = tile->second;
      tiles.erase(tile);
    }
  }
  return before == 0 ? CUDA_SUCCESS : DropReference(before);
}

}  // namespace gpusim

DRIVER_STREAM_API(cuMemMapArrayAsync, _ptsz,
                  (CUarrayMapInfo * mapInfoList, unsigned int count, CUstream hStream),
                  (mapInfoList, count, hStream)) {
  if (mapInfoList == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) GPUSIM_CHECK(gpusim::MapTile(mapInfoList[i]));
  return CUDA_SUCCESS;
}
