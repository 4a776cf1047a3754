// Kernels: names, handles, and the work that a launch is. They do not compute; see GPUSIM_KERNELS for how
// long they take.
#include <cupti.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/core/knobs.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"

// A program that wants to know whether results are computed looks this up with dlsym.
extern "C" const char* gpusim_version() {  // NOLINT(readability-identifier-naming)
  return "gpusim 1: kernels take time and compute nothing";
}

// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" void gpusim_set_pace(double kernels, double copies, double link) {
  gpusim::Pace& pace = gpusim::CurrentPace();
  pace.kernels.store(kernels, std::memory_order_relaxed);
  pace.copies.store(copies, std::memory_order_relaxed);
  pace.link.store(link, std::memory_order_relaxed);
}

namespace gpusim {
namespace {

constexpr uint32_t kRegistersPerThread = 32;  // nothing is known of the code; a common number
constexpr uint32_t kMaxThreadsPerBlock = 1024;
constexpr uint32_t kMaxSharedBytes = 227 << 10;

std::atomic<uint64_t> launches{0};

std::atomic<LaunchWitness> launch_witness{nullptr};

// GPUSIM_FAULT=launch_fails=N: the N-th launch of the process (from 0) is refused.
bool LaunchFails() {
  const char* value = nullptr;
  const uint64_t number = launches.fetch_add(1, std::memory_order_relaxed);
  return FaultIs("launch_fails", &value) && std::strtoull(value, nullptr, 10) == number;
}

}  // namespace

void SetLaunchWitness(LaunchWitness witness) { launch_witness.store(witness); }

const char* InternName(const std::string& name) {
  static auto* mutex = new std::mutex;
  static auto* names = new std::set<std::string>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return names->insert(name).first->c_str();
}

namespace {

// The handles of unloaded modules. They live as long as the process, for queued work may have them.
struct Retired {
  std::mutex mutex;
  std::vector<CUkern_st*> kernels;
};

Retired& RetiredKernels() {
  static auto* retired = new Retired;
  return *retired;
}

CUkern_st* NewHandle() {
  Retired& retired = RetiredKernels();
  const std::lock_guard<std::mutex> lock(retired.mutex);
  if (retired.kernels.empty()) return new CUkern_st;
  CUkern_st* kernel = retired.kernels.back();
  retired.kernels.pop_back();
  *kernel = CUkern_st{};
  return kernel;
}

}  // namespace

CUfunction KernelByName(const std::string& name, const void* module) {
  CUkern_st* kernel = NewHandle();
  kernel->name = InternName(name);
  kernel->module = module;
  return kernel;
}

void RetireKernel(CUfunction function) {
  const std::lock_guard<std::mutex> lock(RetiredKernels().mutex);
  RetiredKernels().kernels.push_back(static_cast<CUkern_st*>(function));
}

CUresult MakeKernelWork(CUfunction function, const KernelShape& shape, Work* work) {
  uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (shape.grid[axis] == 0 || shape.block[axis] == 0) return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[axis];
    work->activity.grid[axis] = shape.grid[axis];
    work->activity.block[axis] = shape.block[axis];
  }
  if (threads > kMaxThreadsPerBlock || shape.shared_bytes > kMaxSharedBytes) return CUDA_ERROR_INVALID_VALUE;
  work->kind = WorkKind::kTimed;
  work->duration_ns = KernelDurationNs(function->name);
  work->reported = true;
  work->activity.kind = ActivityKind::kKernel;
  work->activity.name = function->name;
  work->activity.function = function;
  work->activity.dynamic_shared_bytes = shape.shared_bytes;
  work->activity.registers_per_thread = kRegistersPerThread;
  return CUDA_SUCCESS;
}

CUresult LaunchKernel(CUfunction function, const KernelShape& shape, CUstream stream, const void* arguments,
                      std::function<void()> effect) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUctx_st* context = nullptr;
  const CUresult current = RequireContext(&context);
  if (current != CUDA_SUCCESS) return current;
  Work work;
  const CUresult made = MakeKernelWork(function, shape, &work);
  if (made != CUDA_SUCCESS) return made;
  work.effect = std::move(effect);
  if (LaunchFails()) return CUDA_ERROR_LAUNCH_FAILED;
  bool loaded = false;
  {
    const Locked locked;
    loaded = context->loaded_modules.insert(function->module).second;
  }
  if (loaded) NotifyResource(ResourceEvent::kModuleLoaded, context, nullptr);  // lazily, as since CUDA 11.7
  RendezvousLaunch meeting;
  const LaunchWitness witness = launch_witness.load(std::memory_order_relaxed);
  if (witness != nullptr && witness(function->name, stream, arguments, &meeting)) {
    work.kind = WorkKind::kRendezvous;
    work.rendezvous = std::make_shared<const RendezvousLaunch>(std::move(meeting));
  }
  return Issue(stream, std::move(work), CU_GRAPH_NODE_TYPE_KERNEL, nullptr);
}

}  // namespace gpusim
