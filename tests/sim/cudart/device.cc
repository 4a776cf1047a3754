// The runtime's own state: errors, the thread's device, its primary context; and the device functions.
#include <cudaProfiler.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/sim/core/knobs.h"
#include "tests/sim/cudart/api.h"

namespace gpusim::cudart {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local int chosen_device = 0;

struct ErrorText {
  int code;
  const char* runtime_name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
#define GPUSIM_ERROR(code, driver_name, runtime_name, text) {code, runtime_name, text},
#include "tests/sim/core/errors.inc"
#undef GPUSIM_ERROR
};

const ErrorText* FindError(cudaError_t error) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors), [error](const ErrorText& known) {
    return known.code == static_cast<int>(error);
  });
  return found != std::end(kErrors) ? found : nullptr;
}

// The runtime holds one reference to each device's primary context.
struct Primaries {
  std::mutex mutex;
  std::map<int, CUcontext> held;
};
Primaries& AllPrimaries() {
  static auto* primaries = new Primaries;
  return *primaries;
}

cudaError_t UsePrimary(int device) {
  CUcontext context = nullptr;
  {
    const std::lock_guard<std::mutex> lock(AllPrimaries().mutex);
    CUcontext& held = AllPrimaries().held[device];
    if (held == nullptr || !IsLive(held)) {
      held = nullptr;
      GPUSIM_RETURN_IF(cuDevicePrimaryCtxRetain(&held, device));
    }
    context = held;
  }
  return FromDriver(cuCtxSetCurrent(context));
}

}  // namespace

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

// The two enumerations share their numbers since CUDA 10.1.
cudaError_t FromDriver(CUresult result) { return static_cast<cudaError_t>(result); }

cudaError_t DriverReady() {
  static std::atomic<bool> up{false};
  if (up.load(std::memory_order_acquire)) return LostToFork() ? cudaErrorInitializationError : cudaSuccess;
  GPUSIM_RETURN_IF(cuInit(0));
  up.store(true, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t Ready() {
  GPUSIM_RETURN_IF(DriverReady());
  CUctx_st* context = CurrentContextOrNull();
  if (context != nullptr && IsLive(context)) return cudaSuccess;
  return UsePrimary(chosen_device);
}

int CurrentDeviceOrdinal() {
  const CUctx_st* context = CurrentContextOrNull();
  return context != nullptr ? context->device : chosen_device;
}

}  // namespace gpusim::cudart

using gpusim::cudart::DriverReady;
using gpusim::cudart::FromDriver;
using gpusim::cudart::Ready;

extern "C" cudaError_t cudaGetLastError() {
  const cudaError_t error = gpusim::cudart::last_error;
  gpusim::cudart::last_error = cudaSuccess;
  return error;
}

extern "C" cudaError_t cudaPeekAtLastError() { return gpusim::cudart::last_error; }

extern "C" const char* cudaGetErrorName(cudaError_t error) {
  const gpusim::cudart::ErrorText* found = gpusim::cudart::FindError(error);
  return found != nullptr ? found->runtime_name : "unrecognized error code";
}

extern "C" const char* cudaGetErrorString(cudaError_t error) {
  const gpusim::cudart::ErrorText* found = gpusim::cudart::FindError(error);
  return found != nullptr ? found->text : "unrecognized error code";
}

RUNTIME_API(cudaDriverGetVersion, 3020, (int* driverVersion), (driverVersion)) {
  return FromDriver(cuDriverGetVersion(driverVersion));
}

RUNTIME_API(cudaRuntimeGetVersion, 3020, (int* runtimeVersion), (runtimeVersion)) {
  if (runtimeVersion == nullptr) return cudaErrorInvalidValue;
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

RUNTIME_API(cudaGetDeviceCount, 3020, (int* count), (count)) {
  if (count == nullptr) return cudaErrorInvalidValue;
  *count = 0;
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetCount(count));
}

RUNTIME_API(cudaGetDevice, 3020, (int* device), (device)) {
  if (device == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(DriverReady());
  *device = gpusim::cudart::CurrentDeviceOrdinal();
  return cudaSuccess;
}

RUNTIME_API(cudaSetDevice, 3020, (int device), (device)) {
  GPUSIM_RETURN_IF(DriverReady());
  if (device < 0 || static_cast<size_t>(device) >= gpusim::DeviceCount()) return cudaErrorInvalidDevice;
  gpusim::cudart::chosen_device = device;
  return gpusim::cudart::UsePrimary(device);
}

RUNTIME_API(cudaInitDevice, 12000, (int device, unsigned int deviceFlags, unsigned int flags),
            (device, deviceFlags, flags)) {
  GPUSIM_RETURN_IF(DriverReady());
  if (device < 0 || static_cast<size_t>(device) >= gpusim::DeviceCount()) return cudaErrorInvalidDevice;
  CUcontext before = nullptr;
  GPUSIM_RETURN_IF(cuCtxGetCurrent(&before));
  GPUSIM_RETURN_IF(gpusim::cudart::UsePrimary(device));
  return FromDriver(cuCtxSetCurrent(before));
}

RUNTIME_API(cudaSetDeviceFlags, 3020, (unsigned int flags), (flags)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDevicePrimaryCtxSetFlags_v2(gpusim::cudart::CurrentDeviceOrdinal(), flags));
}

RUNTIME_API(cudaGetDeviceFlags, 7000, (unsigned int* flags), (flags)) {
  GPUSIM_RETURN_IF(DriverReady());
  int active = 0;
  return FromDriver(cuDevicePrimaryCtxGetState(gpusim::cudart::CurrentDeviceOrdinal(), flags, &active));
}

RUNTIME_API_WITHOUT_PARAMS(cudaDeviceSynchronize, 3020) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuCtxSynchronize_v2(nullptr));
}

RUNTIME_API_WITHOUT_PARAMS(cudaDeviceReset, 3020) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDevicePrimaryCtxReset_v2(gpusim::cudart::CurrentDeviceOrdinal()));
}

RUNTIME_API(cudaDeviceGetAttribute, 5000, (int* value, enum cudaDeviceAttr attr, int device),
            (value, attr, device)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attr), device));
}

RUNTIME_API(cudaDeviceGetPCIBusId, 4010, (char* pciBusId, int len, int device), (pciBusId, len, device)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetPCIBusId(pciBusId, len, device));
}

RUNTIME_API(cudaDeviceGetByPCIBusId, 4010, (int* device, const char* pciBusId), (device, pciBusId)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetByPCIBusId(device, pciBusId));
}

RUNTIME_API(cudaDeviceGetStreamPriorityRange, 5050, (int* leastPriority, int* greatestPriority),
            (leastPriority, greatestPriority)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
}

RUNTIME_API(cudaDeviceGetLimit, 3020, (size_t * pValue, enum cudaLimit limit), (pValue, limit)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuCtxGetLimit(pValue, static_cast<CUlimit>(limit)));
}

RUNTIME_API(cudaDeviceSetLimit, 3020, (enum cudaLimit limit, size_t value), (limit, value)) {
  GPUSIM_RETURN_IF(Ready());
  return FromDriver(cuCtxSetLimit(static_cast<CUlimit>(limit), value));
}

RUNTIME_API(cudaDeviceCanAccessPeer, 4000, (int* canAccessPeer, int device, int peerDevice),
            (canAccessPeer, device, peerDevice)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

RUNTIME_API(cudaDeviceGetP2PAttribute, 8000,
            (int* value, enum cudaDeviceP2PAttr attr, int srcDevice, int dstDevice),
            (value, attr, srcDevice, dstDevice)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(
      cuDeviceGetP2PAttribute(value, static_cast<CUdevice_P2PAttribute>(attr), srcDevice, dstDevice));
}

RUNTIME_API(cudaDeviceEnablePeerAccess, 4000, (int peerDevice, unsigned int flags), (peerDevice, flags)) {
  GPUSIM_RETURN_IF(Ready());
  CUcontext peer = nullptr;
  GPUSIM_RETURN_IF(cuDevicePrimaryCtxRetain(&peer, peerDevice));
  return FromDriver(cuCtxEnablePeerAccess(peer, flags));
}

RUNTIME_API(cudaDeviceDisablePeerAccess, 4000, (int peerDevice), (peerDevice)) {
  GPUSIM_RETURN_IF(Ready());
  CUcontext peer = nullptr;
  GPUSIM_RETURN_IF(cuDevicePrimaryCtxRetain(&peer, peerDevice));
  const CUresult result = cuCtxDisablePeerAccess(peer);
  GPUSIM_RETURN_IF(cuDevicePrimaryCtxRelease_v2(peerDevice));
  return FromDriver(result);
}

namespace {

int Attribute(CUdevice_attribute attribute, int device) {
  int value = 0;
  cuDeviceGetAttribute(&value, attribute, device);
  return value;
}

void FillLimits(int device, cudaDeviceProp* prop) {
  prop->sharedMemPerBlock =
      static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, device));
  prop->sharedMemPerBlockOptin =
      static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device));
  prop->sharedMemPerMultiprocessor =
      static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device));
  prop->reservedSharedMemPerBlock =
      static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, device));
  prop->totalConstMem = static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device));
  prop->memPitch = static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, device));
  prop->textureAlignment = static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device));
  prop->texturePitchAlignment =
      static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, device));
  prop->surfaceAlignment = static_cast<size_t>(Attribute(CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, device));
  const std::pair<int*, CUdevice_attribute> plain[] = {
      {&prop->regsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK},
      {&prop->regsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
      {&prop->warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE},
      {&prop->maxThreadsPerBlock, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK},
      {&prop->maxThreadsDim[0], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X},
      {&prop->maxThreadsDim[1], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y},
      {&prop->maxThreadsDim[2], CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z},
      {&prop->maxGridSize[0], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X},
      {&prop->maxGridSize[1], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y},
      {&prop->maxGridSize[2], CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z},
      {&prop->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {&prop->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {&prop->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {&prop->maxThreadsPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
      {&prop->maxBlocksPerMultiProcessor, CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR},
      {&prop->memoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
      {&prop->l2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
      {&prop->asyncEngineCount, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
      {&prop->pciBusID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID},
      {&prop->pciDeviceID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID},
      {&prop->pciDomainID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID},
      {&prop->ECCEnabled, CU_DEVICE_ATTRIBUTE_ECC_ENABLED},
      {&prop->canMapHostMemory, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY},
      {&prop->concurrentKernels, CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS},
      {&prop->unifiedAddressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
      {&prop->streamPrioritiesSupported, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED},
      {&prop->globalL1CacheSupported, CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED},
      {&prop->localL1CacheSupported, CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED},
      {&prop->managedMemory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
      {&prop->concurrentManagedAccess, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
      {&prop->hostNativeAtomicSupported, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED},
      {&prop->computePreemptionSupported, CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED},
      {&prop->canUseHostPointerForRegisteredMem, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
      {&prop->hostRegisterSupported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
      {&prop->memoryPoolsSupported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
  };
  for (const auto& [field, attribute] : plain) *field = Attribute(attribute, device);
}

}  // namespace

RUNTIME_API(cudaGetDeviceProperties, 12000, (struct cudaDeviceProp * prop, int device), (prop, device)) {
  if (prop == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(DriverReady());
  if (device < 0 || static_cast<size_t>(device) >= gpusim::DeviceCount()) return cudaErrorInvalidDevice;
  *prop = cudaDeviceProp{};
  const gpusim::DeviceFacts facts = gpusim::FactsOfDevice(static_cast<uint32_t>(device));
  std::snprintf(prop->name, sizeof prop->name, "%s", facts.name);
  std::memcpy(prop->uuid.bytes, facts.uuid, sizeof facts.uuid);
  prop->totalGlobalMem = facts.memory_bytes;
  FillLimits(device, prop);
  return cudaSuccess;
}

RUNTIME_API(cudaDeviceGetDefaultMemPool, 11020, (cudaMemPool_t * memPool, int device), (memPool, device)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetDefaultMemPool(memPool, device));
}

RUNTIME_API(cudaDeviceGetMemPool, 11020, (cudaMemPool_t * memPool, int device), (memPool, device)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceGetMemPool(memPool, device));
}

RUNTIME_API(cudaDeviceSetMemPool, 11020, (int device, cudaMemPool_t memPool), (device, memPool)) {
  GPUSIM_RETURN_IF(DriverReady());
  return FromDriver(cuDeviceSetMemPool(device, memPool));
}

RUNTIME_API_WITHOUT_PARAMS(cudaProfilerStart, 4000) { return FromDriver(cuProfilerStart()); }
RUNTIME_API_WITHOUT_PARAMS(cudaProfilerStop, 4000) { return FromDriver(cuProfilerStop()); }

namespace {

cudaError_t EntryPoint(const char* symbol, void** function, unsigned version, unsigned long long flags,
                       cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return cudaErrorInvalidValue;
  GPUSIM_RETURN_IF(DriverReady());
  CUdriverProcAddressQueryResult found{};
  GPUSIM_RETURN_IF(cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, &found));
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return cudaSuccess;
}

}  // namespace

extern "C" cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                               enum cudaDriverEntryPointQueryResult* driverStatus) {
  return gpusim::cudart::Remember(EntryPoint(symbol, funcPtr, CUDART_VERSION, flags, driverStatus));
}
extern "C" cudaError_t cudaGetDriverEntryPoint_ptsz(const char* symbol, void** funcPtr,
                                                    unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult* driverStatus) {
  return gpusim::cudart::Remember(
      EntryPoint(symbol, funcPtr, CUDART_VERSION, flags | cudaEnablePerThreadDefaultStream, driverStatus));
}
extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr,
                                                        unsigned int cudaVersion, unsigned long long flags,
                                                        enum cudaDriverEntryPointQueryResult* driverStatus) {
  return gpusim::cudart::Remember(EntryPoint(symbol, funcPtr, cudaVersion, flags, driverStatus));
}
extern "C" cudaError_t cudaGetDriverEntryPointByVersion_ptsz(
    const char* symbol, void** funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPointByVersion(symbol, funcPtr, cudaVersion,
                                          flags | cudaEnablePerThreadDefaultStream, driverStatus);
}
