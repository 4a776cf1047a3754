#include "tests/sim/core/copy.h"

#include <cupti.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/sim/core/knobs.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/core/objects.h"

namespace gpusim {
namespace {

// Up to this size a copy from pageable memory returns once its bytes are staged (CUDA's "API synchronization
// behavior").
constexpr uint64_t kStagedBytes = 64 << 10;

struct Place {
  bool device = false;  // device or managed memory
  bool array = false;
  int memory = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  int ordinal = 0;
};

Place PlaceOf(uint64_t address, bool array) {
  Range range;
  Place place;
  place.array = array;
  if (!FindRange(address, &range)) return place;
  place.ordinal = range.device;
  switch (range.memory) {
    case MemoryClass::kPinned:
    case MemoryClass::kRegistered:
      place.memory = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
      break;
    case MemoryClass::kManaged:
      place.memory = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
      place.device = true;
      break;
    case MemoryClass::kArray:
      place.memory = CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
      place.device = true;
      break;
    default:
      place.memory = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
      place.device = true;
  }
  return place;
}

int KindOf(const Place& source, const Place& destination) {
  if (!source.device && !destination.device) return CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
  if (!source.device)
    return destination.array ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOA : CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  if (!destination.device)
    return source.array ? CUPTI_ACTIVITY_MEMCPY_KIND_ATOH : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  if (source.array)
    return destination.array ? CUPTI_ACTIVITY_MEMCPY_KIND_ATOA : CUPTI_ACTIVITY_MEMCPY_KIND_ATOD;
  return destination.array ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOA : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
}

double RateOf(const Place& source, const Place& destination, bool peer) {
  if (peer) return kPeerBytesPerS;
  if (source.device && destination.device) return kDeviceCopyBytesPerS;
  if (!source.device && !destination.device) return kHostCopyBytesPerS;
  return GetKnobs().pcie_bytes_per_s / CurrentPace().copies.load(std::memory_order_relaxed);
}

void* At(uint64_t address) { return reinterpret_cast<void*>(address); }  // NOLINT(performance-no-int-to-ptr)

void MoveBytes(const CopyShape& shape) {
  for (size_t plane = 0; plane < shape.depth; ++plane) {
    for (size_t row = 0; row < shape.height; ++row) {
      std::memmove(At(shape.destination + plane * shape.destination_slice + row * shape.destination_pitch),
                   At(shape.source + plane * shape.source_slice + row * shape.source_pitch),
                   shape.width_bytes);
    }
  }
}

uint64_t BytesOf(const CopyShape& shape) { return uint64_t{shape.width_bytes} * shape.height * shape.depth; }

struct Ends {
  Place source;
  Place destination;
};

Work DescribeCopy(const CopyShape& shape, const Ends& ends) {
  const bool peer =
      ends.source.device && ends.destination.device && ends.source.ordinal != ends.destination.ordinal;
  Work work;
  work.reported = true;
  // Whatever its size, a copy engine takes about a microsecond to set up: four bytes are not copied in one
  // nanosecond.
  constexpr uint64_t kLeastCopyNs = 1000;
  work.duration_ns =
      std::max(kLeastCopyNs, TransferNs(BytesOf(shape), RateOf(ends.source, ends.destination, peer)));
  work.activity.kind = peer ? ActivityKind::kPeerCopy : ActivityKind::kMemcpy;
  work.activity.bytes = BytesOf(shape);
  work.activity.copy_kind = peer ? CUPTI_ACTIVITY_MEMCPY_KIND_PTOP : KindOf(ends.source, ends.destination);
  work.activity.src_memory = ends.source.memory;
  work.activity.dst_memory = ends.destination.memory;
  work.activity.src_device = static_cast<uint32_t>(ends.source.ordinal);
  work.activity.dst_device = static_cast<uint32_t>(ends.destination.ordinal);
  work.effect = [shape] { MoveBytes(shape); };
  return work;
}

// The source's bytes as they are now; the copy takes them from there.
void Stage(const CopyShape& shape, Work* work) {
  auto staged = std::make_shared<std::vector<char>>(BytesOf(shape));
  CopyShape in = shape;
  in.destination = reinterpret_cast<uint64_t>(staged->data());
  in.destination_pitch = shape.width_bytes;
  in.destination_slice = shape.width_bytes * shape.height;
  MoveBytes(in);
  CopyShape out = shape;
  out.source = in.destination;
  out.source_pitch = in.destination_pitch;
  out.source_slice = in.destination_slice;
  work->effect = [out, staged] { MoveBytes(out); };
}

bool Pageable(const Place& place) { return place.memory == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE; }

// When the calling thread goes on (CUDA's "API synchronization behavior").
struct Manners {
  bool wait_before = false;  // for earlier work of the stream, before the bytes are staged
  bool stage = false;
  bool wait_after = false;
};

Manners MannersOf(const Ends& ends, uint64_t bytes, CopyCall call) {
  Manners manners;
  const bool from_pageable = Pageable(ends.source) && ends.destination.device;
  if (call == CopyCall::kSynchronous) {
    manners.stage = from_pageable && bytes <= kStagedBytes;
    manners.wait_before = manners.stage;
    manners.wait_after = !manners.stage && !(ends.source.device && ends.destination.device);
  } else {
    manners.stage = from_pageable && bytes <= kStagedBytes;
    manners.wait_after = !manners.stage && (Pageable(ends.source) || Pageable(ends.destination));
  }
  return manners;
}

CUresult IssueWithManners(Work work, const CopyShape* shape, const Manners& manners, CUgraphNodeType type,
                          CopyCall call, CUstream handle) {
  Locked locked;
  CUstream_st* stream = nullptr;
  const CUresult found = FindStreamLocked(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  const bool captured = stream->capture != nullptr;
  if (captured && call == CopyCall::kSynchronous) return RefuseInCaptureLocked(stream);
  if (!captured && manners.wait_before) {
    for (const OpPtr& op : PendingOfStreamLocked(stream)) Schedule::Get().Wait(locked.Lock(), op);
  }
  if (!captured && manners.stage) Stage(*shape, &work);
  OpPtr op;
  const CUresult issued = IssueLocked(locked.Lock(), stream, std::move(work), type, &op);
  if (issued != CUDA_SUCCESS) return issued;
  if (manners.wait_after) Schedule::Get().Wait(locked.Lock(), op);
  return CUDA_SUCCESS;
}

void FillBytes(const FillShape& shape) {
  for (size_t row = 0; row < shape.height; ++row) {
    auto* at = static_cast<unsigned char*>(At(shape.destination + row * shape.pitch));
    if (shape.element_bytes == 1) {
      std::memset(at, static_cast<int>(shape.value), shape.width);
      continue;
    }
    for (size_t column = 0; column < shape.width; ++column) {
      std::memcpy(at + column * shape.element_bytes, &shape.value, shape.element_bytes);
    }
  }
}

}  // namespace

CUresult MakeCopyWork(const CopyShape& shape, Work* work) {
  const Ends ends{PlaceOf(shape.source, shape.source_is_array),
                  PlaceOf(shape.destination, shape.destination_is_array)};
  *work = DescribeCopy(shape, ends);
  work->activity.asynchronous = true;
  return CUDA_SUCCESS;
}

CUresult Copy(const CopyShape& shape, CopyCall call, CUstream stream) {
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  if (BytesOf(shape) == 0) return CUDA_SUCCESS;  // no record, no wait
  if (shape.destination == 0 || shape.source == 0) return CUDA_ERROR_INVALID_VALUE;
  const Ends ends{PlaceOf(shape.source, shape.source_is_array),
                  PlaceOf(shape.destination, shape.destination_is_array)};
  Work work = DescribeCopy(shape, ends);
  const Manners manners = MannersOf(ends, work.activity.bytes, call);
  // As CUPTI flags it: issued by an asynchronous call.
  work.activity.asynchronous = call == CopyCall::kAsynchronous;
  return IssueWithManners(std::move(work), &shape, manners, CU_GRAPH_NODE_TYPE_MEMCPY, call, stream);
}

CUresult CopyLine(uint64_t destination, uint64_t source, size_t bytes, CopyCall call, CUstream stream) {
  CopyShape shape;
  shape.destination = destination;
  shape.source = source;
  shape.width_bytes = bytes;
  return Copy(shape, call, stream);
}

CUresult MakeFillWork(const FillShape& shape, Work* work) {
  const Place place = PlaceOf(shape.destination, false);
  *work = Work{};
  work->reported = true;
  work->activity.kind = ActivityKind::kMemset;
  work->activity.bytes = uint64_t{shape.width} * shape.element_bytes * shape.height;
  work->activity.dst_memory = place.memory;
  work->activity.memset_value = shape.value;
  work->activity.asynchronous = true;
  work->duration_ns = TransferNs(work->activity.bytes, kMemsetBytesPerS);
  work->effect = [shape] { FillBytes(shape); };
  return CUDA_SUCCESS;
}

CUresult Fill(const FillShape& shape, CopyCall call, CUstream stream) {
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
  const Place place = PlaceOf(shape.destination, false);
  if (Pageable(place)) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  const CUresult made = MakeFillWork(shape, &work);
  if (made != CUDA_SUCCESS) return made;
  work.activity.asynchronous = call == CopyCall::kAsynchronous;
  Manners manners;
  // A fill of device memory is asynchronous even when the call is not named so.
  manners.wait_after = call == CopyCall::kSynchronous && !place.device;
  return IssueWithManners(std::move(work), nullptr, manners, CU_GRAPH_NODE_TYPE_MEMSET, call, stream);
}

}  // namespace gpusim
