#include "injector/capture/nccl/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "injector/base/environment.h"
#include "injector/base/losses.h"
#include "injector/base/text.h"
#include "injector/capture/loader/elf_object.h"
#include "injector/capture/nccl/awaited.h"
#include "injector/capture/nccl/calls.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/lifetimes.h"
#include "injector/capture/nccl/plans.h"
#include "injector/capture/nccl/scopes.h"
#include "injector/capture/nccl/short_names.h"
#include "injector/capture/nccl/thread_calls.h"
#include "injector/capture/nccl/torn_groups.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"

namespace gpuprobe::injector::nccl {

// Who records the communicator's calls. Decided at its first call: NCCL announces a communicator to its
// plugin before ncclCommInitRank returns to our wrapper.
enum class Owner : uint8_t { kUndecided, kPlugin, kWrapper };

struct PluginCommunicator {
  std::atomic<bool> in_use;
  std::atomic<Owner> owner;
  std::atomic<void*> handle;  // the wrapper's handle, once matched
  uint64_t number;            // in the order of NCCL's announcements
  uint32_t tid;               // of the thread that it was announced on
  uint64_t hash;
  int32_t rank;
  int32_t ranks;
  CommunicatorName name;
  std::atomic<uint64_t> reported;  // collectives
};

namespace {

constinit PluginCommunicator communicators[kPluginCommunicators] = {};
constinit std::atomic<bool> reports_communicators{false};
constinit std::atomic<uint64_t> communicators_told{0};

// NCCL kernels that bypassed the wrappers, and those whose calls NCCL reported afterwards. It reports none of
// a captured plan.
constinit std::atomic<uint64_t> launches_past_us{0};
constinit std::atomic<uint64_t> launches_told{0};
constinit std::atomic<bool> reports_calls{false};

// False when some calls were not counted: then a communicator that is met late has numbers of its own, which
// must not be compared with those of other ranks.
bool EveryCallIsCounted() noexcept {
  return reports_calls.load(std::memory_order_relaxed) ||
         launches_past_us.load(std::memory_order_relaxed) == launches_told.load(std::memory_order_relaxed);
}

constexpr size_t kMaxPluginPath = 254;  // NCCL's own limit

bool InsideInterceptedCall(const ThreadState& thread) noexcept {
  return thread.nccl_call_depth != 0 || CallsOf(thread).batch != nullptr;
}

bool OursAlready(ThreadState& thread, PluginCommunicator& comm) noexcept {
  Owner owner = comm.owner.load(std::memory_order_acquire);
  if (owner != Owner::kUndecided) return owner == Owner::kPlugin;
  const bool wrapped = FindByHash(comm.hash, comm.rank, &comm) != nullptr || MadeWithoutBlocking();
  const Owner decided = wrapped ? Owner::kWrapper : Owner::kPlugin;
  if (!comm.owner.compare_exchange_strong(owner, decided)) return owner == Owner::kPlugin;
  if (wrapped) return false;
  if (Communicator* known = Register(&comm, {comm.hash, 0, comm.rank, comm.ranks, -1}); known != nullptr) {
    known->named.store(comm.hash != 0, std::memory_order_relaxed);
    ReportCommunicator(thread, *known, wire::CommunicatorState::kCommunicatorStateCreated, EntryPoint::kCount,
                       comm.name.text());
  }
  return true;
}

// NCCL makes all-to-all, gather and scatter of sends and receives.
bool Fits(EntryPoint issued, EntryPoint told) noexcept {
  return issued == told ||
         (IsPointToPoint(told) && (issued == EntryPoint::kAlltoAll || issued == EntryPoint::kGather ||
                                   issued == EntryPoint::kScatter));
}

// True if the thread's last kernel, which carries the call that NCCL reports, is on another stream or device
// than the issued call.
bool RunsElsewhere(const PendingCall& issued, const CallBatch& batch) noexcept {
  if (batch.launch_count == 0) return false;
  const SeenLaunch& last = batch.launches[batch.launch_count - 1];
  return issued.stream != last.stream || PlaceOf(issued.context, issued.device, last) == Place::kOther;
}

// The one handle among the batch's calls that this call can be of; null when there are several.
void* HandleOf(const CallBatch& batch, const PluginCommunicator& comm, const PluginCall& call) noexcept {
  void* found = nullptr;
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    const PendingCall& issued = batch.calls[i];
    const Communicator* known = Find(issued.handle);
    if (known == nullptr || issued.handle == &comm) continue;  // the plugin's own name for it
    if (!Fits(static_cast<EntryPoint>(issued.event.op), call.op)) continue;
    const uint64_t hash = known->hash.load(std::memory_order_relaxed);
    const int32_t rank = known->rank.load(std::memory_order_relaxed);
    const bool named = known->named.load(std::memory_order_relaxed);
    const bool other = (named && comm.hash != 0 && hash != comm.hash) ||
                       (rank >= 0 && comm.rank >= 0 && rank != comm.rank) ||
                       (issued.ranks > 0 && comm.ranks > 0 && issued.ranks != comm.ranks);
    if (other || issued.handle == found || RunsElsewhere(issued, batch)) continue;
    if (found != nullptr) return nullptr;
    found = issued.handle;
  }
  return found;
}

// Moves the calls on `from` to the wrappers' communicator.
void Rename(CallBatch& batch, const void* from, void* to, const Communicator& wrapped) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    PendingCall& pending = batch.calls[i];
    if (pending.handle != from) continue;
    pending.handle = to;
    pending.event.comm = wrapped.id.load(std::memory_order_relaxed);
  }
}

// The handle of the call that this thread is making through a wrapper.
void* HandleOfOpenCall(const CallBatch& batch) noexcept {
  return batch.call_count == 0 ? nullptr : batch.calls[batch.call_count - 1].handle;
}

void Name(Communicator& known, uint64_t hash) noexcept {
  known.hash.store(hash, std::memory_order_relaxed);
  known.named.store(true, std::memory_order_relaxed);
}

// The wrapper's communicator of `handle` is NCCL's `comm`. The wrapper may not have seen how it was made: the
// name and the calls before are known here. `batch`: in which its calls are; null: there are none yet.
void TellWrapper(ThreadState& thread, CallBatch* batch, PluginCommunicator& comm, void* handle) noexcept {
  if (comm.handle.load(std::memory_order_relaxed) != nullptr || handle == nullptr) return;
  Communicator* wrapped = Find(handle);
  const Communicator* told = Find(&comm);
  comm.handle.store(handle, std::memory_order_relaxed);
  comm.owner.store(Owner::kWrapper, std::memory_order_release);
  if (wrapped == nullptr || wrapped->named.load(std::memory_order_relaxed) || comm.hash == 0) return;
  if (wrapped->hash.load(std::memory_order_relaxed) == 0 && !EveryCallIsCounted()) return;
  Name(*wrapped, comm.hash);
  for (uint32_t i = 0; batch != nullptr && i < batch->call_count; ++i) {
    if (batch->calls[i].handle == handle) batch->calls[i].order = comm.hash;
  }
  if (told != nullptr && batch != nullptr) {
    const uint64_t collectives = told->collectives.load(std::memory_order_relaxed);
    const uint64_t transfers = told->transfers.load(std::memory_order_relaxed);
    wrapped->collectives.fetch_add(collectives, std::memory_order_relaxed);
    wrapped->transfers.fetch_add(transfers, std::memory_order_relaxed);
    for (uint32_t i = 0; i < batch->call_count; ++i) {
      if (batch->calls[i].handle != handle) continue;
      CollectiveEvent& event = batch->calls[i].event;
      event.seq += IsPointToPoint(static_cast<EntryPoint>(event.op)) ? transfers : collectives;
    }
    // Calls of the same group that went past the wrapper.
    Rename(*batch, &comm, handle, *wrapped);
    if (CallBatch* held = CallsOf(thread).held.load(std::memory_order_relaxed); held != nullptr)
      Rename(*held, &comm, handle, *wrapped);
  }
  ReportCommunicator(thread, *wrapped, wire::CommunicatorState::kCommunicatorStateCreated, EntryPoint::kCount,
                     comm.name.text());
}

void SetHow(CollectiveEvent& event, const PluginCall& call) noexcept {
  event.algorithm = NumberOfName(call.algorithm);
  event.protocol = NumberOfName(call.protocol);
  event.channels = call.channels;
}

// The wrapper's communicator for the one that NCCL reports; null if none.
Communicator* WrappersOwn(const PluginCommunicator& comm) noexcept {
  const void* handle = comm.handle.load(std::memory_order_relaxed);
  return handle != nullptr ? Find(handle) : FindByHash(comm.hash, comm.rank, &comm);
}

// The registry's key for the communicator, for either owner.
void* CommunicatorKey(PluginCommunicator& comm) noexcept {
  if (comm.owner.load(std::memory_order_relaxed) != Owner::kWrapper) return &comm;
  const Communicator* known = WrappersOwn(comm);
  return known == nullptr ? nullptr : PointerTo<void>(known->key.load(std::memory_order_relaxed));
}

// For a call that bypassed the wrapper on its communicator. If that may be non-blocking, the result is null:
// its calls arrive on NCCL's own threads although the wrapper saw them.
Communicator* WrappersIfBlocking(const PluginCommunicator& comm) noexcept {
  Communicator* known = WrappersOwn(comm);
  if (known == nullptr || known->blocking.load(std::memory_order_relaxed) != Blocking::kYes) return nullptr;
  return known;
}

// NCCL may report bytes where the application passed elements.
bool SameSize(const PendingCall& pending, const PluginCall& call) noexcept {
  return pending.event.count * pending.event.element_bytes == call.count * DataTypeBytes(call.datatype);
}

bool TellHowIf(CallBatch& batch, const PluginCall& call, bool other_sizes) noexcept {
  PendingCall* found = nullptr;
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    PendingCall& pending = batch.calls[i];
    if (pending.told || static_cast<EntryPoint>(pending.event.op) != call.op) continue;
    const bool same_size = SameSize(pending, call);
    if (same_size || (found == nullptr && other_sizes)) found = &pending;
    if (same_size) break;
  }
  if (found == nullptr) return false;
  found->told = true;
  SetHow(found->event, call);
  return true;
}

// Notes how NCCL runs a call that is waiting to be reported: the first pending one that matches.
void TellHow(CallBatch& batch, const void* argument) noexcept {
  TellHowIf(batch, *static_cast<const PluginCall*>(argument), true);
}

// A call as NCCL reports it; its times are the caller's to set.
CollectiveEvent ReportedEvent(const ThreadState& thread, const Communicator& comm, const PluginCall& call,
                              uint64_t seq) noexcept {
  CollectiveEvent event{};
  event.seq = seq;
  event.count = call.count;
  event.range_id = InnermostRange(thread);
  event.comm = comm.id.load(std::memory_order_relaxed);
  event.root = call.root;
  event.peer = call.peer;
  event.op = static_cast<uint16_t>(call.op);
  event.datatype = call.datatype;
  event.element_bytes = DataTypeBytes(call.datatype);
  event.source = static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin);
  SetHow(event, call);
  return event;
}

// The batch has room.
void AddReported(CallBatch& batch, const CollectiveEvent& event, const Communicator& comm, uint64_t stream,
                 bool told) noexcept {
  PendingCall& pending = batch.calls[batch.call_count];
  pending.event = event;
  pending.stream = stream;
  SetPlace(pending, &comm);
  pending.handle = PointerTo<void>(comm.key.load(std::memory_order_relaxed));
  pending.told = told;
  pending.ranks = comm.ranks.load(std::memory_order_relaxed);
  CountCall(batch);
}

uint64_t NextNumber(Communicator& comm, EntryPoint op) noexcept {
  return (IsPointToPoint(op) ? comm.transfers : comm.collectives).fetch_add(1, std::memory_order_relaxed);
}

// Adds a call that no wrapper saw to a group whose other calls they did see. It came before those, so their
// numbers move up.
void AddUnseen(ThreadState& thread, CallBatch& batch, PluginCommunicator& comm,
               const PluginCall& call) noexcept {
  const bool ours = OursAlready(thread, comm);
  Communicator* known = ours ? Find(&comm) : WrappersOwn(comm);
  if (known == nullptr || batch.call_count == batch.call_capacity) {
    CountLoss(known == nullptr ? wire::LossReason::kLossCommunicatorUnknown
                               : wire::LossReason::kLossEventRingFull);
    return;
  }
  const uint32_t id = known->id.load(std::memory_order_relaxed);
  const bool transfer = IsPointToPoint(call.op);
  uint64_t seq = NextNumber(*known, call.op);
  for (uint32_t i = batch.call_count; i > 0; --i) {
    CollectiveEvent& seen = batch.calls[i - 1].event;
    if (seen.comm != id || IsPointToPoint(static_cast<EntryPoint>(seen.op)) != transfer ||
        seen.source == static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin) || seen.seq >= seq) {
      continue;
    }
    seq = seen.seq++;
  }
  CollectiveEvent event = ReportedEvent(thread, *known, call, seq);
  event.issue_ns = event.return_ns = Stamp();
  AddReported(batch, event, *known,
              batch.launch_count == 0 ? 0 : batch.launches[batch.launch_count - 1].stream, /*told=*/true);
}

// Matches a call with those that the wrappers saw for this launch.
void TellBatch(ThreadState& thread, CallBatch& batch, PluginCommunicator& comm,
               const PluginCall& call) noexcept {
  // From version 5 on NCCL reports the application's calls as they are made, so none can be missing.
  const bool may_lack = batch.inits != nullptr && !reports_calls.load(std::memory_order_relaxed) &&
                        (batch.torn || MayBeInTornGroup(thread));
  const bool found = TellHowIf(batch, call, !may_lack);
  // If several are possible, the next call decides.
  if (comm.handle.load(std::memory_order_relaxed) == nullptr)
    TellWrapper(thread, &batch, comm, HandleOf(batch, comm, call));
  if (found || !may_lack || call.op == EntryPoint::kCount) return;
  for (uint32_t i = 0; i < batch.call_count && IsPointToPoint(call.op); ++i) {
    const auto op = static_cast<EntryPoint>(batch.calls[i].event.op);
    if (op != call.op && Fits(op, call.op)) return;  // NCCL made it of an all-to-all
  }
  AddUnseen(thread, batch, comm, call);
}

struct ToldOnNcclThread {
  ThreadState* thread;
  PluginCommunicator* comm;
  const PluginCall* call;
};

// As TellHow, for a call on a communicator that does not block: its first one names it.
void TellAwaitedCall(CallBatch& batch, const void* argument) noexcept {
  const auto& told = *static_cast<const ToldOnNcclThread*>(argument);
  TellHow(batch, told.call);
  if (told.comm->handle.load(std::memory_order_relaxed) == nullptr)
    TellWrapper(*told.thread, &batch, *told.comm, HandleOf(batch, *told.comm, *told.call));
}

void Record(ThreadState& thread, Communicator* known, const PluginCall& call) noexcept {
  if (known == nullptr) {
    CountLoss(wire::LossReason::kLossCommunicatorUnknown);
    return;
  }
  BypassingLaunch& launch = CallsOf(thread).bypassing;
  if (launch.plan == 0) {
    launch.plan = NewPlan();
    Emit(thread, PlanLaunchEvent{launch.plan, launch.correlation, 0, 0, 0, 0});
  }
  CollectiveEvent event = ReportedEvent(thread, *known, call, NextNumber(*known, call.op));
  event.issue_ns = launch.launch_ns;
  event.return_ns = Stamp();
  event.plan = launch.plan;
  Emit(thread, event);
  CountCall(event, known->ranks.load(std::memory_order_relaxed));
}

// Adds what the application's call of a send or receive lacks.
void TellApiGroup(ThreadState& thread, PluginCommunicator& comm, const PluginCall& call) noexcept {
  CallBatch* batch = CallsOf(thread).batch;
  if (batch == nullptr || !IsPointToPoint(call.op)) return;
  for (uint32_t i = 0; i < batch->call_count; ++i) {
    const PendingCall& pending = batch->calls[i];
    CollectiveEvent& event = batch->calls[i].event;
    if (pending.handle != CommunicatorKey(comm) || static_cast<EntryPoint>(event.op) != call.op ||
        event.count != call.count || event.peer >= 0) {
      continue;
    }
    event.peer = call.peer;
    return;
  }
}

// Names a communicator that NCCL finishes after the wrapper's call has returned.
void NameUnblocked(ThreadState& thread, PluginCommunicator& comm) noexcept {
  const Communicator* known = MadeWithoutBlocking() ? FindUnnamed(comm.rank, comm.ranks) : nullptr;
  if (known != nullptr)
    TellWrapper(thread, nullptr, comm, PointerTo<void>(known->key.load(std::memory_order_relaxed)));
}

// The communicator announced since `told_before`, on thread `tid` (0: any), that matches `made`; null if none
// does, or several do.
PluginCommunicator* OnlyTold(const Communicator& made, uint64_t told_before, uint32_t tid) noexcept {
  PluginCommunicator* found = nullptr;
  for (PluginCommunicator& comm : communicators) {
    if (!comm.in_use.load(std::memory_order_acquire) || comm.hash == 0 || comm.number < told_before ||
        (tid != 0 && comm.tid != tid) || comm.handle.load(std::memory_order_relaxed) != nullptr ||
        comm.rank != made.rank.load(std::memory_order_relaxed) ||
        comm.ranks != made.ranks.load(std::memory_order_relaxed)) {
      continue;
    }
    if (found != nullptr) return nullptr;
    found = &comm;
  }
  return found;
}

bool Readable(std::string_view folder) noexcept {
  TextBuffer<PATH_MAX> path;
  path.Add(folder).Add("/libnccl-profiler.so");
  return !folder.empty() && !path.cut() && access(path.c_str(), R_OK) == 0;
}

// NCCL would find such a plugin by itself.
bool PluginOnLoaderPath() noexcept {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}) {
    if (Readable(folder)) return true;
  }
  const char* path = ReadVariable("LD_LIBRARY_PATH");
  while (path != nullptr && *path != '\0') {
    const char* end = strchrnul(path, ':');
    if (Readable({path, static_cast<size_t>(end - path)})) return true;
    path = *end == '\0' ? end : end + 1;
  }
  return false;
}

bool IsSet(const char* variable) noexcept {
  const char* value = ReadVariable(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

PluginCommunicator* OpenPluginCommunicator(uint64_t hash, int32_t rank, int32_t ranks,
                                           const char* name) noexcept {
  const Guard guard;
  if (!guard) return nullptr;
  for (PluginCommunicator& comm : communicators) {
    bool expected = false;
    if (comm.in_use.load(std::memory_order_relaxed) ||
        !comm.in_use.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
      continue;
    }
    comm.hash = hash;
    comm.rank = rank;
    comm.ranks = ranks;
    comm.reported.store(0, std::memory_order_relaxed);
    CopyCommunicatorName(name, &comm.name);
    comm.handle.store(nullptr, std::memory_order_relaxed);
    comm.tid = guard.thread().tid;
    comm.number = communicators_told.fetch_add(1, std::memory_order_relaxed);
    const bool wrapped = InsideInterceptedCall(guard.thread());
    comm.owner.store(wrapped ? Owner::kWrapper : Owner::kUndecided, std::memory_order_release);
    reports_communicators.store(true, std::memory_order_relaxed);
    if (!wrapped && hash != 0) NameUnblocked(guard.thread(), comm);
    return &comm;
  }
  return nullptr;
}

uint64_t CommunicatorsTold() noexcept { return communicators_told.load(std::memory_order_relaxed); }

void TakeNameFromPlugin(void* handle, Communicator& made, uint64_t told_before) noexcept {
  if (CommunicatorsTold() == told_before) return;
  // Outside of groups NCCL makes it on the thread that asks for it; others may be making theirs.
  PluginCommunicator* told = OnlyTold(made, told_before, CurrentThread().tid);
  // NCCL may still be creating a non-blocking child while it announces other communicators.
  const bool late = made.blocking.load(std::memory_order_relaxed) == Blocking::kNo &&
                    made.parent.load(std::memory_order_relaxed) != 0;
  if (told == nullptr && !late) told = OnlyTold(made, told_before, 0);
  if (told == nullptr) return;
  told->handle.store(handle, std::memory_order_relaxed);
  told->owner.store(Owner::kWrapper, std::memory_order_release);
  Name(made, told->hash);
}

void ClosePluginCommunicator(PluginCommunicator* comm) noexcept {
  if (comm == nullptr) return;
  const Guard guard;
  if (guard) ResolveAwaited(guard.thread(), comm);
  const Communicator* known = Find(comm);
  if (guard && known != nullptr)
    ReportCommunicator(guard.thread(), *known, wire::CommunicatorState::kCommunicatorStateDestroyed);
  Remove(comm);
  comm->in_use.store(false, std::memory_order_release);
}

void NotePluginCall(PluginCommunicator* comm, const PluginCall& call) noexcept {
  const Guard guard;
  if (!guard) return;
  if (comm == nullptr) {
    if (!InsideInterceptedCall(guard.thread())) CountLoss(wire::LossReason::kLossCommunicatorUnknown);
    return;
  }
  if (call.comm_hash != 0 && comm->hash == 0) {
    comm->hash = call.comm_hash;
    comm->rank = call.rank;
  }
  ThreadState& thread = guard.thread();
  ThreadCalls& calls = CallsOf(thread);
  if (IsReported(calls)) {
    if (calls.batch != nullptr) TellHow(*calls.batch, &call);
    TellApiGroup(thread, *comm, call);
    return;
  }
  if (InsideInterceptedCall(thread)) {
    if (calls.batch != nullptr) {
      TellBatch(thread, *calls.batch, *comm, call);
    } else {
      TellAwaited(thread, TellHow, &call);
    }
    return;
  }
  if (EndedPastUs(calls)) {
    const EndedGroup ended(thread);
    if (ended.batch() != nullptr) TellBatch(thread, *ended.batch(), *comm, call);
    return;
  }
  const ToldOnNcclThread told{&thread, comm, &call};
  TellAwaited(thread, TellAwaitedCall, &told);
  if (calls.bypassing.correlation == 0 || call.op == EntryPoint::kCount) return;
  if (!std::exchange(calls.bypassing.reported, true)) launches_told.fetch_add(1, std::memory_order_relaxed);
  if (OursAlready(thread, *comm)) {
    Record(thread, Find(comm), call);
  } else if (Communicator* wrapped = WrappersIfBlocking(*comm); wrapped != nullptr) {
    Record(thread, wrapped, call);
  }
}

void BeginApiGroup() noexcept {
  const Guard guard;
  if (!guard) return;
  reports_calls.store(true, std::memory_order_relaxed);
  ThreadState& thread = guard.thread();
  if (thread.tid == 0) return;
  ThreadCalls& calls = CallsOf(thread);
  calls.end_due = true;
  // Calls from before belong to a group that has ended.
  if (EndedPastUs(calls)) ReportEndedGroup(thread);
  if (HoldsCalls(calls)) OutsideAllGroups(thread);
  if (InGroup(calls) || InsideInterceptedCall(thread)) return;
  BeginReported(calls);
  EnterNccl(thread);  // calls until its end are reported here, too
}

void NoteApiCall(PluginCommunicator* comm, const PluginCall& call, const void* stream) noexcept {
  const Guard guard;
  if (!guard || call.op == EntryPoint::kCount) return;
  ThreadState& thread = guard.thread();
  ThreadCalls& calls = CallsOf(thread);
  if (!IsReported(calls) && thread.nccl_call_depth != 0) {
    if (comm != nullptr && calls.batch != nullptr)
      TellWrapper(thread, calls.batch, *comm, HandleOfOpenCall(*calls.batch));
    return;
  }
  Communicator* known = nullptr;
  if (comm != nullptr) known = OursAlready(thread, *comm) ? Find(comm) : WrappersOwn(*comm);
  if (known == nullptr) {
    CountLoss(wire::LossReason::kLossCommunicatorUnknown);
    return;
  }
  ResolveAwaited(thread, PointerTo<void>(known->key.load(std::memory_order_relaxed)));
  // The call bypassed the wrappers: in a group of its own, in one whose start they saw, or in one in which
  // they saw a call.
  const bool open = IsReported(calls) || InGroup(calls);
  const bool first = calls.batch == nullptr;
  SingleBatch unseen;
  CallBatch* batch = open ? BatchOfGroup(calls) : unseen.Reset();
  // An NCCL thread may launch it before this thread gets the event of its end.
  if (IsReported(calls) && first && batch != nullptr) calls.awaited = Await(thread, batch);
  const uint64_t seq = NextNumber(*known, call.op);
  if (batch == nullptr || batch->call_count == batch->call_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
    return;
  }
  CollectiveEvent event = ReportedEvent(thread, *known, call, seq);
  event.issue_ns = event.return_ns = NowNs();
  AddReported(*batch, event, *known, NormalStream(stream), /*told=*/false);
  if (!open && !Hold(thread, *batch)) EmitBatch(thread, *batch);
}

namespace {

// Awaits the calls of a group whose end the wrappers missed, if an NCCL thread launches them.
bool AwaitEnded(ThreadState& thread) noexcept {
  ThreadCalls& calls = CallsOf(thread);
  CallBatch* batch = calls.ended.load(std::memory_order_relaxed);
  if (batch == nullptr || batch->launch_count != 0 || !LaunchesSomething(*batch)) return false;
  batch = Take(calls.ended);
  if (batch == nullptr) return true;
  ForgetEnded(calls);
  Awaited* awaited = Await(thread, batch);
  LeaveAwaited(awaited);
  if (awaited == nullptr) {
    EmitBatch(thread, *batch);
    ReleaseGroupBatch(batch);
  }
  return true;
}

}  // namespace

void EndApiGroup() noexcept {
  ThreadState& thread = CurrentThread();
  ThreadCalls& calls = CallsOf(thread);
  calls.end_due = false;
  if (!IsReported(calls)) {
    if (thread.nccl_call_depth != 0) return;
    const Guard guard;
    if (!guard) return;
    NoteEndPastUs(thread);
    if (!AwaitEnded(thread)) ReportEndedGroup(thread);
    return;
  }
  --thread.nccl_call_depth;
  Awaited* awaited = nullptr;
  CallBatch* batch = EndReported(calls, &awaited);
  if (batch == nullptr) return;
  if (awaited != nullptr && batch->launch_count == 0 && LaunchesSomething(*batch)) {
    LeaveAwaited(awaited);
    return;
  }
  if (awaited != nullptr && StopAwaiting(awaited) == nullptr) return;
  if (const Guard guard; guard) {
    EmitBatch(thread, *batch);
    OutsideAllGroups(thread);
  }
  ReleaseGroupBatch(batch);
}

void EndPluginGroup() noexcept {
  const Guard guard;
  if (!guard) return;
  CallsOf(guard.thread()).bypassing = {};
}

void NotePluginLaunch(ThreadState& thread, uint32_t correlation) noexcept {
  launches_past_us.fetch_add(1, std::memory_order_relaxed);
  if (!reports_communicators.load(std::memory_order_relaxed)) return;
  CallsOf(thread).bypassing = {.correlation = correlation, .launch_ns = Stamp()};
}

uint64_t NextReported(PluginCommunicator* comm) noexcept {
  return comm->reported.fetch_add(1, std::memory_order_relaxed);
}

uint32_t IdOf(const PluginCommunicator* comm) noexcept {
  const bool is_plugins = comm->owner.load(std::memory_order_acquire) == Owner::kPlugin;
  const Communicator* known = is_plugins ? Find(comm) : WrappersOwn(*comm);
  return known == nullptr ? 0 : known->id.load(std::memory_order_relaxed);
}

void OfferPlugin() noexcept {
  for (const char* variable : {"NCCL_PROFILER_PLUGIN", "NCCL_NET_PLUGIN"}) {
    if (IsSet(variable)) return;
  }
  Dl_info info{};
  static constinit char path[PATH_MAX] = {};
  if (dladdr(reinterpret_cast<void*>(&OfferPlugin), &info) == 0 || info.dli_fname == nullptr ||
      realpath(info.dli_fname, path) == nullptr || strlen(path) > kMaxPluginPath || PluginOnLoaderPath()) {
    return;
  }
  AnswerVariable("NCCL_PROFILER_PLUGIN", path);
}

}  // namespace gpuprobe::injector::nccl
