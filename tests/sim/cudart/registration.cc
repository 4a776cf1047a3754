// What nvcc's start-up code calls: fat binaries, kernels, variables, and the launch configuration stack of
// the <<<>>> syntax.
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/core/memory.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/cudart/api.h"

namespace gpusim::cudart {
namespace {

struct Variable {
  std::string name;
  size_t bytes = 0;
  void** managed = nullptr;           // of a __managed__ variable: where its address goes
  std::map<int, uint64_t> by_device;  // made at first use
};

struct Registry {
  std::mutex mutex;
  std::map<const void*, CUfunction> kernels;  // by the host's entry
  std::set<const void*> handles;              // cudaKernel_t
  std::map<const void*, Variable> variables;
};

Registry& Registered() {
  static auto* registry = new Registry;
  return *registry;
}

struct CallConfiguration {
  dim3 grid;
  dim3 block;
  size_t shared = 0;
  void* stream = nullptr;
};
std::vector<CallConfiguration>& Configurations() { return PerThread<std::vector<CallConfiguration>>(); }

}  // namespace

CUfunction FunctionOfEntry(const void* entry) {
  const std::lock_guard<std::mutex> lock(Registered().mutex);
  const auto found = Registered().kernels.find(entry);
  if (found != Registered().kernels.end()) return found->second;
  if (Registered().handles.count(entry) == 0) return nullptr;
  return static_cast<CUfunction>(const_cast<void*>(entry));
}

bool VariableAddress(const void* symbol, void** address, size_t* bytes) {
  const std::lock_guard<std::mutex> lock(Registered().mutex);
  const auto found = Registered().variables.find(symbol);
  if (found == Registered().variables.end()) return false;
  uint64_t& base = found->second.by_device[found->second.managed != nullptr ? 0 : CurrentDeviceOrdinal()];
  if (base == 0) base = AllocateGlobal(CurrentDeviceOrdinal(), found->second.bytes);
  *address = reinterpret_cast<void*>(base);  // NOLINT(performance-no-int-to-ptr)
  *bytes = found->second.bytes;
  return true;
}

}  // namespace gpusim::cudart

using gpusim::cudart::Configurations;
using gpusim::cudart::Registered;

extern "C" void** __cudaRegisterFatBinary(void* fatCubin) {
  return new void*(fatCubin);  // one a module, kept until it unregisters
}

extern "C" void __cudaRegisterFatBinaryEnd(void** fatCubinHandle) { static_cast<void>(fatCubinHandle); }

extern "C" void __cudaUnregisterFatBinary(void** fatCubinHandle) { delete fatCubinHandle; }

extern "C" char __cudaInitModule(void** fatCubinHandle) {
  static_cast<void>(fatCubinHandle);
  return 1;
}

extern "C" void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                                       const char* deviceName, int thread_limit, uint3* tid, uint3* bid,
                                       dim3* bDim, dim3* gDim, int* wSize) {
  CUfunction function = gpusim::KernelByName(deviceName, *fatCubinHandle);
  const std::lock_guard<std::mutex> lock(Registered().mutex);
  Registered().kernels[hostFun] = function;
  Registered().handles.insert(function);
}

extern "C" void __cudaRegisterVar(void** fatCubinHandle, char* hostVar, char* deviceAddress,
                                  const char* deviceName, int ext, size_t size, int constant, int global) {
  const std::lock_guard<std::mutex> lock(Registered().mutex);
  gpusim::cudart::Variable& variable = Registered().variables[hostVar];
  variable.name = deviceName;
  variable.bytes = size;
}

extern "C" void __cudaRegisterManagedVar(void** fatCubinHandle, void** hostVarPtrAddress, char* deviceAddress,
                                         const char* deviceName, int ext, size_t size, int constant,
                                         int global) {
  const std::lock_guard<std::mutex> lock(Registered().mutex);
  gpusim::cudart::Variable& variable = Registered().variables[hostVarPtrAddress];
  variable.name = deviceName;
  variable.bytes = size;
  variable.managed = hostVarPtrAddress;
  uint64_t& base = variable.by_device[0];
  base = gpusim::AllocateGlobal(0, size);
  *hostVarPtrAddress = reinterpret_cast<void*>(base);  // NOLINT(performance-no-int-to-ptr)
}

extern "C" unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void* stream) {
  Configurations().push_back({gridDim, blockDim, sharedMem, stream});
  return 0;
}

extern "C" cudaError_t __cudaPopCallConfiguration(dim3* gridDim, dim3* blockDim, size_t* sharedMem,
                                                  void* stream) {
  if (Configurations().empty()) return cudaErrorMissingConfiguration;
  const gpusim::cudart::CallConfiguration& top = Configurations().back();
  *gridDim = top.grid;
  *blockDim = top.block;
  *sharedMem = top.shared;
  *static_cast<void**>(stream) = top.stream;
  Configurations().pop_back();
  return cudaSuccess;
}

extern "C" cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entry) {
  CUfunction function = gpusim::cudart::FunctionOfEntry(entry);
  if (function == nullptr) return gpusim::cudart::Remember(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(function);
  return cudaSuccess;
}
