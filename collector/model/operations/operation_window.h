// Puts a process's operations into the order in which they were launched, in bounded memory.
//
// Records arrive in any order (one buffer per thread, a long kernel after many short ones), while every
// analysis of steps reads operations in the order of correlation ids, which count API calls. An operation is
// released once no earlier one can still arrive: all earlier launches have their records, and launches arrive
// at most one batch late. A record whose launch never comes holds up the others for kPatience batches. A
// launch waits for its record until records of much later launches arrive: CUPTI holds back a whole buffer
// while one of its kernels has not finished, so on a busy device all records in it come many batches late.
// Then the launch is given up, and the window's owner may add a substitute operation. A record that arrives
// even later is released at once, and counted (late).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collector/model/operations/operation.h"
#include "collector/model/operations/operation_blocks.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class OperationWindow {
 public:
  static constexpr uint32_t kPatience = 8;  // batches, at least
  // A launch is given up once a record arrived for one this much later, on its own thread or on any thread.
  static constexpr uint64_t kLaterOnThreadNs = 5'000'000'000;
  static constexpr uint64_t kLaterNs = 20'000'000'000;
  // Most waiting operations. With more, launches count as lost after kPatience batches; with twice as many,
  // everything is released.
  static constexpr size_t kMaxHeld = 32768;
  static constexpr size_t kMaxLaunches = 65536;  // launches without record; beyond, the oldest are given up
  static constexpr size_t kMaxThreads = 1024;    // beyond, and for others, only kLaterNs counts

  void AddLaunch(uint64_t correlation, uint64_t launch_ns, uint32_t thread, uint32_t batch) {
    launches_.push_back({correlation, launch_ns, thread, batch});
  }
  // A record came for this thread's launch at this time.
  void Saw(uint32_t thread, uint64_t launch_ns) {
    if (launch_ns > latest_ns_) latest_ns_ = launch_ns;
    if (thread != seen_thread_ || seen_ns_ == nullptr) FindThread(thread);
    if (seen_ns_ != nullptr && launch_ns > *seen_ns_) *seen_ns_ = launch_ns;
  }
  // Room for one more, which the caller fills.
  Operation& Next() { return held_.Next(); }
  // Returns the stored copy.
  Operation& Add(const Operation& operation) { return Next() = operation; }
  void Take(OperationBlocks& operations) { held_.Take(operations); }

  // At the end of a batch. `matched(correlation)`: the launch has its record (or is forgotten).
  // `give_up(correlation)`: its record will not come; may Add a replacement.
  // `oldest_orphan`: lowest correlation id of the records that wait for their launch, UINT64_MAX if none.
  // `hand_on(operation)` is called in launch order.
  template <typename Matched, typename GiveUp, typename HandOn>
  void EndBatch(uint32_t batch, uint64_t oldest_orphan, Matched matched, GiveUp give_up, HandOn hand_on) {
    uint64_t bound = std::min(OldestOpenLaunch(batch, matched, give_up), oldest_orphan);
    bound = std::min(bound, ToldBefore(batch));
    told_before_ = told_;
    Release(held_.size() > 2 * kMaxHeld ? UINT64_MAX : bound, hand_on);
  }
  // Everything that is left.
  template <typename Matched, typename GiveUp, typename HandOn>
  void Finish(Matched matched, GiveUp give_up, HandOn hand_on) {
    SortLaunches();
    for (const Launch& launch : launches_) {
      if (!matched(launch.correlation)) give_up(launch.correlation);
    }
    launches_.clear();
    Release(UINT64_MAX, hand_on);
  }
  // The same for a process that did not report to its end: records of launches after a thread's last record
  // were still to come. The order ends there, and any later records are left out. Kernels, copies and memsets
  // come in buffers of their own, so a few later records say nothing. `owes(correlation)`: the launch must
  // have a record, and none came. `goes_on`: the process may report again, and missing records are still to
  // come. True if the order ends before the last launch.
  template <typename Matched, typename Owes, typename GiveUp, typename HandOn>
  bool FinishSoFar(bool goes_on, Matched matched, Owes owes, GiveUp give_up, HandOn hand_on) {
    SortLaunches();
    std::map<uint32_t, End> ends;  // by thread
    for (size_t i = 0; i < launches_.size(); ++i) {
      End& end = ends[launches_[i].thread];
      end.score += owes(launches_[i].correlation) ? -1 : 1;
      if (end.score < end.most) continue;
      end.most = end.score;
      end.place = i + 1;
    }
    uint64_t cut = UINT64_MAX;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const Launch& launch = launches_[i];
      if (matched(launch.correlation)) continue;
      if (goes_on ? !SawMuchLater(launch) : !SawLater(launch) || i >= ends[launch.thread].place) {
        cut = launch.correlation;
        break;
      }
      give_up(launch.correlation);
    }
    launches_.clear();
    Release(cut, hand_on);
    ForgetBefore(UINT64_MAX);
    return cut != UINT64_MAX;
  }

  uint64_t late() const { return late_; }
  // When the oldest launch was made that still waits for its record; `none` if there is none. Valid at the
  // end of a batch.
  uint64_t OldestOpenNs(uint64_t none) const {
    return launches_.empty() ? none : launches_.front().launch_ns;
  }
  size_t held() const { return held_.size(); }

 private:
  struct Launch {
    uint64_t correlation;
    uint64_t launch_ns;
    uint32_t thread;
    uint32_t batch;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, correlation, launch_ns, thread, batch);
    }
  };
  // Where a thread's records end: up to there most of its launches have theirs, and from there on few.
  struct End {
    int64_t score = 0;  // launches with records less those without
    int64_t most = 0;
    size_t place = 0;  // of the first launch after the one at which the score was highest
  };
  template <typename Matched, typename GiveUp>
  uint64_t OldestOpenLaunch(uint32_t batch, Matched matched, GiveUp give_up) {
    SortLaunches();
    size_t first = 0;
    const size_t excess = launches_.size() > kMaxLaunches ? launches_.size() - kMaxLaunches : 0;
    for (; first < launches_.size(); ++first) {
      const Launch& launch = launches_[first];
      if (matched(launch.correlation)) continue;
      if (first >= excess && !WaitedEnough(launch, batch)) break;
      give_up(launch.correlation);
    }
    launches_.erase(launches_.begin(), launches_.begin() + static_cast<ptrdiff_t>(first));
    sorted_ = launches_.size();
    return launches_.empty() ? UINT64_MAX : launches_.front().correlation;
  }
  template <typename HandOn>
  void Release(uint64_t bound, HandOn hand_on) {
    for (const uint32_t place : OrderBefore(bound)) {
      Operation& operation = held_.At(place);
      if (operation.correlation < released_) {
        ++late_;
      } else {
        released_ = operation.correlation;
      }
      hand_on(operation);
    }
    ForgetBefore(bound);
  }
  void SortLaunches();
  bool WaitedEnough(const Launch& launch, uint32_t batch) const;
  // Records arrived for launches long after it; for a later launch of its own thread.
  bool SawMuchLater(const Launch& launch) const;
  bool SawLater(const Launch& launch) const;
  // Launches before this one have been reported; with what came without any.
  uint64_t ToldBefore(uint32_t batch) const;
  void FindThread(uint32_t thread);
  // Places (in held_) of the operations below `bound`, in launch order; valid until the next call on any
  // window of this thread.
  std::span<const uint32_t> OrderBefore(uint64_t bound);
  bool OrderByPlace(uint64_t lowest, uint64_t highest, std::vector<uint32_t>& order);
  void ForgetBefore(uint64_t bound);

  OperationBlocks held_;
  std::vector<Launch> launches_;  // those before sorted_ by correlation
  size_t sorted_ = 0;
  uint64_t told_ = 0;         // highest correlation of a launch
  uint64_t told_before_ = 0;  // the same at the end of the batch before
  uint64_t released_ = 0;     // highest correlation released
  uint64_t late_ = 0;
  uint64_t latest_ns_ = 0;  // latest launch whose record came
  std::map<uint32_t, uint64_t> latest_of_thread_;
  uint32_t seen_thread_ = 0;  // the last one, and its entry there
  uint64_t* seen_ns_ = nullptr;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, Rebuilt(seen_thread_, seen_ns_), held_, launches_, sorted_, told_, told_before_,
                    released_, late_, latest_ns_, latest_of_thread_);
  }
};

}  // namespace gpuprobe::model
