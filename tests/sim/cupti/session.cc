#include "tests/sim/cupti/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/per_thread.h"
#include "tests/sim/cupti/names.h"

namespace gpusim::cupti {
namespace {

constexpr char kIncumbent[] = "CUPTI for another tool";

// [documented] cupti_activity.h, CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER, and the release notes of
// 13.0: from 13.0 on each thread has buffers of its own.
constexpr uint32_t kPerThreadBuffersSince = 130000;
constexpr uint32_t kManySubscribersSince = 130300;

}  // namespace

Session::Session()
    : knobs_(TheKnobs()),
      buffers_(BufferOptions{.crash_on_null = knobs_.defects.crashes_on_null,
                             .damage_every = knobs_.damaged_buffers,
                             .api_version = knobs_.api_version}),
      objects_(&buffers_, knobs_.api_version) {
  for (int domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain) {
    callbacks_[domain] = std::vector<std::atomic<bool>>(CallbackCount(domain));
  }
  buffers_.SetPerThread(knobs_.api_version >= kPerThreadBuffersSince);
}

Session& TheSession() {
  static auto* const kSession = new Session;
  return *kSession;
}

// [documented] CUPTI's guide, "Multiple subscribers", and cupti_callbacks.h, cuptiSubscribe_v2: from 13.3 on,
// with driver 610 or newer, if the first one allowed others with allowMultipleSubscribers and each later one
// asks the same. Otherwise one subscriber: a second one gets error 39 and, through the newer function, the
// first one's name.
// [observed] H100, CUPTI 13.0.1: error 39 for a second subscriber.
// [assumed] A refused cuptiSubscribe_v2 leaves cuptiSubscribe as it was. Probe: it asks for company first,
// then alone. Fallback: none; there would be no GPU times from CUPTI 13.4 on with a driver before 610.
CUptiResult Session::Subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* userdata,
                               SubscriberParams* params) {
  if (handle == nullptr || (params != nullptr && params->bytes < offsetof(SubscriberParams, allow_others))) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const bool asks_for_many =
      params != nullptr && params->bytes >= sizeof(*params) && params->allow_others != 0;
  const std::scoped_lock lock(mutex_);
  Subscriber* incumbent = current_.load();
  const bool somebody = incumbent != nullptr || company_.size() != 0;
  const bool refused = asks_for_many && (knobs_.api_version < kManySubscribersSince || knobs_.one_subscriber);
  if (knobs_.subscriber_taken || refused || (somebody && !(asks_for_many && many_allowed_))) {
    if (params != nullptr && params->old_name != nullptr && params->old_name_bytes > 0) {
      const std::string name = incumbent != nullptr ? incumbent->name : kIncumbent;
      const size_t length = std::min(name.size(), params->old_name_bytes - 1);
      std::memcpy(params->old_name, name.data(), length);
      params->old_name[length] = '\0';
    }
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  if (incumbent != nullptr) {
    *handle = reinterpret_cast<CUpti_SubscriberHandle>(company_.Join(callback, userdata, knobs_.api_version));
    return CUPTI_SUCCESS;
  }
  // [assumed] The driver has one subscriber, whichever copy of libcupti in the process it comes from. Probe:
  // a tool with a copy of its own is served by the probe's copy. Fallback: if each copy could have a
  // subscriber, the tool would get the same.
  if (!somebody && !ClaimDriver()) {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  Subscriber& subscriber = subscribers_[next_subscriber_++ % subscribers_.size()];
  subscriber.name = "CUPTI";
  if (params != nullptr && params->name != nullptr) {
    subscriber.name += std::string(" for ") + params->name;
  }
  subscriber.userdata = userdata;
  subscriber.callback = callback;
  many_allowed_ = asks_for_many;
  current_ = &subscriber;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&subscriber);
  return CUPTI_SUCCESS;
}

CUptiResult Session::Unsubscribe(CUpti_SubscriberHandle handle) {
  if (OtherSubscriber* other = company_.Find(handle); other != nullptr) {
    company_.Leave(other);
    return CUPTI_SUCCESS;
  }
  if (!IsCurrent(handle)) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  UnsubscribeCurrent();
  return CUPTI_SUCCESS;
}

void Session::UnsubscribeCurrent() {
  const std::scoped_lock lock(mutex_);
  session_ended_ = true;
  if (current_.exchange(nullptr) != nullptr && company_.size() == 0) {
    cupti_claimed = false;
    many_allowed_ = false;
  }
  for (auto& domain : callbacks_) {
    for (auto& enabled : domain) {
      enabled = false;
    }
  }
}

bool Session::IsCurrent(CUpti_SubscriberHandle handle) const {
  return handle != nullptr && reinterpret_cast<Subscriber*>(handle) == current_.load();
}

bool Session::SetCallback(bool enable, int domain, int64_t cbid) {
  if (domain <= 0 || domain >= CUPTI_CB_DOMAIN_SIZE) {
    return false;
  }
  auto& ids = callbacks_[domain];
  if (cbid >= static_cast<int64_t>(ids.size()) || cbid == 0) {
    return false;
  }
  for (size_t id = 1; id < ids.size(); ++id) {
    if (cbid < 0 || static_cast<int64_t>(id) == cbid) {
      ids[id] = enable;
    }
  }
  return true;
}

void Session::Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data) {
  company_.Call(domain, cbid, data);
  Subscriber* subscriber = current_.load(std::memory_order_acquire);
  if (subscriber == nullptr || !CallbackEnabled(domain, cbid)) {
    return;
  }
  const CUpti_CallbackFunc callback = subscriber->callback;
  if (callback == nullptr) {
    return;
  }
  ThreadBeginToolCallback();
  callback(subscriber->userdata, domain, cbid, data);
  ThreadEndToolCallback();
}

void Session::SetKind(uint32_t kind, bool enable) {
  if (!enable && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && knobs_.defects.disabling_kernels_hangs &&
      kernels_recorded_.load(std::memory_order_relaxed)) {
    std::fprintf(stderr, "gpusim: CUPTI hangs here: CONCURRENT_KERNEL is disabled in 13.0\n");
    while (true) pause();
  }
  if (kinds_[kind].exchange(enable) != enable) {
    // [observed] H100, CUPTI 13.0.1: switching kinds before the capture of a graph does no harm.
    // [assumed] A profiling session ends with the subscription, or when the last activity kind is disabled.
    // Probe: it keeps the device kind enabled while it captures, so that its session is the first one for the
    // whole life of the process. Fallback: if any disabled kind ends a session, graph launches at the detail
    // level "windows" are not to be trusted before 13.1 Update 1.
    if ((kinds_enabled_ += enable ? 1 : -1) == 0) session_ended_ = true;
  }
  if (enable && kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
    kernels_ever_.store(true, std::memory_order_relaxed);
}

uint32_t Session::KernelKind() const {
  if (KindEnabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) {
    return CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  }
  return KindEnabled(CUPTI_ACTIVITY_KIND_KERNEL) ? CUPTI_ACTIVITY_KIND_KERNEL : 0;
}

void Session::SetApiFilter(int domain, uint32_t cbid, bool enable) {
  const std::scoped_lock lock(mutex_);
  api_filter_[domain][cbid] = enable;
  has_api_filter_ = true;
}

bool Session::ApiRecordWanted(int domain, uint32_t cbid) const {
  const bool kind_wanted = KindEnabled(domain == CUPTI_CB_DOMAIN_RUNTIME_API ? CUPTI_ACTIVITY_KIND_RUNTIME
                                                                             : CUPTI_ACTIVITY_KIND_DRIVER);
  if (!has_api_filter_) {
    return kind_wanted;
  }
  const std::scoped_lock lock(mutex_);
  const auto& filter = api_filter_[domain];
  const auto entry = filter.find(cbid);
  return entry == filter.end() ? kind_wanted : entry->second;
}

CUptiResult Session::SetAttribute(int attribute, size_t* size, const void* value) {
  const CUptiResult result = attributes_.Set(attribute, size, value);
  if (result != CUPTI_SUCCESS) return result;
  const auto* bytes = static_cast<const uint8_t*>(value);
  if (attribute == CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER) {
    buffers_.SetPerThread(*bytes != 0);
  }
  if (attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) {
    buffers_.SetZeroedByTool(*bytes != 0);
  }
  return CUPTI_SUCCESS;
}

std::map<uint32_t, std::vector<uint64_t>>& Session::ExternalIds() {
  return PerThread<std::map<uint32_t, std::vector<uint64_t>>>();
}

}  // namespace gpusim::cupti
