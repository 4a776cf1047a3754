// Device memory of other processes, by handles of 64 bytes.
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/sim/core/shared_memory.h"
#include "tests/sim/cuda/api.h"

namespace {

using gpusim::MemoryClass;
using gpusim::SharedMemory;
static_assert(sizeof(SharedMemory) <= sizeof(CUipcMemHandle));

struct Opened {
  uint64_t address = 0;
  int times = 0;
};

struct IpcHandles {
  std::mutex mutex;
  std::map<std::pair<int, int>, Opened> opened;  // by process and its file
};

IpcHandles& Handles() {
  static auto* state = new IpcHandles;
  return *state;
}

}  // namespace

DRIVER_API(cuIpcGetMemHandle, (CUipcMemHandle * pHandle, CUdeviceptr dptr), (pHandle, dptr)) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SharedMemory shared;
  GPUSIM_CHECK(gpusim::Share(MemoryClass::kDevice, dptr, &shared));
  *pHandle = {};
  std::memcpy(pHandle, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

// One that is open already is given again.
DRIVER_API(cuIpcOpenMemHandle_v2, (CUdeviceptr * pdptr, CUipcMemHandle handle, unsigned int Flags),
           (pdptr, handle, Flags)) {
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  CUctx_st* context = nullptr;
  GPUSIM_CHECK(gpusim::RequireContext(&context));
  SharedMemory shared;
  std::memcpy(static_cast<void*>(&shared), &handle, sizeof shared);
  if (shared.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard<std::mutex> lock(Handles().mutex);
  Opened& opened = Handles().opened[{shared.process, shared.file}];
  if (opened.times == 0) GPUSIM_CHECK(gpusim::Map(shared, MemoryClass::kOpened, &opened.address));
  ++opened.times;
  *pdptr = opened.address;
  return CUDA_SUCCESS;
}

DRIVER_API(cuIpcCloseMemHandle, (CUdeviceptr dptr), (dptr)) {
  const std::lock_guard<std::mutex> lock(Handles().mutex);
  for (auto it = Handles().opened.begin(); it != Handles().opened.end(); ++it) {
    if (it->second.address != dptr || it->second.times == 0) continue;
    if (--it->second.times > 0) return CUDA_SUCCESS;
    Handles().opened.erase(it);
    return gpusim::Unmap(MemoryClass::kOpened, dptr);
  }
  return CUDA_ERROR_INVALID_VALUE;
}
