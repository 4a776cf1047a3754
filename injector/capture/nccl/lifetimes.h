// Follows communicators from creation to end: the functions that write the registry or look it up for a call,
// and the events about it.
//
// Communicators live longer than the scopes of calls. Thread: the application's, inside the guard.
// Allocation: none. Failure: no place in the registry is counted as LOSS_COMMUNICATOR_UNKNOWN for each call;
// what NCCL does not answer stays unknown.
#pragma once

#include <string_view>

#include "injector/capture/nccl/calls.h"
#include "injector/capture/nccl/communicators.h"
#include "injector/core/thread_state.h"

namespace gpuprobe::injector::nccl {

// The communicator of a call. One whose creation was not seen is entered now, without a hash; what is not
// known of it is asked of NCCL through the functions of `way`. Null, and counted, when there is no place for
// it.
Communicator* KnownCommunicator(ThreadState& thread, const void* handle, int way) noexcept;

// A communicator was made: reads the handle that NCCL wrote, registers and reports it. `ready`: NCCL may be
// asked about it.
void AddCommunicator(ThreadState& thread, const PendingInit& init, int way, bool ready) noexcept;

// The thread has come back from the call, or the outermost end of the group, that creates a communicator.
// `handle`: the communicator's; NCCL may go on with it in the background.
void EndCreation(const ThreadState& thread, ncclResult_t result, const void* handle) noexcept;

// The event about a communicator as it is known now. `made_by`: where it has just been made. `name`: empty if
// it has none, or was reported with it before.
void ReportCommunicator(ThreadState& thread, const Communicator& comm, wire::CommunicatorState state,
                        EntryPoint made_by = EntryPoint::kCount, std::string_view name = {}) noexcept;

// True once a non-blocking communicator was made through us (NCCL goes on in the background): its kernels are
// launched from NCCL's own threads.
bool MadeWithoutBlocking() noexcept;

}  // namespace gpuprobe::injector::nccl
