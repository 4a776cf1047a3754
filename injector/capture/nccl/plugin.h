// Records NCCL calls from NCCL's own reports to its profiler plugin: calls into a statically linked NCCL, and
// others that bypass our wrappers.
//
// NCCL announces the calls of a plan, inside a group, on the thread that has just launched the plan's kernel,
// so they belong to the last NCCL kernel launched on that thread. If a wrapper sees a call as well, the
// wrapper records it. A communicator is named by the hash that NCCL's log prints as soon as NCCL reports it:
// usually while the communicator is made, else with its first call. A call that bypasses the wrappers on one
// of their communicators is recorded here under that communicator. A communicator that a wrapper meets late
// gets its hash only if every earlier call was reported, so that its calls have the same numbers as on the
// other ranks. A replay of a captured plan is announced on a CUDA thread that launched nothing: it is not
// recorded here, and its kernels are known by name.
//
// Thread: the application's, or one of NCCL's own, inside the guard. Allocation: none; a fixed pool of
// communicators. Failure: beyond these places, a communicator's calls are counted as
// LOSS_COMMUNICATOR_UNKNOWN. NCCL always gets ncclSuccess.
#pragma once

#include <cstdint>

#include "injector/capture/nccl/communicators.h"
#include "injector/capture/nccl/entry_points.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

inline constexpr uint32_t kPluginCommunicators = 1024;

struct PluginCommunicator;

// A call as one of the plugin's versions reports it.
struct PluginCall {
  EntryPoint op;  // kCount: not known
  uint8_t datatype;
  int32_t root;
  int32_t peer;
  uint64_t count;
  uint64_t comm_hash = 0;  // 0: reported when the communicator was made
  int32_t rank = -1;
  const char* algorithm = nullptr;  // "RING"; null: not known
  const char* protocol = nullptr;   // "LL"
  uint8_t channels = 0;
};

// A communicator is made. Null when the probe is off or has no place for it. `ranks` 0, `rank` -1 and `name`
// null: not known.
PluginCommunicator* OpenPluginCommunicator(uint64_t hash, int32_t rank, int32_t ranks,
                                           const char* name) noexcept;
void ClosePluginCommunicator(PluginCommunicator* comm) noexcept;

// How many communicators NCCL has announced so far.
uint64_t CommunicatorsTold() noexcept;
// Gives a communicator that a wrapper has just made the hash that NCCL announced since `told_before`, if
// exactly one announced communicator matches. If several do (made in one group, or non-blocking), its first
// call names it.
void TakeNameFromPlugin(void* handle, Communicator& made, uint64_t told_before) noexcept;

void NotePluginCall(PluginCommunicator* comm, const PluginCall& call) noexcept;
// All calls of a plan have been reported.
void EndPluginGroup() noexcept;

// From version 5 on, the application's calls on its thread, before anything is launched: the first of a
// group, explicit or of a single call; each of its calls; its end on this thread, launched unless its
// communicators are non-blocking. A group whose start the wrappers missed is recorded here to its end, even
// when it is captured.
void BeginApiGroup() noexcept;
void NoteApiCall(PluginCommunicator* comm, const PluginCall& call, const void* stream) noexcept;
void EndApiGroup() noexcept;

// An NCCL kernel was launched on this thread outside of every intercepted call.
void NotePluginLaunch(ThreadState& thread, uint32_t correlation) noexcept;

// The number of the next collective that NCCL reports on the communicator, from 0: all ranks count alike.
uint64_t NextReported(PluginCommunicator* comm) noexcept;
// Communicator.id; 0: not known.
uint32_t IdOf(const PluginCommunicator* comm) noexcept;

// Puts this library into NCCL_PROFILER_PLUGIN, unless the user chose a plugin: by NCCL's variables for
// profiler or network plugins, or with a libnccl-profiler.so where the loader looks. At start, before NCCL
// reads it.
void OfferPlugin() noexcept;

}  // namespace gpuprobe::injector::nccl
