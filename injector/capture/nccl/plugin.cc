#include "injector/capture/nccl/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>

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
#include "injector/capture/nccl/torn_groups.h"
#include "injector/core/event_ring.h"
#include "injector/core/guard.h"
#include "injector/core/host_clock.h"
#include "injector/core/step_gate.h"

namespace gpuprobe::injector::nccl {

// Who records the communicator's calls. Decided at its first one, because NCCL tells of a communicator before
// the call that makes it returns to a wrapper.
enum class Owner : uint8_t { kUndecided, kPlugin, kWrapper };

struct PluginCommunicator {
  std::atomic<bool> in_use;
  std::atomic<Owner> owner;
  std::atomic<void*> handle;  // the wrapper's, once a call was seen by both
  uint64_t hash;
  int32_t rank;
  int32_t ranks;
  CommunicatorName name;
};

namespace {

constinit PluginCommunicator communicators[kPluginCommunicators] = {};
constinit std::atomic<bool> any{false};

// NCCL kernels that bypassed the wrappers, and those whose calls NCCL reported afterwards. It reports none of
// a captured plan.
constinit std::atomic<uint64_t> launches_past_us{0};
constinit std::atomic<uint64_t> launches_told{0};
constinit std::atomic<bool> api_is_told{false};

// False when some calls were not counted: then a communicator that is met late has numbers of its own, which
// must not be compared with those of other ranks.
bool EveryCallIsCounted() noexcept {
  return api_is_told.load(std::memory_order_relaxed) ||
         launches_past_us.load(std::memory_order_relaxed) == launches_told.load(std::memory_order_relaxed);
}

constexpr size_t kMaxPluginPath = 254;  // NCCL's own limit

bool InsideInterceptedCall(const ThreadState& thread) noexcept {
  return thread.nccl_call_depth != 0 || thread.nccl_batch != nullptr;
}

bool OursAlready(ThreadState& thread, PluginCommunicator& comm) noexcept {
  Owner owner = comm.owner.load(std::memory_order_acquire);
  if (owner != Owner::kUndecided) return owner == Owner::kPlugin;
  const bool wrapped = FindByHash(comm.hash, comm.rank, &comm) != nullptr || MadeWithoutBlocking();
  const Owner decided = wrapped ? Owner::kWrapper : Owner::kPlugin;
  if (!comm.owner.compare_exchange_strong(owner, decided)) return owner == Owner::kPlugin;
  if (wrapped) return false;
  if (const Communicator* known = Register(&comm, {comm.hash, 0, comm.rank, comm.ranks, -1});
      known != nullptr)
    ReportCommunicator(thread, *known, wire::CommunicatorState::kCommunicatorStateCreated, EntryPoint::kCount,
                       comm.name.text());
  return true;
}

// NCCL makes all-to-all, gather and scatter of sends and receives.
bool Fits(EntryPoint issued, EntryPoint told) noexcept {
  return issued == told ||
         (IsPointToPoint(told) && (issued == EntryPoint::kAlltoAll || issued == EntryPoint::kGather ||
                                   issued == EntryPoint::kScatter));
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
    const bool other = (hash != 0 && comm.hash != 0 && hash != comm.hash) ||
                       (rank >= 0 && comm.rank >= 0 && rank != comm.rank) ||
                       (issued.ranks > 0 && comm.ranks > 0 && issued.ranks != comm.ranks);
    if (other || issued.handle == found) continue;
    if (found != nullptr) return nullptr;
    found = issued.handle;
  }
  return found;
}

// The calls on `from` are on the wrappers' communicator.
void Rename(CallBatch& batch, const void* from, void* to, const Communicator& wrapped) noexcept {
  for (uint32_t i = 0; i < batch.call_count; ++i) {
    PendingCall& pending = batch.calls[i];
    if (pending.handle != from) continue;
    pending.handle = to;
    pending.event.comm = wrapped.id.load(std::memory_order_relaxed);
  }
}

// The wrapper may not have seen how its communicator was made: the hash and the calls before are known here.
void TellWrapper(ThreadState& thread, CallBatch* batch, PluginCommunicator& comm,
                 const PluginCall& call) noexcept {
  if (comm.owner.load(std::memory_order_relaxed) == Owner::kWrapper || batch == nullptr) return;
  void* handle = HandleOf(*batch, comm, call);
  if (handle == nullptr) return;  // the next call will tell
  Communicator* wrapped = Find(handle);
  const Communicator* told = Find(&comm);
  comm.handle.store(handle, std::memory_order_relaxed);
  comm.owner.store(Owner::kWrapper, std::memory_order_release);
  if (wrapped == nullptr || wrapped->hash.load(std::memory_order_relaxed) != 0) return;
  if (!EveryCallIsCounted()) return;
  wrapped->hash.store(comm.hash, std::memory_order_relaxed);
  if (told != nullptr) {
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
    if (CallBatch* held = thread.nccl_held.load(std::memory_order_relaxed); held != nullptr)
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

// The wrapper's communicator that NCCL tells of.
Communicator* WrappersOwn(const PluginCommunicator& comm) noexcept {
  const void* handle = comm.handle.load(std::memory_order_relaxed);
  return handle != nullptr ? Find(handle) : FindByHash(comm.hash, comm.rank, &comm);
}

// The registry's key for the communicator, whoever owns it.
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
  uint64_t seq = (transfer ? known->transfers : known->collectives).fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = batch.call_count; i > 0; --i) {
    CollectiveEvent& seen = batch.calls[i - 1].event;
    if (seen.comm != id || IsPointToPoint(static_cast<EntryPoint>(seen.op)) != transfer ||
        seen.source == static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin) || seen.seq >= seq) {
      continue;
    }
    seq = seen.seq++;
  }
  PendingCall& pending = batch.calls[batch.call_count];
  CollectiveEvent& event = pending.event;
  event = {};
  event.issue_ns = event.return_ns = Stamp();
  event.seq = seq;
  event.count = call.count;
  event.range_id = InnermostRange(thread);
  event.comm = id;
  event.root = call.root;
  event.peer = call.peer;
  event.op = static_cast<uint16_t>(call.op);
  event.datatype = call.datatype;
  event.element_bytes = DataTypeBytes(call.datatype);
  event.source = static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin);
  SetHow(event, call);
  pending.stream = batch.launch_count == 0 ? 0 : batch.launches[batch.launch_count - 1].stream;
  SetPlace(pending, known);
  pending.handle = PointerTo<void>(known->key.load(std::memory_order_relaxed));
  pending.told = true;
  pending.ranks = known->ranks.load(std::memory_order_relaxed);
  CountCall(batch);
}

// Matches a call with those that the wrappers saw for this launch.
void TellBatch(ThreadState& thread, CallBatch& batch, PluginCommunicator& comm,
               const PluginCall& call) noexcept {
  // From version 5 on NCCL reports the application's calls as they are made, so none can be missing.
  const bool may_lack = batch.inits != nullptr && !api_is_told.load(std::memory_order_relaxed) &&
                        (batch.torn || MayBeInTornGroup(thread));
  const bool found = TellHowIf(batch, call, !may_lack);
  TellWrapper(thread, &batch, comm, call);
  if (found || !may_lack || call.op == EntryPoint::kCount) return;
  for (uint32_t i = 0; i < batch.call_count && IsPointToPoint(call.op); ++i) {
    const auto op = static_cast<EntryPoint>(batch.calls[i].event.op);
    if (op != call.op && Fits(op, call.op)) return;  // NCCL made it of an all-to-all
  }
  AddUnseen(thread, batch, comm, call);
}

void Record(ThreadState& thread, Communicator* known, const PluginCall& call) noexcept {
  if (known == nullptr) {
    CountLoss(wire::LossReason::kLossCommunicatorUnknown);
    return;
  }
  if (thread.nccl_plugin_plan == 0) {
    thread.nccl_plugin_plan = NewPlan();
    Emit(thread, PlanLaunchEvent{thread.nccl_plugin_plan, thread.nccl_plugin_correlation, 0, 0, 0, 0});
  }
  auto& sequence = IsPointToPoint(call.op) ? known->transfers : known->collectives;
  CollectiveEvent event{};
  event.issue_ns = thread.nccl_plugin_launch_ns;
  event.return_ns = Stamp();
  event.seq = sequence.fetch_add(1, std::memory_order_relaxed);
  event.count = call.count;
  event.plan = thread.nccl_plugin_plan;
  event.range_id = InnermostRange(thread);
  event.comm = known->id.load(std::memory_order_relaxed);
  event.root = call.root;
  event.peer = call.peer;
  event.op = static_cast<uint16_t>(call.op);
  event.datatype = call.datatype;
  event.source = static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin);
  event.element_bytes = DataTypeBytes(call.datatype);
  SetHow(event, call);
  Emit(thread, event);
  if (step_gate.watches_calls()) step_gate.Issued(OpName(event.op));
}

// What the application's call of a send or receive did not say.
void TellApiGroup(ThreadState& thread, PluginCommunicator& comm, const PluginCall& call) noexcept {
  CallBatch* batch = thread.nccl_batch;
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
  const char* path = getenv("LD_LIBRARY_PATH");
  while (path != nullptr && *path != '\0') {
    const char* end = strchrnul(path, ':');
    if (Readable({path, static_cast<size_t>(end - path)})) return true;
    path = *end == '\0' ? end : end + 1;
  }
  return false;
}

bool IsSet(const char* variable) noexcept {
  const char* value = getenv(variable);
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
    CopyCommunicatorName(name, &comm.name);
    comm.handle.store(nullptr, std::memory_order_relaxed);
    const bool wrapped = InsideInterceptedCall(guard.thread());
    comm.owner.store(wrapped ? Owner::kWrapper : Owner::kUndecided, std::memory_order_release);
    any.store(true, std::memory_order_relaxed);
    return &comm;
  }
  return nullptr;
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
  if (thread.nccl_api_group) {
    if (thread.nccl_batch != nullptr) TellHow(*thread.nccl_batch, &call);
    TellApiGroup(thread, *comm, call);
    return;
  }
  if (InsideInterceptedCall(thread)) {
    if (thread.nccl_batch != nullptr) {
      TellBatch(thread, *thread.nccl_batch, *comm, call);
    } else {
      TellAwaited(thread, TellHow, &call);
    }
    return;
  }
  if (EndedPastUs(thread)) {
    const EndedGroup ended(thread);
    if (ended.batch() != nullptr) TellBatch(thread, *ended.batch(), *comm, call);
    return;
  }
  TellAwaited(thread, TellHow, &call);
  if (thread.nccl_plugin_correlation == 0 || call.op == EntryPoint::kCount) return;
  if (!thread.nccl_plugin_told) launches_told.fetch_add(1, std::memory_order_relaxed);
  thread.nccl_plugin_told = true;
  if (OursAlready(thread, *comm)) {
    Record(thread, Find(comm), call);
  } else if (Communicator* wrapped = WrappersIfBlocking(*comm); wrapped != nullptr) {
    Record(thread, wrapped, call);
  }
}

void BeginApiGroup() noexcept {
  const Guard guard;
  if (!guard) return;
  api_is_told.store(true, std::memory_order_relaxed);
  ThreadState& thread = guard.thread();
  if (thread.tid == 0) return;
  thread.nccl_api_open = true;
  // Calls from before belong to a group that has ended.
  if (EndedPastUs(thread)) ReportEndedGroup(thread);
  if (HoldsCalls(thread)) OutsideAllGroups(thread);
  if (thread.nccl_group_depth != 0 || InsideInterceptedCall(thread)) return;
  thread.nccl_api_group = true;
  EnterNccl(thread);  // calls until its end are reported here, too
}

void NoteApiCall(PluginCommunicator* comm, const PluginApiCall& call) noexcept {
  const Guard guard;
  if (!guard || call.op == EntryPoint::kCount) return;
  ThreadState& thread = guard.thread();
  if (!thread.nccl_api_group && thread.nccl_call_depth != 0) {
    if (comm != nullptr)
      TellWrapper(thread, thread.nccl_batch, *comm,
                  {call.op, call.datatype, call.root, -1, call.count, 0, comm->rank});
    return;
  }
  Communicator* known = nullptr;
  if (comm != nullptr) known = OursAlready(thread, *comm) ? Find(comm) : WrappersOwn(*comm);
  if (known == nullptr) {
    CountLoss(wire::LossReason::kLossCommunicatorUnknown);
    return;
  }
  void* key = PointerTo<void>(known->key.load(std::memory_order_relaxed));
  ResolveAwaited(thread, key);
  // The call bypassed the wrappers: in a group of its own, in one whose start they saw, or in one in which
  // they saw a call.
  const bool open = thread.nccl_api_group || thread.nccl_group_depth != 0;
  if (open && thread.nccl_batch == nullptr) {
    thread.nccl_batch = ClaimGroupBatch();
    // An NCCL thread may launch it before this thread gets the event of its end.
    if (thread.nccl_batch != nullptr && thread.nccl_api_group)
      thread.nccl_api_awaited = Await(thread, thread.nccl_batch);
  }
  SingleBatch unseen;
  CallBatch* batch = open ? thread.nccl_batch : unseen.Reset();
  const uint64_t seq = (IsPointToPoint(call.op) ? known->transfers : known->collectives)
                           .fetch_add(1, std::memory_order_relaxed);
  if (batch == nullptr || batch->call_count == batch->call_capacity) {
    CountLoss(wire::LossReason::kLossEventRingFull);
    return;
  }
  PendingCall& pending = batch->calls[batch->call_count];
  CollectiveEvent& event = pending.event;
  event = {};
  event.issue_ns = event.return_ns = NowNs();
  event.seq = seq;
  event.count = call.count;
  event.range_id = InnermostRange(thread);
  event.comm = known->id.load(std::memory_order_relaxed);
  event.root = call.root;
  event.peer = -1;
  event.op = static_cast<uint16_t>(call.op);
  event.datatype = call.datatype;
  event.element_bytes = DataTypeBytes(call.datatype);
  event.source = static_cast<uint8_t>(wire::CallSource::kCallSourcePlugin);
  pending.stream = NormalStream(call.stream);
  SetPlace(pending, known);
  pending.handle = key;
  pending.told = false;
  pending.ranks = known->ranks.load(std::memory_order_relaxed);
  CountCall(*batch);
  if (!open && !Hold(thread, *batch)) EmitBatch(thread, *batch);
}

namespace {

// Awaits the calls of a group whose end the wrappers missed, if an NCCL thread launches them.
bool AwaitEnded(ThreadState& thread) noexcept {
  CallBatch* batch = thread.nccl_ended.load(std::memory_order_relaxed);
  if (batch == nullptr || batch->launch_count != 0 || !LaunchesSomething(*batch)) return false;
  batch = thread.nccl_ended.exchange(nullptr, std::memory_order_acquire);
  if (batch == nullptr) return true;
  thread.nccl_group_ended = false;
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
  thread.nccl_api_open = false;
  if (!thread.nccl_api_group) {
    if (thread.nccl_call_depth != 0) return;
    const Guard guard;
    if (!guard) return;
    NoteEndPastUs(thread);
    if (!AwaitEnded(thread)) ReportEndedGroup(thread);
    return;
  }
  thread.nccl_api_group = false;
  --thread.nccl_call_depth;
  CallBatch* batch = thread.nccl_batch;
  Awaited* awaited = thread.nccl_api_awaited;
  thread.nccl_batch = nullptr;
  thread.nccl_api_awaited = nullptr;
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

bool ApiIsTold() noexcept { return api_is_told.load(std::memory_order_relaxed); }

bool PluginIsTold() noexcept { return any.load(std::memory_order_relaxed); }

void EndPluginGroup() noexcept {
  const Guard guard;
  if (!guard) return;
  guard.thread().nccl_plugin_correlation = 0;
  guard.thread().nccl_plugin_plan = 0;
}

void NotePluginLaunch(ThreadState& thread, uint32_t correlation) noexcept {
  launches_past_us.fetch_add(1, std::memory_order_relaxed);
  if (!any.load(std::memory_order_relaxed)) return;
  thread.nccl_plugin_told = false;
  thread.nccl_plugin_correlation = correlation;
  thread.nccl_plugin_plan = 0;
  thread.nccl_plugin_launch_ns = Stamp();
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

void ClearPluginForTest() noexcept {
  for (PluginCommunicator& comm : communicators) comm.in_use.store(false);
  any.store(false);
  api_is_told.store(false);
  launches_past_us.store(0);
  launches_told.store(0);
}

}  // namespace gpuprobe::injector::nccl
