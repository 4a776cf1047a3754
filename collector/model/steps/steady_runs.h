// When a process's steps become steady, for everything that excludes the warm-up by time.
//
// Separate from StepTracker because calls compared across ranks come in another order than steps do, and from
// SteadyTransfers, of which a process has many. The warm-up is known late, so the first steps are kept apart
// as runs of about one length, as in early_steps.h: earlier calls can be sorted into them whenever they come.
// Memory: kMaxRuns times. Not thread-safe: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class SteadyRuns {
 public:
  static constexpr size_t kMaxRuns = 32;

  // The first steps, in order, until it is known which are warm-up. The last run takes steps of whatever
  // length once there are kMaxRuns.
  void Add(uint64_t start_ns, uint64_t end_ns, uint64_t length_ns);
  // The step that begins then is the first after the warm-up; 0: there is none, or there are no steps. All is
  // steady from the start of the first run that begins then or later; the steady part of a run with warm-up
  // is left out.
  void KeepFrom(uint64_t start_ns);
  // The same where that was known before: a run begins there, however long the steps before were.
  void SteadyFrom(uint64_t start_ns);

  // nullopt: not known yet; else everything that ends later is steady.
  std::optional<uint64_t> from_ns() const { return known_ ? std::optional(from_ns_) : std::nullopt; }
  // The runs of times up to this one are known.
  uint64_t until_ns() const { return until_ns_; }
  // 0: before the first step; else the last run that started before the time, from 1.
  size_t RunAt(uint64_t time_ns) const;
  // `run`: from RunAt.
  bool IsSteady(size_t run) const { return run == 0 ? from_ns_ == 0 : starts_ns_[run - 1] >= from_ns_; }

 private:
  std::vector<uint64_t> starts_ns_;
  uint64_t run_length_ns_ = 0;  // of the last run's first step
  uint64_t until_ns_ = 0;
  bool known_ = false;
  uint64_t from_ns_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, starts_ns_, run_length_ns_, until_ns_, known_, from_ns_);
    archive.Require(starts_ns_.size() <= kMaxRuns && std::is_sorted(starts_ns_.begin(), starts_ns_.end()));
  }
};

}  // namespace gpuprobe::model
