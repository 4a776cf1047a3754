// The random program's graphs and physical memory.
#include <algorithm>

#include "random_memory.h"

namespace {

constexpr size_t kGranule = 2 * kMiB;

CUmemAllocationProp PropertiesOn(int device, bool shareable = false) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {device < 0 ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                         device < 0 ? 0 : device};
  if (shareable) properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

void HoldHandle(Worker& worker, int device, CUmemGenericAllocationHandle handle) {
  worker.Hold(device, nullptr, [handle](Worker&) { CHECK(cuMemRelease(handle)); });
}

void HoldMapping(Worker& worker, int device, CUmemGenericAllocationHandle handle, size_t offset,
                 size_t bytes) {
  CUdeviceptr address = 0;
  CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
  CHECK(cuMemMap(address, bytes, offset, handle, 0));
  worker.Hold(device, nullptr, [=](Worker& holder) {
    if (holder.random.One(4)) {  // by one more reference, which is given back before or after
      CUmemGenericAllocationHandle again = 0;
      CHECK(cuMemRetainAllocationHandle(&again, Pointer(address)));
      EXPECT(again == handle);
      if (holder.random.One(2)) {
        CHECK(cuMemRelease(again));
      } else {
        HoldHandle(holder, device, again);
      }
    }
    CHECK(cuMemUnmap(address, bytes));
    CHECK(cuMemAddressFree(address, bytes));
  });
}

// The same descriptor's memory once more, in the process that has it already.
void ExportAndImport(Worker& worker, int device, CUmemGenericAllocationHandle handle, size_t bytes) {
  int file = -1;
  CUmemGenericAllocationHandle imported = 0;
  CHECK(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK(
      cuMemImportFromShareableHandle(&imported, Descriptor(file), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(file);
  if (worker.random.One(2)) HoldMapping(worker, device, imported, 0, bytes);
  if (worker.random.One(2)) {
    CHECK(cuMemRelease(imported));
  } else {
    HoldHandle(worker, device, imported);
  }
}

}  // namespace

// Mapped nowhere, once or several times, whole or in part; released before, between and after.
void MakePhysical(Worker& worker) {
  const int device =
      worker.random.One(8) ? -1 : static_cast<int>(worker.random.Below(static_cast<size_t>(worker.devices)));
  const bool shareable = device >= 0 && worker.random.One(3);
  const size_t granules = 1 + worker.random.Below(6);
  const CUmemAllocationProp properties = PropertiesOn(device, shareable);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, granules * kGranule, &properties, 0));
  for (size_t i = worker.random.Below(4); i > 0; --i) {
    const size_t first = worker.random.Below(granules);
    const size_t bytes = (1 + worker.random.Below(granules - first)) * kGranule;
    HoldMapping(worker, device, handle, device < 0 || shareable ? 0 : first * kGranule, bytes);
  }
  if (shareable) ExportAndImport(worker, device, handle, granules * kGranule);
  if (worker.random.One(2)) {
    CHECK(cuMemRelease(handle));
  } else {
    HoldHandle(worker, device, handle);
  }
}

// One range of addresses over several pieces, as expandable segments make it: unmapped at once or one by one.
void MakeSeveralPhysical(Worker& worker) {
  struct Piece {
    CUmemGenericAllocationHandle handle;
    size_t bytes;
  };
  std::vector<Piece> pieces(1 + worker.random.Below(5));
  const CUmemAllocationProp properties = PropertiesOn(worker.device);
  size_t whole = 0;
  for (Piece& piece : pieces) {
    piece.bytes = (1 + worker.random.Below(3)) * kGranule;
    CHECK(cuMemCreate(&piece.handle, piece.bytes, &properties, 0));
    whole += piece.bytes;
  }
  CUdeviceptr address = 0;
  CHECK(cuMemAddressReserve(&address, whole, 0, 0, 0));
  size_t at = 0;
  for (const Piece& piece : pieces) {
    CHECK(cuMemMap(address + at, piece.bytes, 0, piece.handle, 0));
    at += piece.bytes;
    if (worker.random.One(2)) {
      CHECK(cuMemRelease(piece.handle));
    } else {
      HoldHandle(worker, worker.device, piece.handle);
    }
  }
  worker.Hold(worker.device, nullptr, [=](Worker& holder) {
    if (holder.random.One(2)) {
      CHECK(cuMemUnmap(address, whole));
    } else {
      size_t place = 0;
      for (const Piece& piece : pieces) {
        CHECK(cuMemUnmap(address + place, piece.bytes));
        place += piece.bytes;
      }
    }
    CHECK(cuMemAddressFree(address, whole));
  });
}

void MakeMulticast(Worker& worker) {
  CUmulticastObjectProp team{};
  team.numDevices = static_cast<unsigned>(worker.devices);
  team.size = 32 * kMiB;
  CUmemGenericAllocationHandle object = 0;
  CHECK(cuMulticastCreate(&object, &team));
  for (int device = 0; device < worker.devices; ++device) CHECK(cuMulticastAddDevice(object, device));
  struct Bound {
    int device;
    size_t offset;
    size_t bytes;
  };
  std::vector<Bound> bound;
  for (size_t i = worker.random.Below(4); i > 0; --i) {
    const int device = static_cast<int>(worker.random.Below(static_cast<size_t>(worker.devices)));
    const size_t bytes = (1 + worker.random.Below(3)) * kGranule;
    const CUmemAllocationProp properties = PropertiesOn(device);
    CUmemGenericAllocationHandle memory = 0;
    CHECK(cuMemCreate(&memory, bytes, &properties, 0));
    if (worker.random.One(2)) {
      CUdeviceptr address = 0;
      CHECK(cuMemAddressReserve(&address, bytes, 0, 0, 0));
      CHECK(cuMemMap(address, bytes, 0, memory, 0));
      CHECK(cuMulticastBindAddr(object, i * 8 * kMiB, address, bytes, 0));
      CHECK(cuMemUnmap(address, bytes));
      CHECK(cuMemAddressFree(address, bytes));
    } else {
      CHECK(cuMulticastBindMem(object, i * 8 * kMiB, memory, 0, bytes, 0));
    }
    bound.push_back({device, i * 8 * kMiB, bytes});
    if (worker.random.One(2)) {
      CHECK(cuMemRelease(memory));
    } else {
      HoldHandle(worker, device, memory);
    }
  }
  if (worker.random.One(2)) HoldMapping(worker, 0, object, 0, team.size);
  worker.Hold(0, nullptr, [=](Worker& holder) {
    for (const Bound& each : bound) {
      if (holder.random.One(2)) CHECK(cuMulticastUnbind(object, each.device, each.offset, each.bytes));
    }
    CHECK(cuMemRelease(object));
  });
}

// --- graphs
// -------------------------------------------------------------------------------------------------------------

namespace {

// An executable graph and what its launches leave. One at a time of each graph, as CUDA wants it.
struct Launchable {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  bool frees_itself = false;
  std::vector<void*> left;  // addresses that outlive a launch
  std::vector<bool> there;
  cudaGraphExec_t taker = nullptr;  // another graph that releases all of them
  cudaGraph_t taker_graph = nullptr;
  int device = 0;
};

void* AddAllocation(Worker& worker, cudaGraph_t graph, cudaGraphNode_t* node) {
  void* address = nullptr;
  const std::vector<cudaGraphNode_t> after =
      *node != nullptr && worker.random.One(2) ? std::vector{*node} : std::vector<cudaGraphNode_t>{};
  if (worker.random.One(2)) {
    cudaMemAllocNodeParams params{};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location = {cudaMemLocationTypeDevice, worker.device};
    params.bytesize = worker.Bytes();
    CHECK(cudaGraphAddMemAllocNode(node, graph, after.data(), after.size(), &params));
    address = params.dptr;
  } else {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeMemAlloc;
    params.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
    params.alloc.poolProps.location = {cudaMemLocationTypeDevice, worker.device};
    params.alloc.bytesize = worker.Bytes();
    CHECK(cudaGraphAddNode(node, graph, after.data(), nullptr, after.size(), &params));
    address = params.alloc.dptr;
  }
  return address;
}

cudaGraphNode_t AddRelease(Worker& worker, cudaGraph_t graph, cudaGraphNode_t after, void* address) {
  cudaGraphNode_t node = nullptr;
  const size_t count = after != nullptr ? 1 : 0;
  if (worker.random.One(2)) {
    CHECK(cudaGraphAddMemFreeNode(&node, graph, &after, count, address));
  } else {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeMemFree;
    params.free.dptr = address;
    CHECK(cudaGraphAddNode(&node, graph, &after, nullptr, count, &params));
  }
  return node;
}

void BuildByHand(Worker& worker, Launchable& made) {
  CHECK(cudaGraphCreate(&made.graph, 0));
  cudaGraphNode_t last = nullptr;
  for (size_t i = 1 + worker.random.Below(5); i > 0; --i) {
    void* address = AddAllocation(worker, made.graph, &last);
    if (worker.random.One(2)) {
      last = AddRelease(worker, made.graph, last, address);
    } else {
      made.left.push_back(address);
    }
  }
}

void BuildByCapture(Worker& worker, Launchable& made) {
  const std::vector<cudaStream_t>& streams = worker.streams[static_cast<size_t>(worker.device)];
  cudaStream_t stream = streams.back();  // legacy ones must not wait for it
  if (worker.random.One(4)) {
    CHECK(cudaGraphCreate(&made.graph, 0));
    CHECK(cudaStreamBeginCaptureToGraph(stream, made.graph, nullptr, nullptr, 0,
                                        cudaStreamCaptureModeThreadLocal));
  } else {
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  std::vector<void*> open;
  for (size_t i = 1 + worker.random.Below(8); i > 0; --i) {
    if (!open.empty() && worker.random.One(2)) {
      const size_t which = worker.random.Below(open.size());
      CHECK(worker.random.One(2) ? int{cudaFreeAsync(open[which], stream)}
                                 : int{cuMemFreeAsync(Device(open[which]), stream)});
      open.erase(open.begin() + static_cast<ptrdiff_t>(which));
      continue;
    }
    void* address = nullptr;
    cudaMemPool_t pool = worker.pools[static_cast<size_t>(worker.device)].back();
    switch (worker.random.Below(3)) {
      case 0:
        CHECK(cudaMallocAsync(&address, worker.Bytes(), stream));
        break;
      case 1:
        CHECK(
            cuMemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(&address), worker.Bytes(), pool, stream));
        break;
      default:
        CHECK(cuMemAllocAsync(reinterpret_cast<CUdeviceptr*>(&address), worker.Bytes(), stream));
        if (worker.random.One(2)) CHECK(cudaMemsetAsync(address, 1, 64, stream));
    }
    open.push_back(address);
  }
  cudaGraph_t captured = nullptr;
  CHECK(cudaStreamEndCapture(stream, &captured));
  made.graph = captured;
  made.left = open;
}

void FreeLeft(Worker& worker, Launchable& made) {
  const bool all = std::all_of(made.there.begin(), made.there.end(), [](bool there) { return there; });
  if (made.taker != nullptr) {
    if (all) CHECK(cudaGraphLaunch(made.taker, worker.Stream()));
    made.there.assign(made.left.size(), false);
    return;
  }
  for (size_t i = 0; i < made.left.size(); ++i) {
    if (made.there[i]) FreeInAnyWay(worker, made.left[i]);
    made.there[i] = false;
  }
}

void Launch(Worker& worker, Launchable& made) {
  CHECK(cudaSetDevice(made.device));
  std::swap(worker.device, made.device);
  const bool some = std::any_of(made.there.begin(), made.there.end(), [](bool there) { return there; });
  if (some && !made.frees_itself) {
    if (worker.random.One(4)) EXPECT(cudaGraphLaunch(made.exec, worker.Stream()) != cudaSuccess);
    FreeLeft(worker, made);
  }
  CHECK(worker.random.One(2) ? int{cudaGraphLaunch(made.exec, worker.Stream())}
                             : int{cuGraphLaunch(made.exec, worker.Stream())});
  made.there.assign(made.left.size(), true);
  // Some goes by a call, the rest stays until the next launch.
  for (size_t i = 0; i < made.left.size() && made.taker == nullptr; ++i) {
    if (!worker.random.One(3)) continue;
    FreeInAnyWay(worker, made.left[i]);
    made.there[i] = false;
  }
  std::swap(worker.device, made.device);
  CHECK(cudaSetDevice(worker.device));
}

void End(Worker& worker, Launchable& made) {
  const bool before = worker.random.One(2);
  CHECK(cudaSetDevice(made.device));
  std::swap(worker.device, made.device);
  if (before) FreeLeft(worker, made);
  CHECK(cudaGraphExecDestroy(made.exec));
  if (made.graph != nullptr) CHECK(cudaGraphDestroy(made.graph));
  if (!before) FreeLeft(worker, made);
  if (made.taker != nullptr) {
    CHECK(cudaGraphExecDestroy(made.taker));
    CHECK(cudaGraphDestroy(made.taker_graph));
  }
  std::swap(worker.device, made.device);
  CHECK(cudaSetDevice(worker.device));
}

}  // namespace

// Launched now and then until it ends; each piece of what its launches leave goes by a call, by another
// graph, or with the next launch.
void MakeGraph(Worker& worker) {
  const auto made = std::make_shared<Launchable>();
  made->device = worker.device;
  if (worker.random.One(2)) {
    BuildByHand(worker, *made);
  } else {
    BuildByCapture(worker, *made);
  }
  if (worker.random.One(10)) {  // never made executable
    CHECK(cudaGraphDestroy(made->graph));
    return;
  }
  made->frees_itself = worker.random.One(3);
  CHECK(cudaGraphInstantiate(&made->exec, made->graph,
                             made->frees_itself ? cudaGraphInstantiateFlagAutoFreeOnLaunch : 0));
  made->there.assign(made->left.size(), false);
  if (!made->left.empty() && worker.random.One(3)) {
    CHECK(cudaGraphCreate(&made->taker_graph, 0));
    cudaGraphNode_t last = nullptr;
    for (void* address : made->left) last = AddRelease(worker, made->taker_graph, last, address);
    CHECK(cudaGraphInstantiate(&made->taker, made->taker_graph, 0));
  }
  if (worker.random.One(3)) {
    CHECK(cudaGraphDestroy(made->graph));
    made->graph = nullptr;
  }
  for (size_t i = worker.random.Below(4); i > 0; --i) Launch(worker, *made);
  CUcontext context = worker.Context();
  // Handed on between its launches.
  const size_t more = worker.random.Below(3);
  std::function<void(Worker&)> release = [made](Worker& holder) { End(holder, *made); };
  for (size_t i = 0; i < more; ++i) {
    release = [made, context, then = release](Worker& holder) {
      Launch(holder, *made);
      holder.Hold(made->device, context, then);
    };
  }
  worker.Hold(made->device, context, release);
}
