// Sums over the first steps of a process, kept apart until it is known which of them are warm-up.
//
// Separate from what is summed: every topic that excludes the warm-up keeps its sums this way. A sum for each
// step would take too much room, and one for all could not be taken apart. Consecutive steps of about the
// same length share one, because such a run never mixes warm-up with steady steps. Memory: kMaxRuns sums. Not
// thread-safe: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

// Sums: default-constructible, with `steps` and Add(const Sums& later), and Visit of the model's state.
template <typename Sums>
class EarlySteps {
 public:
  // The sums to which a step of this length is added; steps come in order. Once there are kMaxRuns, the last
  // run takes steps of any length.
  Sums& Of(uint64_t index, uint64_t length_ns) {
    // Less than kWarmupFactor: a step longer than twice the usual one is never in a run with a usual one.
    constexpr double kSame = 1.5;
    const auto length = static_cast<double>(length_ns);
    const auto first = runs_.empty() ? 0.0 : static_cast<double>(runs_.back().first_ns);
    const bool differs = length > kSame * first || kSame * length < first;
    if (runs_.empty() || (differs && runs_.size() < kMaxRuns))
      runs_.push_back({.begin = index, .first_ns = length_ns, .sums = {}});
    return runs_.back().sums;
  }
  // The steps from this index on are no warm-up: adds their sums to `kept`, and forgets all.
  void KeepFrom(uint64_t index, Sums& kept) {
    for (const Run& run : runs_) {
      if (run.begin >= index) kept.Add(run.sums);
    }
    // Warm-up of very different steps went on into the last run.
    if (kept.steps == 0 && runs_.size() == kMaxRuns) kept.Add(runs_.back().sums);
    runs_ = {};
  }

 private:
  struct Run {
    uint64_t begin = 0;     // index of its first step
    uint64_t first_ns = 0;  // length of that step
    Sums sums;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, begin, first_ns, sums);
    }
  };
  static constexpr size_t kMaxRuns = 16;

  std::vector<Run> runs_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, runs_);
    archive.Require(runs_.size() <= kMaxRuns);
  }
};

}  // namespace gpuprobe::model
