// Looks up a device record's launch by correlation id: the range that was open there, and the collective plan
// that it carries.
//
// Looked up once per device record, so it is a power-of-two array indexed by the id's low bits instead of a
// hash map (ids of one process ascend, so neighbours do not collide). It doubles when a launch that still
// waits for its records would be overwritten, up to kMaxSlots; beyond that the oldest launch is overwritten,
// and its records count as unattributed. It begins small: a collector may serve a thousand ranks, each with
// some thousand launches a second. It stays in proportion to the launches received: two ids chosen to collide
// must not cost 64 MiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class CorrelationRing {
 public:
  struct Slot {
    uint64_t correlation = 0;
    uint64_t range = 0;  // innermost range at the launch, or the fallback; 0: none
    uint64_t launch_ns = 0;
    uint64_t plan = 0;  // 0: no collective
    // Hull of the device records seen for this id, for a plan that is announced after its kernel. 0: none.
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    uint32_t thread = 0;  // that launched
    uint32_t owner = 0;   // of the kernel: v1::KernelOwner
    bool used = false;
    bool launched = false;    // the launch itself was seen (a plan may come first)
    bool matched = false;     // a device record was found for it
    bool given_up = false;    // its record is not waited for any more
    bool must_match = false;  // the launch cannot rightly be without a record

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, Rebuilt(used), correlation, range, launch_ns, plan, start_ns, end_ns, thread,
                      owner, launched, matched, given_up, must_match);
    }
  };
  static constexpr size_t kFirstSlots = size_t{1} << 10;
  static constexpr size_t kMaxSlots = size_t{1} << 20;
  // Ids between launches go to other CUDA calls; a program that polls makes thousands.
  static constexpr size_t kMaxSlotsPerLaunch = 4096;

  Slot* Find(uint64_t correlation) {
    if (slots_.empty()) return nullptr;
    Slot& slot = slots_[correlation & (slots_.size() - 1)];
    return slot.used && slot.correlation == correlation ? &slot : nullptr;
  }
  const Slot* Find(uint64_t correlation) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[correlation & (slots_.size() - 1)];
    return slot.used && slot.correlation == correlation ? &slot : nullptr;
  }
  // visit(slot), in no order.
  template <typename Visitor>
  void ForEach(Visitor&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.used) visit(slot);
    }
  }
  size_t slots() const { return slots_.size(); }
  // The slot for this id, emptied if another one held it.
  Slot& Claim(uint64_t correlation);

 private:
  void Grow();
  bool MayGrow() const { return slots_.size() < std::min(kMaxSlots, used_ * kMaxSlotsPerLaunch); }

  std::vector<Slot> slots_;  // none until one is claimed
  size_t used_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    uint64_t size = slots_.size();
    uint64_t count = used_;
    archive.Members(this, Rebuilt(slots_, used_));
    archive(size, count);
    if constexpr (Archive::kReads) {
      archive.Require((size == 0 || size >= kFirstSlots) && size <= kMaxSlots && (size & (size - 1)) == 0 &&
                      count <= size);
      archive.Require(size <= kFirstSlots || size < count * 2 * kMaxSlotsPerLaunch);
      if (!archive.ok()) return;
      slots_.assign(size, Slot{});
      used_ = 0;
      for (Slot slot; count > 0 && archive.ok(); --count) {
        archive(slot);
        slot.used = true;
        Slot& place = slots_[slot.correlation & (size - 1)];
        if (!place.used) ++used_;
        place = slot;
      }
    } else {
      for (Slot& slot : slots_) {
        if (slot.used) archive(slot);
      }
      if constexpr (Archive::kDescribes) {
        Slot slot;
        archive(slot);
      }
    }
  }
};

inline CorrelationRing::Slot& CorrelationRing::Claim(uint64_t correlation) {
  if (slots_.empty()) slots_.resize(kFirstSlots);
  Slot* slot = &slots_[correlation & (slots_.size() - 1)];
  if (slot->used && slot->correlation == correlation) return *slot;
  while (slot->used && slot->launched && !slot->matched && !slot->given_up && MayGrow()) {
    Grow();
    slot = &slots_[correlation & (slots_.size() - 1)];
  }
  if (!slot->used) ++used_;
  *slot = Slot{};
  slot->used = true;
  slot->correlation = correlation;
  return *slot;
}

inline void CorrelationRing::Grow() {
  std::vector<Slot> larger(slots_.size() * 2);
  for (const Slot& slot : slots_) {
    if (slot.used) larger[slot.correlation & (larger.size() - 1)] = slot;
  }
  slots_.swap(larger);
}

}  // namespace gpuprobe::model
