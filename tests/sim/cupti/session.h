// The state behind the CUPTI functions: the first subscriber, what it enabled, and its buffers. Others, where
// CUPTI has several, are in company.h. session.cc is about who listens to what, finished_work.cc about what
// becomes a record.
//
// Separate from the exported functions, which only check their arguments, and from the hooks, through which
// the driver reports. One object a process, never destroyed: worker and application threads may still use it
// while the process exits.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tests/sim/cupti/attributes.h"
#include "tests/sim/cupti/buffers.h"
#include "tests/sim/cupti/company.h"
#include "tests/sim/cupti/knobs.h"
#include "tests/sim/cupti/layout.h"
#include "tests/sim/cupti/live_objects.h"
#include "tests/sim/cupti/record_clock.h"
#include "tests/sim/cupti/v2.h"

namespace gpusim::cupti {

constexpr uint32_t kKindLimit = 64;

struct Subscriber {
  std::atomic<CUpti_CallbackFunc> callback{nullptr};
  std::atomic<void*> userdata{nullptr};
  std::string name;
};

class Session {
 public:
  Session();

  // Callbacks.
  CUptiResult Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* userdata,
                        SubscriberParams* params);
  CUptiResult Unsubscribe(CUpti_SubscriberHandle handle);
  void UnsubscribeCurrent();
  // Of the first subscriber; the others are in the company.
  bool IsCurrent(CUpti_SubscriberHandle handle) const;
  bool KernelsKeepNames() const { return knobs_.defects.kernels_keep_names; }
  Company& GetCompany() { return company_; }
  // A subscriber is here that allows others.
  bool ManyAllowed() const { return many_allowed_.load(std::memory_order_relaxed); }
  // False if there is no such domain or id. `cbid` -1: all of the domain.
  bool SetCallback(bool enable, int domain, int64_t cbid);
  bool CallbackEnabled(int domain, uint32_t cbid) const {
    return domain > 0 && domain < CUPTI_CB_DOMAIN_SIZE && cbid < callbacks_[domain].size() &&
           callbacks_[domain][cbid].load(std::memory_order_relaxed);
  }
  // Whether a subscriber has it enabled.
  bool SomebodyListens(int domain, uint32_t cbid) {
    return CallbackEnabled(domain, cbid) || company_.Listens(domain, cbid);
  }
  // Calls those that listen; the CUDA calls that they make are not traced.
  void Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data);

  // Activity kinds.
  void SetKind(uint32_t kind, bool enable);
  bool KindEnabled(uint32_t kind) const {
    return kind < kKindLimit && kinds_[kind].load(std::memory_order_relaxed);
  }
  bool SomebodyRecords() { return AnyKindEnabled() || company_.AnyKindEnabled(); }
  bool AnyKindEnabled() const { return kinds_enabled_.load(std::memory_order_relaxed) > 0; }
  // CONCURRENT_KERNEL or KERNEL, 0 if neither is enabled.
  uint32_t KernelKind() const;
  // RUNTIME and DRIVER records of single functions.
  void SetApiFilter(int domain, uint32_t cbid, bool enable);
  bool ApiRecordWanted(int domain, uint32_t cbid) const;

  // Records about what exists: the device, context and stream kinds.
  void Dump(uint32_t kind) { objects_.Dump(kind); }
  void ContextCreated(void* context) {
    objects_.ContextCreated(context, KindEnabled(CUPTI_ACTIVITY_KIND_CONTEXT));
  }
  void ContextDestroyed(void* context) {
    objects_.ContextDestroyed(context);
    buffers_.UnreserveAll();
  }
  void StreamCreated(void* context, void* stream, uint32_t correlation) {
    objects_.StreamCreated(context, stream, correlation, KindEnabled(CUPTI_ACTIVITY_KIND_STREAM));
  }
  void StreamDestroyed(void* stream) { objects_.StreamDestroyed(stream); }

  CUptiResult RegisterClock(CUpti_TimestampCallbackFunc function);

  // An executable graph was made: whether launches as a whole were recorded then decides what may follow.
  void ExecutableMade(uint32_t graph);

  // Work that finished; applies the faults.
  void Finished(const Activity& activity);
  CUptiResult Flush(bool forced);
  // A kernel was launched by this call; its first launch in the process loads it.
  void Launched(const ApiCall& call);

  uint32_t ThreadId() const;
  std::atomic<int>& ThreadIdType() { return thread_id_type_; }
  Buffers& GetBuffers() { return buffers_; }
  const Knobs& GetKnobs() const { return knobs_; }
  CUptiResult SetAttribute(int attribute, size_t* size, const void* value);
  CUptiResult GetAttribute(int attribute, size_t* size, void* value) {
    return attributes_.Get(attribute, size, value);
  }

  // Per-thread stacks of external correlation ids.
  std::map<uint32_t, std::vector<uint64_t>>& ExternalIds();

  // Taken by every exported function, and over buffer callbacks, when GPUSIM_FAULT=lock_over_callbacks.
  std::recursive_mutex& ApiMutex() { return api_mutex_; }

 private:
  // Records what took time beside the program's work, and writes it to the truth log as `name`.
  void AddOverhead(const char* name, const OverheadSpan& span);
  // Gives a kernel's record the wrong times that faults and this version's defects ask for.
  void SpoilTimes(Activity* record);
  // Counts a kernel of an executable graph; true when there is no device buffer left for it.
  bool GraphBuffersUsedUp(uint32_t graph);
  bool IsNth(uint64_t every, std::atomic<uint64_t>* counter) const;
  // A GRAPH_TRACE record gathers until all of the launch's work has ended; one that began before the kind was
  // enabled never does.
  void AddGraphPart(const Activity& activity);

  const Knobs& knobs_;
  Buffers buffers_;
  LiveObjects objects_;
  RecordClock clock_;
  Company company_;
  std::atomic<bool> many_allowed_{false};
  std::recursive_mutex api_mutex_;

  mutable std::mutex mutex_;
  std::array<Subscriber, 2> subscribers_;  // handles alternate, so that a stale one is recognised
  std::atomic<Subscriber*> current_{nullptr};
  size_t next_subscriber_ = 0;
  std::array<std::vector<std::atomic<bool>>, CUPTI_CB_DOMAIN_SIZE> callbacks_;

  std::array<std::atomic<bool>, kKindLimit> kinds_{};
  std::atomic<int> kinds_enabled_{0};
  std::array<std::unordered_map<uint32_t, bool>, 3> api_filter_;
  std::atomic<bool> has_api_filter_{false};
  Attributes attributes_;
  std::atomic<int> thread_id_type_{CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT};

  std::unordered_map<uint32_t, GraphRun> graph_runs_;  // by the launch's correlation
  std::unordered_set<uint32_t> made_without_graph_trace_;
  std::unordered_set<std::string> loaded_;                // kernels
  std::unordered_map<uint32_t, uint64_t> graph_kernels_;  // recorded, by executable graph
  std::atomic<bool> kernels_ever_{false};                 // enabled
  std::atomic<bool> kernels_recorded_{false};             // at least one
  std::atomic<bool> session_ended_{false};                // at least once
  std::atomic<uint64_t> flushes_{0};
  std::atomic<uint64_t> zeroed_{0};
  std::atomic<uint64_t> backward_{0};
  std::atomic<uint64_t> unasked_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<uint64_t> withheld_{0};
};

Session& TheSession();

// From now on the driver calls this copy of the library. False while another copy has a subscriber.
bool ClaimDriver();

}  // namespace gpusim::cupti
