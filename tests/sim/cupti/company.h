// The subscribers beside the first one: each has its own callbacks, kinds and buffers.
//
// Faults and defects are the first one's only. Subscribers stay in memory when they have left, since a
// callback of theirs may still run.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/cupti/buffers.h"

namespace gpusim::cupti {

class OtherSubscriber {
 public:
  OtherSubscriber(CUpti_CallbackFunc callback, void* userdata, uint32_t api_version);

  bool Listens(int domain, uint32_t cbid) const;
  bool SetCallback(bool enable, int domain, int64_t cbid);
  bool KindEnabled(uint32_t kind) const { return kinds_[kind].load(std::memory_order_relaxed); }
  void SetKind(uint32_t kind, bool enable) { kinds_[kind] = enable; }
  bool AnyKindEnabled() const;
  Buffers& GetBuffers() { return buffers_; }
  void Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data) const;
  void Finished(const Activity& activity);
  void Leave();

 private:
  uint32_t KindOf(const Activity& activity) const;

  const CUpti_CallbackFunc callback_;
  void* const userdata_;
  const uint32_t api_version_;
  Buffers buffers_;
  std::vector<std::vector<std::atomic<bool>>> callbacks_;  // by domain
  std::vector<std::atomic<bool>> kinds_;
};

class Company {
 public:
  // How many there are now.
  uint32_t size() const { return size_.load(std::memory_order_acquire); }
  OtherSubscriber* Join(CUpti_CallbackFunc callback, void* userdata, uint32_t api_version);
  // Null: not one of those here.
  OtherSubscriber* Find(CUpti_SubscriberHandle handle);
  void Leave(OtherSubscriber* subscriber);

  bool Listens(int domain, uint32_t cbid);
  bool AnyKindEnabled();
  void Call(CUpti_CallbackDomain domain, uint32_t cbid, const void* data);
  void Finished(const Activity& activity);
  // A call has ended that may have made work.
  void EnsureBuffers();
  void Flush(bool forced);

 private:
  std::vector<OtherSubscriber*> Here();

  std::atomic<uint32_t> size_{0};
  std::mutex mutex_;
  std::vector<OtherSubscriber*> here_;
  std::vector<std::unique_ptr<OtherSubscriber>> ever_;
};

}  // namespace gpusim::cupti
