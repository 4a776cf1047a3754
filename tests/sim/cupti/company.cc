#include "tests/sim/cupti/company.h"

#include <unistd.h>

#include <algorithm>

#include "tests/sim/cupti/names.h"
#include "tests/sim/cupti/session.h"

namespace gpusim::cupti {

OtherSubscriber::OtherSubscriber(CUpti_CallbackFunc callback, void* userdata, uint32_t api_version)
    : callback_(callback),
      userdata_(userdata),
      api_version_(api_version),
      buffers_(BufferOptions{.api_version = api_version}),
      callbacks_(CUPTI_CB_DOMAIN_SIZE),
      kinds_(kKindLimit) {
  for (int domain = 1; domain < CUPTI_CB_DOMAIN_SIZE; ++domain)
    callbacks_[domain] = std::vector<std::atomic<bool>>(CallbackCount(domain));
}

bool OtherSubscriber::Listens(int domain, uint32_t cbid) const {
  return domain > 0 && domain < CUPTI_CB_DOMAIN_SIZE && cbid < callbacks_[domain].size() &&
         callbacks_[domain][cbid].load(std::memory_order_relaxed);
}

bool OtherSubscriber::SetCallback(bool enable, int domain, int64_t cbid) {
  if (domain <= 0 || domain >= CUPTI_CB_DOMAIN_SIZE || cbid == 0 ||
      cbid >= static_cast<int64_t>(callbacks_[domain].size()))
    return false;
  for (size_t id = 1; id < callbacks_[domain].size(); ++id) {
    if (cbid < 0 || static_cast<int64_t>(id) == cbid) callbacks_[domain][id] = enable;
  }
  return true;
}

bool OtherSubscriber::AnyKindEnabled() const {
  return std::any_of(kinds_.begin(), kinds_.end(), [](const auto& kind) { return kind.load(); });
}

void OtherSubscriber::Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data) const {
  if (callback_ == nullptr || !Listens(domain, cbid)) return;
  ThreadBeginToolCallback();
  callback_(userdata_, domain, cbid, data);
  ThreadEndToolCallback();
}

uint32_t OtherSubscriber::KindOf(const Activity& activity) const {
  switch (activity.kind) {
    case ActivityKind::kKernel:
      return KindEnabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                                                                : CUPTI_ACTIVITY_KIND_KERNEL;
    case ActivityKind::kMemcpy:
      return CUPTI_ACTIVITY_KIND_MEMCPY;
    case ActivityKind::kPeerCopy:
      return CUPTI_ACTIVITY_KIND_MEMCPY2;
    case ActivityKind::kMemset:
      return CUPTI_ACTIVITY_KIND_MEMSET;
    case ActivityKind::kSync:
      return CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    case ActivityKind::kMemory:
      return CUPTI_ACTIVITY_KIND_MEMORY2;
    case ActivityKind::kMemoryPool:
      return CUPTI_ACTIVITY_KIND_MEMORY_POOL;
  }
  return 0;
}

// [documented] CUPTI's guide, "Multiple subscribers": each has its own buffers, and gets records of the kinds
// that it enabled only.
// [assumed] What one subscriber disables is not recorded for it from then on, even if it was launched before.
// Probe: nothing. Fallback: none is needed, as this is another tool's.
void OtherSubscriber::Finished(const Activity& activity) {
  const uint32_t kind = KindOf(activity);
  if (KindEnabled(kind) && buffers_.Registered())
    buffers_.Add(0, ActivityRecord(activity, kind, static_cast<uint32_t>(getpid()), api_version_));
}

void OtherSubscriber::Leave() {
  for (auto& kind : kinds_) kind = false;
  for (auto& domain : callbacks_) {
    for (auto& enabled : domain) enabled = false;
  }
}

OtherSubscriber* Company::Join(CUpti_CallbackFunc callback, void* userdata, uint32_t api_version) {
  const std::scoped_lock lock(mutex_);
  ever_.push_back(std::make_unique<OtherSubscriber>(callback, userdata, api_version));
  here_.push_back(ever_.back().get());
  size_.store(static_cast<uint32_t>(here_.size()), std::memory_order_release);
  return here_.back();
}

OtherSubscriber* Company::Find(CUpti_SubscriberHandle handle) {
  if (size() == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto found = std::find(here_.begin(), here_.end(), reinterpret_cast<OtherSubscriber*>(handle));
  return found == here_.end() ? nullptr : *found;
}

void Company::Leave(OtherSubscriber* subscriber) {
  subscriber->Leave();
  const std::scoped_lock lock(mutex_);
  std::erase(here_, subscriber);
  size_.store(static_cast<uint32_t>(here_.size()), std::memory_order_release);
}

std::vector<OtherSubscriber*> Company::Here() {
  if (size() == 0) return {};
  const std::scoped_lock lock(mutex_);
  return here_;
}

bool Company::Listens(int domain, uint32_t cbid) {
  for (const OtherSubscriber* other : Here()) {
    if (other->Listens(domain, cbid)) return true;
  }
  return false;
}

bool Company::AnyKindEnabled() {
  for (const OtherSubscriber* other : Here()) {
    if (other->AnyKindEnabled()) return true;
  }
  return false;
}

void Company::Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data) {
  for (const OtherSubscriber* other : Here()) other->Call(domain, cbid, data);
}

void Company::Finished(const Activity& activity) {
  for (OtherSubscriber* other : Here()) other->Finished(activity);
}

void Company::EnsureBuffers() {
  for (OtherSubscriber* other : Here()) {
    if (other->AnyKindEnabled() && other->GetBuffers().Registered()) other->GetBuffers().EnsureBuffer();
  }
}

void Company::Flush(bool forced) {
  for (OtherSubscriber* other : Here()) {
    if (other->GetBuffers().Registered()) other->GetBuffers().Flush(forced);
  }
}

}  // namespace gpusim::cupti
