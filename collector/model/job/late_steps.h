// Which rank was late in which steps: its communication was exposed for less time than that of the others,
// which waited for it.
//
// RankComparison says who made whom wait, call by call. But waiting costs something only if the step gets
// longer, and the pattern of these longer steps distinguishes a rank that is slow now and then, or since some
// time, from chance. Steps are compared as StepAlignment numbers them. Memory: what the ranks reported of a
// bounded number of steps, and an account for each rank. A late rank lengthens a step by the time that the
// others' devices wait for it, where these have enough work. Where they run dry because of their own hosts,
// the hosts set the pace, and would without that rank, too. Then only the waiting that takes time from their
// hosts counts: by how much they got further ahead of their devices, or were blocked in synchronising calls.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "collector/model/job/long_steps.h"
#include "collector/model/state/members.h"
#include "collector/model/statistics/distribution.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// Counts how often something happened over a growing number of steps, in a bounded number of spans, and keeps
// the first of these steps one by one.
class StepHistory {
 public:
  static constexpr size_t kMaxSpans = 64;
  static constexpr size_t kMaxSteps = 128;  // kept one by one

  struct Span {
    uint64_t count = 0;
    uint64_t first = 0;  // step, as is `last`
    uint64_t last = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, count, first, last);
    }
  };
  // The steps from `first` to `last`, `count` of which were noted.
  using Stretch = Span;

  // In order.
  void Add(uint64_t step);
  // The stretch in which noted steps most outnumber the others, to the accuracy of a span. `count` 0 if there
  // is none.
  Stretch Densest() const;
  // Ascending; the first kMaxSteps.
  const std::vector<uint64_t>& steps() const { return steps_; }

 private:
  std::vector<Span> spans_;  // from step 0
  std::vector<uint64_t> steps_;
  uint64_t length_ = 1;  // of each, in steps

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, spans_, steps_, length_);
    archive.Require(spans_.size() <= kMaxSpans && steps_.size() <= kMaxSteps && length_ > 0 &&
                    (length_ & (length_ - 1)) == 0);
  }
};

class LateSteps {
 public:
  static constexpr size_t kMaxOpen = 256;  // steps
  // A step counts if this share of the ranks reported it; all ranks: as many as reported any one step.
  static constexpr double kLeastRanks = 0.9;
  // A rank is late when the others' communication is exposed for longer than its own by this share of the
  // step (median of the others). There are several shares because ranks may be late by a little in turns,
  // where hosts or the lengths of samples differ: a rank that is far later is then found at a higher level.
  static constexpr size_t kLevels = 3;
  static constexpr std::array<double, kLevels> kLateShares = {0.05, 0.12, 0.3};
  // Hosts set the pace where devices run dry because of them for this share of the step (median of the
  // others).
  static constexpr double kHostPacedShare = 0.02;

  // Sums over the steps in which it was late by a level's share, against the median of the others in each.
  struct Level {
    static constexpr size_t kExactLimit = 128;
    uint64_t late = 0;         // steps
    uint64_t others_late = 0;  // in which it was not, but another was
    uint64_t late_total_ns = 0;
    uint64_t late_by_ns = 0;  // the others' exposed communication less its own
    int64_t compute_ns = 0;   // by how much its own exceeds theirs, as in the next three
    int64_t host_ns = 0;      // idle because of the host: late launches, synchronisation
    int64_t input_ns = 0;
    int64_t copy_ns = 0;
    // How much it lengthens these steps, and for how many of them that is known: where hosts set the pace,
    // the next step is needed as well.
    uint64_t longer_by_ns = 0;
    uint64_t longer_known = 0;
    Distribution other_steps_ns{kExactLimit};  // lengths of the steps in which it was not late
    StepHistory history;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, late, others_late, late_total_ns, late_by_ns, compute_ns, host_ns, input_ns,
                      copy_ns, longer_by_ns, longer_known, other_steps_ns, history);
    }
  };
  struct Rank {
    uint64_t steps = 0;      // compared
    uint64_t last_step = 0;  // the last one compared
    std::array<Level, kLevels> levels;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, steps, last_step, levels);
      for (const Level& level : levels) {
        archive.Require(level.late <= steps && level.others_late <= steps - level.late &&
                        level.longer_known <= level.late);
      }
    }
  };

  // `step`: as all ranks count.
  void Add(uint64_t step, uint32_t member, const StepRecord& record);
  // By member, and the longest steps; steps that are still open are compared with the ranks reported so far.
  struct Summary {
    std::vector<Rank> ranks;
    LongSteps long_steps;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, ranks, long_steps);
    }
  };
  Summary Summarize() const;
  // Whether it names no other members.
  bool IsOf(size_t members) const;

 private:
  struct Told {
    uint32_t member = 0;
    uint64_t total_ns = 0;
    uint64_t host_ns = 0;  // as StepRecord's, the sum of several of the parts
    uint64_t blocked_ns = 0;
    LongSteps::Parts parts{};
    int64_t ahead_ns = 0;  // of its device, the host when the step began

    uint64_t exposed_ns() const { return parts[LongSteps::kExposedComm]; }
    uint64_t own_ns() const { return total_ns - std::min(exposed_ns(), total_ns); }

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, member, total_ns, host_ns, blocked_ns, parts, ahead_ns);
    }
  };
  using Steps = std::map<uint64_t, std::vector<Told>>;
  void Close(Steps::const_iterator step, Summary& summary) const;
  static uint64_t MedianLength(const std::vector<Told>& told);
  // For each rank that reported the step: by how much less than the step's time its host needed for its work
  // until the next one. Empty if that is not known for all.
  static std::vector<int64_t> SpareOf(Steps::const_iterator step, Steps::const_iterator next);

  Steps open_;
  uint64_t closed_before_ = 0;  // step
  size_t most_told_ = 0;
  Summary closed_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, open_, closed_before_, most_told_, closed_);
  }
};

}  // namespace gpuprobe::model
