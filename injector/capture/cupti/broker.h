// Shares CUPTI with another tool inside the program, our guest: torch.profiler or XLA's profiler, say.
//
// CUPTI has one subscriber, one pair of buffer callbacks and one clock for the whole process, and they are
// ours. So we redirect the other tool's calls here, by patched relocations, by the symbol table of libcupti
// and by dlsym (injector/capture/nccl/patching.cc), and give it what it would have without us: a subscription
// (ours, of which it gets the callbacks that it enables), activity kinds (the union of both is enabled) and
// buffers of its own, into which the records of its kinds are copied as our buffers complete. Neither side
// misses anything.
//
// Once the guest registers a clock, CUPTI uses it for good, and our times are converted back. A guest's
// cuptiFinalize ends the guest. GRAPH_TRACE is refused once the program has made a CUDA graph (session.h says
// why). There is one guest at a time, as CUPTI has one subscriber.
//
// From CUPTI 13.4 on there may be several (many_subscribers.h). Then a tool that subscribes with
// cuptiSubscribe_v2 gets a subscription of its own from CUPTI, and only the others are our guests. With an
// older CUPTI or driver, cuptiSubscribe_v2 fails as it would beside any other tool, and the tool may then use
// the old function.
//
// This header redirects a tool's calls to us. They are answered in a file for each subject: guest_callbacks.h
// (its subscription), guest_records.h (which records are its), guest_buffers.h (how they reach it) and
// guest_clock.h (its clock).
//
// Thread: the guest's own for its calls; for callbacks and records whichever CUPTI picks, as it would be
// without us. The guest's functions are called with no lock of ours held and outside our guard. Allocation:
// none. Failure: a tool with a newer CUPTI of its own, or a statically linked one, is not served; its
// subscription fails as it does beside any other profiler.
#pragma once

#include <cstdint>

#include "injector/capture/cupti/function_table.h"

namespace gpuprobe::injector {

// What the broker needs from the session.
struct BrokerHost {
  CUpti_SubscriberHandle subscriber = nullptr;
  bool others_allowed = false;  // CUPTI has several subscribers (many_subscribers.h)
  // Whether we need this kind or callback to stay enabled.
  bool (*needs_kind)(void* self, CUpti_ActivityKind kind) noexcept = nullptr;
  bool (*needs_callback)(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) noexcept = nullptr;
  // The program has made a CUDA graph.
  bool (*graphs_made)() noexcept = nullptr;
  // Registers our buffer callbacks with CUPTI again: a tool's call that began before we subscribed may have
  // replaced them afterwards.
  void (*take_buffers_back)(void* self) noexcept = nullptr;
  // Has CUPTI hand over the records of what is done. May wait for CUPTI's thread.
  void (*flush)(void* self) noexcept = nullptr;
  void* self = nullptr;
  uint32_t precautions = 0;  // proto/cupti_versions.h
};

// Before anything is patched: calls that come to us go through to CUPTI until guests are received, and are
// remembered. What a tool that had CUPTI before us still has enabled when it leaves makes it our guest.
// `api` acts on our subscription once there is one, and is CUPTI itself until then.
void WatchForGuests(const CuptiApi* api) noexcept;
// From now on guests are received: we have subscribed, and have not yet registered or enabled anything.
void ReceiveGuests(const BrokerHost& host) noexcept;
// From now on guests' calls go to CUPTI itself.
void SendGuestsAway() noexcept;

// A function of CUPTI's that leads to us.
struct Redirection {
  const char* name;
  void* real;
  void* ours;
};
// Visits them; none before WatchForGuests.
void ForEachRedirection(void (*visit)(const Redirection& redirection, void* data) noexcept,
                        void* data) noexcept;

// The replacement for a slot of this name and value (null: not resolved yet); null: leave it.
void* BrokerReplacement(const char* symbol, const void* value) noexcept;
// The same for an answer of dlsym. A tool that brings its own libcupti gets the functions of ours if ours is
// as new or newer, because the driver serves one copy: each record starts with the older record's members.
void* BrokerAnswer(void* handle, const char* symbol, const void* value) noexcept;

}  // namespace gpuprobe::injector
