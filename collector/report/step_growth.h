// Steps that take longer and longer over the run (analysis/steps/step_growth.h), and which part of them
// grows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/steps/step_blocks.h"

namespace gpuprobe::analysis {

// Of a value that grows: on the line through it.
struct GrowthLine {
  double first = 0;
  double last = 0;
  double growth() const { return last - first; }

  static constexpr void Declare(auto& fields) {
    fields("first", &GrowthLine::first, "at the beginning");
    fields("last", &GrowthLine::last, "at the end");
  }
};

struct StepGrowth {
  uint64_t steps = 0;  // after the warm-up
  double mean_ns = 0;  // of these
  GrowthLine total_ns;
  // Of the rank that waits least for others, those that grow, most first.
  struct Part {
    model::StepPart part = model::StepPart::kTotal;
    double growth_ns = 0;

    static constexpr void Declare(auto& fields) {
      fields("part", &Part::part, "as in [Steps](#steps), without `_ns`");
      fields("growth_ns", &Part::growth_ns, "by how much it grew");
    }
  };
  std::vector<Part> parts;
  // It grows on that rank, and the others wait for it.
  std::optional<int> rank;
  // The kernel whose time in a step grew most there: in the first and the last quarter of the steps.
  std::string kernel;
  GrowthLine kernel_ns;

  static constexpr void Declare(auto& fields) {
    using G = StepGrowth;
    fields("steps", &G::steps, "steps after the warm-up");
    fields("mean_ns", &G::mean_ns, "their mean");
    fields("total_ns", &G::total_ns, "time of a step, on the line through them");
    fields("parts", &G::parts, "parts that grow, of the rank that waits least for others; the most first");
    fields("rank", &G::rank, "that rank, if it alone grows and the others wait for it; else `null`");
    fields("kernel", &G::kernel, "the kernel whose time in a step grew most there, if compute grows most")
        .NullIfZero();
    fields("kernel_ns", &G::kernel_ns, "its time in a step, in the first and the last quarter of the steps")
        .NullUnless([](const G& g) { return !g.kernel.empty(); });
  }
};

}  // namespace gpuprobe::analysis
