#include "tests/sim/nccl_witness/witness.h"

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "tests/sim/core/nccl_seam.h"
#include "tests/sim/nccl/plan.h"
#include "tests/sim/nccl_witness/real.h"
#include "tests/sim/nccl_witness/work_counters.h"

namespace gpusim::nccl {
namespace {

struct Known {
  ncclComm_t handle = nullptr;
  CommunicatorPtr parent;  // null: none
  uint64_t hash = 0;       // 0: of a child, known with its name
  Joins joins;             // null once it is made
  std::thread::id maker;   // asks for it: NCCL lets one thread at a time use a communicator
  CommunicatorPtr self;    // null until then
  // Its address on the device, which its kernels get; null until one was seen.
  const void* on_device = nullptr;
  bool opened = false;       // the library may be launching what it was given
  std::vector<Call> calls;   // of it
  RendezvousLaunch pending;  // taken by its first kernel
  bool taken = false;
  std::shared_ptr<WorkCounts> works = std::make_shared<WorkCounts>();
};

// A communicator's kernels come while the library launches, on whichever thread; its functions are called
// without this.
std::mutex& Mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::list<Known>& All() {
  static auto* all = new std::list<Known>;
  return *all;
}

Known* FindLocked(ncclComm_t comm) {
  for (Known& known : All()) {
    if (known.handle == comm) return &known;
  }
  return nullptr;
}

Known* FindLocked(const CommunicatorPtr& communicator) {
  for (Known& known : All()) {
    if (known.self == communicator) return &known;
  }
  return nullptr;
}

bool IsKernelOfNccl(const char* name) {
  return std::strstr(name, "ncclDevKernel") != nullptr || std::strstr(name, "ncclSymkDevKernel") != nullptr;
}

// A kernel's first argument is its communicator on the device, except of those for symmetric memory, which
// get it by value.
const void* OnDevice(const char* name, const void* arguments) {
  if (arguments == nullptr || std::strstr(name, "ncclSymkDevKernel") != nullptr) return nullptr;
  const void* first = nullptr;
  std::memcpy(&first, arguments, sizeof first);
  return first;
}

// Whether the kernel's name is that of one of the calls, or of all.
bool Names(const char* kernel, const Known& known) {
  if (std::strstr(kernel, "Generic") != nullptr) return true;
  return std::any_of(known.calls.begin(), known.calls.end(), [kernel](const Call& call) {
    const bool messages = !IsOneCollective(call.operation);
    const std::string name = std::string("_") + (messages ? "SendRecv" : OperationName(call.operation));
    return std::strstr(kernel, name.c_str()) != nullptr;
  });
}

bool IsOn(const void* stream, const Known& known) {
  return std::any_of(known.calls.begin(), known.calls.end(),
                     [stream](const Call& call) { return call.stream == stream; });
}

// Whose kernel it is: its address on the device says so once it was seen. The first time the library is
// launching for a communicator of this device that it was not seen of: by the stream, then by the name, then
// by the hash, in whose order the library goes.
Known* OwnerLocked(const char* kernel, const void* stream, const void* on_device) {
  Known* best = nullptr;
  const auto rank_of = [&](const Known& known) {
    return std::tuple(!IsOn(stream, known), !Names(kernel, known), known.self->Hash());
  };
  for (Known& known : All()) {
    if (on_device != nullptr && known.on_device == on_device) return &known;
    const bool fits = known.self != nullptr && known.self->Device() == CurrentDevice() && known.opened;
    if (!fits || known.taken || (on_device != nullptr && known.on_device != nullptr)) continue;
    if (best == nullptr || rank_of(known) < rank_of(*best)) best = &known;
  }
  if (best != nullptr && on_device != nullptr) best->on_device = on_device;
  return best;
}

bool Claim(const char* kernel_name, const void* stream, const void* arguments, RendezvousLaunch* launch) {
  if (!IsKernelOfNccl(kernel_name)) return false;
  const std::lock_guard<std::mutex> lock(Mutex());
  Known* owner = OwnerLocked(kernel_name, stream, OnDevice(kernel_name, arguments));
  if (owner == nullptr || !owner->opened || owner->taken) return false;
  owner->taken = true;
  *launch = std::move(owner->pending);
  if (OnDevice(kernel_name, arguments) != nullptr) {
    if (auto counters = CountWorks(arguments, owner->works)) WatchKernel(*launch, std::move(counters));
  }
  return true;
}

// No elements, or nobody to exchange them with: at most a copy.
bool LaunchesNothing(const Call& call) {
  return call.count == 0 || (call.communicator->Ranks() == 1 && !IsPointToPoint(call.operation));
}

// What the library says of one that it has made; false if it is still at it.
bool Ask(ncclComm_t comm, int* rank, int* ranks, int* device) {
  return REAL_CALL(ncclCommUserRank, comm, rank) == ncclSuccess &&
         REAL_CALL(ncclCommCount, comm, ranks) == ncclSuccess &&
         REAL_CALL(ncclCommCuDevice, comm, device) == ncclSuccess;
}

CUcontext ContextOf(int device) {
  CUcontext context = nullptr;
  cuDevicePrimaryCtxRetain(&context, device);
  return context;
}

// Its memory goes.
void CountNoMore(ncclComm_t comm) {
  const std::lock_guard<std::mutex> lock(Mutex());
  const Known* known = FindLocked(comm);
  if (known == nullptr) return;
  const std::lock_guard<std::mutex> counting(known->works->mutex);
  known->works->gone = true;
}

}  // namespace

Witness& Witness::Get() {
  static auto* witness = [] {
    SetLaunchWitness(&Claim);
    return new Witness;
  }();
  return *witness;
}

void Witness::Made(ncclComm_t comm, ncclComm_t parent, uint64_t hash_or_zero, Joins joins) {
  const std::lock_guard<std::mutex> lock(Mutex());
  Known& known = All().emplace_back();
  known.handle = comm;
  if (const Known* of = FindLocked(parent)) known.parent = of->self;
  known.hash = hash_or_zero;
  known.joins = std::move(joins);
  known.maker = std::this_thread::get_id();
}

void Witness::FinishMaking() {
  // The library calls its own public functions, and so this, when it is asked.
  thread_local bool asking = false;
  if (asking) return;
  asking = true;
  FinishMakingNow();
  asking = false;
}

void Witness::FinishMakingNow() {
  std::vector<std::pair<ncclComm_t, Joins>> unfinished;
  {
    const std::lock_guard<std::mutex> lock(Mutex());
    for (const Known& known : All()) {
      if (known.joins != nullptr && known.maker == std::this_thread::get_id())
        unfinished.emplace_back(known.handle, known.joins);
    }
  }
  for (const auto& [comm, joins] : unfinished) {
    int rank = 0;
    int ranks = 0;
    int device = 0;
    if (!Ask(comm, &rank, &ranks, &device)) continue;
    const std::lock_guard<std::mutex> lock(Mutex());
    Known* known = FindLocked(comm);
    if (known == nullptr || known->joins == nullptr) continue;
    known->self = std::make_shared<Communicator>(rank, ranks, device, ContextOf(device), known->hash);
    if (known->parent != nullptr) known->self->SetParent(*known->parent);
    if (!std::exchange(known->joins, nullptr)(*known->self)) {
      known->self.reset();
      continue;
    }
    known->self->SetState(ncclSuccess);
    known->self->Log("created");
  }
}

CommunicatorPtr Witness::Find(ncclComm_t comm) {
  const std::lock_guard<std::mutex> lock(Mutex());
  const Known* known = FindLocked(comm);
  return known == nullptr ? nullptr : known->self;
}

void Witness::Settle() { SettleWatchers(); }

void Witness::Abort(ncclComm_t comm) {
  CountNoMore(comm);
  if (const CommunicatorPtr communicator = Find(comm)) communicator->Abort();
}

void Witness::Forget(ncclComm_t comm, const char* state) {
  CountNoMore(comm);
  CommunicatorPtr communicator;
  {
    const std::lock_guard<std::mutex> lock(Mutex());
    for (auto known = All().begin(); known != All().end(); ++known) {
      if (known->handle != comm) continue;
      communicator = known->self;
      All().erase(known);
      break;
    }
  }
  if (communicator != nullptr) communicator->Log(state);
}

void Witness::Open(const std::vector<Call>& calls) {
  std::vector<Call> carried;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(carried), std::not_fn(&LaunchesNothing));
  const std::lock_guard<std::mutex> lock(Mutex());
  for (const Plan& plan : MakePlans(carried, /*fuse_all=*/true)) {
    Known* known = FindLocked(plan.communicator);
    if (known == nullptr) continue;
    known->calls = plan.calls;
    known->pending = LaunchOf(plan);
    known->opened = true;
    known->taken = false;
  }
}

void Witness::Close(const std::vector<Call>& calls, ncclResult_t result) {
  if (result == ncclInProgress) return;  // launched later, by a thread of the library's
  const std::lock_guard<std::mutex> lock(Mutex());
  for (const Call& call : calls) {
    Known* known = FindLocked(call.communicator);
    if (known != nullptr && known->opened && known->taken && !LaunchesNothing(call)) continue;
    LogWithoutKernel(call, result);
  }
  for (const Call& call : calls) {
    if (Known* known = FindLocked(call.communicator)) known->opened = false;
  }
}

}  // namespace gpusim::nccl
