// When a process's clock was set forward, so that durations can be corrected for it.
//
// Used for totals, which add up each record as it comes. The duration of a record that began before and ended
// after contains the clock step. Memory: the last kMax steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

class ClockSteps {
 public:
  static constexpr size_t kMax = 8;

  // The clock was set forward by `by_ns`, between `from_ns` (on the old clock) and `to_ns` (on the new one).
  void Note(uint64_t by_ns, uint64_t from_ns, uint64_t to_ns) {
    if (steps_.size() == kMax) steps_.erase(steps_.begin());
    steps_.push_back({by_ns, from_ns, to_ns});
  }
  // A record's duration without the clock steps in it. A record at least as long as a step that may be in it
  // is taken to contain it.
  uint64_t Length(uint64_t start_ns, uint64_t end_ns) const {
    uint64_t length_ns = end_ns - start_ns;
    for (const Step& step : steps_) {
      const bool within = start_ns + step.by_ns < step.to_ns && end_ns > step.from_ns + step.by_ns;
      if (!within || length_ns + kReadingErrorNs < step.by_ns) continue;
      length_ns -= length_ns < step.by_ns ? length_ns : step.by_ns;
    }
    return length_ns;
  }

 private:
  static constexpr uint64_t kReadingErrorNs = 100'000;  // of the clock readings that measure a step
  struct Step {
    uint64_t by_ns = 0;
    uint64_t from_ns = 0;
    uint64_t to_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, by_ns, from_ns, to_ns);
    }
  };
  std::vector<Step> steps_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, steps_);
  }
};

}  // namespace gpuprobe::model
