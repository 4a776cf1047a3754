#include "injector/capture/nccl/lifetimes.h"

#include <nccl.h>
#include <unistd.h>

#include "injector/base/losses.h"
#include "injector/capture/nccl/awaited.h"
#include "injector/capture/nccl/plugin.h"
#include "injector/capture/nccl/real_functions.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/core/event_ring.h"
#include "injector/core/flight_recorder.h"
#include "injector/core/guard.h"
#include "injector/core/host_state.h"
#include "injector/core/self_report.h"

namespace gpuprobe::injector::nccl {

namespace {

constexpr uint32_t kMaxQueries = 3;

// rank << 32 | ranks of the largest communicator so far, and the hash that it was made with, which NCCL's
// name may have replaced since. A process with several of its ranks has no identity.
constinit std::atomic<uint64_t> identity_word{0};
constinit std::atomic<uint64_t> identity_hash{0};
constexpr uint32_t kSeveralRanks = UINT32_MAX;
constinit std::atomic<uint32_t> init_all_calls{0};
constinit std::atomic<bool> made_without_blocking{false};

// `hash`: 0 if it is not known.
void NoteIdentity(const Communicator& comm, uint64_t hash) noexcept {
  const int32_t rank = comm.rank.load(std::memory_order_relaxed);
  const int32_t ranks = comm.ranks.load(std::memory_order_relaxed);
  if (rank < 0 || ranks <= 0) return;
  uint64_t known = identity_word.load(std::memory_order_relaxed);
  const uint64_t mine =
      (static_cast<uint64_t>(static_cast<uint32_t>(rank)) << 32) | static_cast<uint32_t>(ranks);
  while (static_cast<uint32_t>(known) < static_cast<uint32_t>(ranks)) {
    if (!identity_word.compare_exchange_weak(known, mine)) continue;
    identity_hash.store(hash, std::memory_order_relaxed);
    return;
  }
  if (known == mine || static_cast<uint32_t>(known) != static_cast<uint32_t>(ranks)) return;
  const uint64_t other = identity_hash.load(std::memory_order_relaxed);
  if (hash == 0 || other == 0 || hash == other)
    identity_word.store((uint64_t{kSeveralRanks} << 32) | static_cast<uint32_t>(ranks));
}

// Calls one of ncclCommUserRank, ncclCommCount, ncclCommCuDevice, which read fields of a communicator that is
// ready.
bool Ask(EntryPoint question, const void* handle, int way, std::atomic<int32_t>& field,
         int32_t unknown) noexcept {
  if (field.load(std::memory_order_relaxed) != unknown) return false;
  using Function = ncclResult_t (*)(ncclComm_t, int*);
  const auto function = RealFunction<Function>(way, question);
  int answer = unknown;
  const AskingLibrary asking;
  if (function == nullptr ||
      function(static_cast<ncclComm_t>(const_cast<void*>(handle)), &answer) != ncclSuccess)
    return false;
  field.store(answer, std::memory_order_relaxed);
  return answer != unknown;
}

// True when something became known.
bool AskNccl(Communicator& comm, const void* handle, int way) noexcept {
  bool news = Ask(EntryPoint::kCommUserRank, handle, way, comm.rank, -1);
  news |= Ask(EntryPoint::kCommCount, handle, way, comm.ranks, 0);
  news |= Ask(EntryPoint::kCommCuDevice, handle, way, comm.device, -1);
  comm.queries.fetch_add(1, std::memory_order_relaxed);
  return news;
}

bool HasGaps(const Communicator& comm) noexcept {
  return (comm.ranks.load(std::memory_order_relaxed) == 0 || comm.rank.load(std::memory_order_relaxed) < 0 ||
          comm.device.load(std::memory_order_relaxed) < 0) &&
         comm.queries.load(std::memory_order_relaxed) < kMaxQueries;
}

void LearnNcclVersion(int way) noexcept {
  if (NcclVersion() != 0) return;
  const auto function = RealFunction<ncclResult_t (*)(int*)>(way, EntryPoint::kGetVersion);
  int version = 0;
  const AskingLibrary asking;
  if (function != nullptr && function(&version) == ncclSuccess) SetNcclVersion(version);
}

// The communicators of one ncclCommInitAll have no unique id that could be seen; they live in one process.
uint64_t HashOfInitAll() noexcept {
  const uint32_t ordinal = init_all_calls.fetch_add(1, std::memory_order_relaxed);
  return HashChild((static_cast<uint64_t>(getpid()) << 32) | 1u, ordinal, 0);
}

void EndCreationOf(const void* owner, ncclResult_t result) noexcept {
  CommunicatorCreation creation;
  if (!creating_communicator.End(owner, &creation)) return;
  if (result == ncclSuccess || result == ncclInProgress) return;
  creation.since_ns = NowNs();
  creation.result = result;
  refused_communicator.Replace(creation);
}

}  // namespace

void ReportCommunicator(ThreadState& thread, const Communicator& comm, wire::CommunicatorState state,
                        EntryPoint made_by, std::string_view name) noexcept {
  CommunicatorEvent event{};
  event.time_ns = NowNs();
  event.hash = comm.hash.load(std::memory_order_relaxed);
  event.id = comm.id.load(std::memory_order_relaxed);
  event.parent = comm.parent.load(std::memory_order_relaxed);
  event.rank = comm.rank.load(std::memory_order_relaxed);
  event.ranks = comm.ranks.load(std::memory_order_relaxed);
  event.device = comm.device.load(std::memory_order_relaxed);
  event.state = static_cast<uint8_t>(state);
  event.made_by = made_by == EntryPoint::kCount ? 0 : static_cast<uint16_t>(static_cast<int>(made_by) + 1);
  RecordCommunicator(event, name);
  Emit(thread, event, name);
}

bool MadeWithoutBlocking() noexcept { return made_without_blocking.load(std::memory_order_relaxed); }

Communicator* KnownCommunicator(ThreadState& thread, const void* handle, int way) noexcept {
  Communicator* comm = Find(handle);
  if (comm == nullptr) {
    comm = Register(handle, {});
    if (comm == nullptr) {
      CountLoss(wire::LossReason::kLossCommunicatorUnknown);
      return nullptr;
    }
    AskNccl(*comm, handle, way);
    LearnNcclVersion(way);
  } else {
    // A call on the communicator shows that it is ready.
    if (comm->blocking.load(std::memory_order_relaxed) == Blocking::kNo) EndCreationOf(handle, ncclSuccess);
    if (!HasGaps(*comm) || !AskNccl(*comm, handle, way)) return comm;
  }
  const bool named = comm->named.load(std::memory_order_relaxed);
  NoteIdentity(*comm, named ? 0 : comm->hash.load(std::memory_order_relaxed));
  ReportCommunicator(thread, *comm, wire::CommunicatorState::kCommunicatorStateCreated);
  return comm;
}

void EndCreation(const ThreadState& thread, ncclResult_t result, const void* handle) noexcept {
  if (result == ncclInProgress && handle != nullptr) {
    creating_communicator.GoesOn(&thread, handle, result);
  } else {
    EndCreationOf(&thread, result);
  }
}

void AddCommunicator(ThreadState& thread, const PendingInit& init, int way, bool ready) noexcept {
  if (!ready) made_without_blocking.store(true, std::memory_order_relaxed);
  void* handle = *init.newcomm;
  // Null: this rank is no member (a split without color).
  if (handle == nullptr) return;
  Communicator* comm = Register(handle, {init.hash, init.parent, init.rank, init.ranks, init.device});
  if (comm == nullptr) return;  // its calls are counted
  comm->blocking.store(ready ? Blocking::kYes : Blocking::kNo, std::memory_order_relaxed);
  if (ready) AskNccl(*comm, handle, way);
  LearnNcclVersion(way);
  TakeNameFromPlugin(handle, *comm, init.told_before);
  NoteIdentity(*comm, init.hash);
  ReportCommunicator(thread, *comm, wire::CommunicatorState::kCommunicatorStateCreated, init.made_by,
                     init.name.text());
}

bool IdentityFromNccl(NcclIdentity* identity) noexcept {
  const uint64_t known = identity_word.load(std::memory_order_relaxed);
  if (known == 0 || known >> 32 == kSeveralRanks) return false;
  *identity = {static_cast<int32_t>(known >> 32), static_cast<int32_t>(static_cast<uint32_t>(known))};
  return true;
}

namespace {

// Before NCCL runs, because it waits for the other ranks.
void BeginCreation(const ThreadState& thread, const PendingInit& init, uint64_t parent_hash) noexcept {
  creating_communicator.Begin(&thread, {NowNs(), init.hash, parent_hash, init.rank, init.ranks, 0,
                                        static_cast<uint16_t>(static_cast<int>(init.made_by) + 1)});
}

// Outside a group; else it goes on until the group's end.
void LeaveCreation(const ThreadState* thread, const PendingInit& init, ncclResult_t result) noexcept {
  if (thread != nullptr && !InGroup(CallsOf(*thread)))
    EndCreation(*thread, result, result == ncclInProgress ? *init.newcomm : nullptr);
}

// Inside a group the handle may be written as late as at its end.
void AddOrDefer(ThreadState& thread, const PendingInit& init, int way, ncclResult_t result) noexcept {
  if (result != ncclSuccess && result != ncclInProgress) return;
  if (!InGroup(CallsOf(thread))) {
    AddCommunicator(thread, init, way, result == ncclSuccess);
    return;
  }
  CallBatch* batch = BatchOfGroup(CallsOf(thread));
  if (batch != nullptr && batch->init_count < batch->init_capacity) batch->inits[batch->init_count++] = init;
  // Else the first call on it enters it, without its hash.
}

}  // namespace

void InitRankScope::Begin(ncclComm_t* newcomm, int ranks, const ncclUniqueId* id, int rank,
                          const ncclConfig_t* config) noexcept {
  ours_ = Enter() && newcomm != nullptr && id != nullptr;
  if (!ours_) return;
  init_ = {reinterpret_cast<void**>(newcomm),
           HashUniqueId(id),
           0,
           rank,
           ranks,
           -1,
           origin_.entry_point,
           CommunicatorsTold(),
           {}};
  ReadCommunicatorName(config, &init_.name);
  if (const Guard guard; guard) BeginCreation(*thread_, init_, 0);
}

void InitRankScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_) return;
  LeaveCreation(thread_, init_, result);
  Guard guard;
  if (guard) AddOrDefer(*thread_, init_, origin_.way, result);
}

void InitAllScope::Begin(ncclComm_t* comms, int devices, const int* device_list) noexcept {
  ours_ = Enter() && comms != nullptr && devices > 0;
  comms_ = comms;
  devices_ = devices;
  device_list_ = device_list;
  hash_ = ours_ ? HashOfInitAll() : 0;
  told_before_ = CommunicatorsTold();
}

void InitAllScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_ || result != ncclSuccess) return;
  Guard guard;
  if (!guard) return;
  for (int i = 0; i < devices_; ++i) {
    const int32_t device = device_list_ != nullptr ? device_list_[i] : i;
    AddOrDefer(*thread_,
               {reinterpret_cast<void**>(&comms_[i]),
                hash_,
                0,
                i,
                devices_,
                device,
                origin_.entry_point,
                told_before_,
                {}},
               origin_.way, result);
  }
}

void ChildScope::Begin(ncclComm_t* newcomm, ncclComm_t parent, int color,
                       const ncclConfig_t* config) noexcept {
  ours_ = Enter() && newcomm != nullptr;
  parent_ = nullptr;
  if (!ours_) return;
  init_ = {reinterpret_cast<void**>(newcomm), 0, 0, -1, 0, -1, origin_.entry_point, CommunicatorsTold(), {}};
  ReadCommunicatorName(config, &init_.name);
  Guard guard;
  if (!guard) return;
  Communicator* known = KnownCommunicator(*thread_, parent, origin_.way);
  if (known == nullptr) return;
  const uint32_t ordinal = known->children.fetch_add(1, std::memory_order_relaxed);
  parent_ = parent;
  init_.hash = HashChild(known->hash.load(std::memory_order_relaxed), ordinal, color);
  init_.parent = known->id.load(std::memory_order_relaxed);
  init_.device = known->device.load(std::memory_order_relaxed);
  BeginCreation(*thread_, init_, known->hash.load(std::memory_order_relaxed));
}

void ChildScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_) return;
  LeaveCreation(thread_, init_, result);
  Guard guard;
  // NCCL refused it, perhaps on this rank only: its number goes to the next child.
  Communicator* parent =
      result == ncclSuccess || result == ncclInProgress || !guard ? nullptr : Find(parent_);
  if (parent != nullptr) parent->children.fetch_sub(1, std::memory_order_relaxed);
  if (guard) AddOrDefer(*thread_, init_, origin_.way, result);
}

void GrowScope::Begin(ncclComm_t* newcomm, ncclComm_t parent, int ranks, int rank,
                      const ncclConfig_t* config) noexcept {
  ours_ = Enter() && newcomm != nullptr;
  if (!ours_) return;
  init_ = {
      reinterpret_cast<void**>(newcomm), 0, 0, rank, ranks, -1, origin_.entry_point, CommunicatorsTold(), {}};
  ReadCommunicatorName(config, &init_.name);
  Guard guard;
  if (!guard) return;
  const Communicator* known = parent != nullptr ? KnownCommunicator(*thread_, parent, origin_.way) : nullptr;
  // A new rank does not know whose communicator it joins.
  if (known == nullptr) return BeginCreation(*thread_, init_, 0);
  init_.parent = known->id.load(std::memory_order_relaxed);
  init_.device = known->device.load(std::memory_order_relaxed);
  BeginCreation(*thread_, init_, known->hash.load(std::memory_order_relaxed));
}

void GrowScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_) return;
  LeaveCreation(thread_, init_, result);
  Guard guard;
  if (guard) AddOrDefer(*thread_, init_, origin_.way, result);
}

void RevokeScope::Begin(const void* comm) noexcept {
  ours_ = Enter();
  handle_ = comm;
}

void RevokeScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_ || (result != ncclSuccess && result != ncclInProgress)) return;
  Guard guard;
  if (!guard) return;
  const Communicator* known = Find(handle_);
  if (known != nullptr)
    ReportCommunicator(*thread_, *known, wire::CommunicatorState::kCommunicatorStateRevoked);
}

void AsyncErrorScope::Begin(const void* comm, const ncclResult_t* answer) noexcept {
  ours_ = Enter() && answer != nullptr && MadeWithoutBlocking();
  handle_ = comm;
  answer_ = answer;
}

void AsyncErrorScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_ || result != ncclSuccess || *answer_ == ncclInProgress) return;
  EndCreationOf(handle_, *answer_);
  if (*answer_ != ncclSuccess) return;
  Guard guard;
  if (guard && Find(handle_) != nullptr) KnownCommunicator(*thread_, handle_, origin_.way);
}

// The place is given up before NCCL runs: another thread may get the same handle as soon as NCCL has freed
// it.
void EndOfCommunicatorScope::Begin(const void* comm) noexcept {
  ours_ = Enter();
  handle_ = comm;
  state_ = {};
  if (!ours_) return;
  EndCreationOf(comm, ncclSuccess);  // the program abandons it, if it was not ready
  if (const Guard guard; guard) ResolveAwaited(*thread_, comm);
  Communicator* known = Find(comm);
  if (known == nullptr) return;
  // One that was made in a group with others of its size, and never called: what is left is its name.
  if (!known->named.load(std::memory_order_relaxed)) TakeNameFromPlugin(const_cast<void*>(comm), *known, 0);
  state_ = StateOf(*known);
  facts_ = {known->hash.load(std::memory_order_relaxed), known->parent.load(std::memory_order_relaxed),
            known->rank.load(std::memory_order_relaxed), known->ranks.load(std::memory_order_relaxed),
            known->device.load(std::memory_order_relaxed)};
  Remove(comm);
}

void EndOfCommunicatorScope::End(ncclResult_t result) noexcept {
  Leave();
  if (!ours_ || state_.id == 0) return;
  if (result != ncclSuccess && result != ncclInProgress) {
    Restore(handle_, facts_, state_);
    return;
  }
  Guard guard;
  if (!guard) return;
  CommunicatorEvent event{};
  event.time_ns = NowNs();
  event.hash = facts_.hash;
  event.id = state_.id;
  event.parent = facts_.parent;
  event.rank = facts_.rank;
  event.ranks = facts_.ranks;
  event.device = facts_.device;
  event.state = static_cast<uint8_t>(aborted_ ? wire::CommunicatorState::kCommunicatorStateAborted
                                              : wire::CommunicatorState::kCommunicatorStateDestroyed);
  RecordCommunicator(event, {});
  Emit(*thread_, event);
}

}  // namespace gpuprobe::injector::nccl
