// A few steps that take much longer than the others: which ones, and who was late in them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collector/report/host_time.h"

namespace gpuprobe::analysis {

// What happens every so many steps (step_pattern.h).
struct StepPattern {
  uint64_t every = 0;
  uint64_t length = 0;  // steps of each
  uint64_t first = 0;   // the step at which the first one begins
  uint64_t others = 0;  // steps that are none of these
  // The same pattern may begin at another step.
  friend bool operator==(const StepPattern& a, const StepPattern& b) {
    return a.every == b.every && a.length == b.length;
  }
};

struct LongStepsReport {
  struct Step {
    uint64_t step = 0;
    double time_ns = 0;
    std::optional<int> last_rank;
    double late_by_ns = 0;
    std::optional<uint32_t> last_gpu = {};  // of last_rank, if its process drives several

    static constexpr void Declare(auto& fields) {
      fields("step", &Step::step, "its number as all ranks count");
      fields("time_ns", &Step::time_ns, "median over the ranks");
      fields("last_rank", &Step::last_rank,
             "the rank that the others waited for most if it was late by 5 % of the step; `null`: none was, "
             "or it has no rank");
      fields("late_by_ns", &Step::late_by_ns, "by how much it was late");
      fields.Unwritten(&Step::last_gpu);
    }
  };
  struct Content {
    double compute_ns = 0;
    double exposed_comm_ns = 0;
    double copy_ns = 0;
    double host_bound_ns = 0;
    double input_ns = 0;
    double sync_ns = 0;
    double memory_ns = 0;
    double pause_ns = 0;
    double after_copy_ns = 0;

    static constexpr void Declare(auto& fields) {
      fields("compute_ns", &Content::compute_ns, "as in [Steps](#steps)");
      fields("exposed_comm_ns", &Content::exposed_comm_ns, "the same");
      fields("copy_ns", &Content::copy_ns, "the same");
      fields("host_bound_ns", &Content::host_bound_ns, "as `idle.host_bound_ns`");
      fields("input_ns", &Content::input_ns, "as `idle.input_ns`");
      fields("sync_ns", &Content::sync_ns, "as `idle.sync_ns`");
      fields("memory_ns", &Content::memory_ns, "as `idle.memory_ns`");
      fields("pause_ns", &Content::pause_ns, "as `idle.pause_ns`");
      fields("pause_after_copy_ns", &Content::after_copy_ns,
             "the part of `pause_ns` that follows copies to the host");
    }
  };
  uint64_t compared_steps = 0;
  double usual_ns = 0;
  double cost_ns = 0;
  std::vector<Step> steps;
  Content content;
  std::vector<HostPlaceReport> host_places = {};
  std::optional<StepPattern> pattern;

  static constexpr void Declare(auto& fields) {
    using L = LongStepsReport;
    fields("compared_steps", &L::compared_steps, "steps that were compared");
    fields("usual_ns", &L::usual_ns, "their median");
    fields("cost_ns_per_step", &L::cost_ns, "what the long ones add to the average step");
    fields.Computed(
        "period",
        [](const L& l) { return l.pattern.has_value() ? std::optional(l.pattern->every) : std::nullopt; },
        [](L& l, const auto& every) {
          if (every.has_value()) l.pattern = StepPattern{.every = *every};
        },
        "they come every so many steps; else `null`");
    fields("content", &L::content,
           "what they have more than the median step, on average, in the rank that waited least for others");
    fields("host_places", &L::host_places,
           "what the host did in them while GPUs were idle for it, as `host_time[].places`, per long step; "
           "absent: not known")
        .AbsentIfEmpty();
    fields("steps", &L::steps, "the long steps, in order");
    fields.Unwritten(&L::pattern);
  }
};

}  // namespace gpuprobe::analysis
