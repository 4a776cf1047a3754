#include "collector/model/step_work.h"

#include <algorithm>

namespace gpuprobe::model {

void StepWork::AddStep(std::span<const StepOperation> own, std::optional<uint64_t> index) {
  Step step{.index = index.value_or(0), .parts = {}};
  for (const StepOperation& o : own) {
    if (o.work != WorkClass::kCompute || o.coarse == 0) continue;
    if (places_.size() <= o.coarse) places_.resize(size_t{o.coarse} + 1, kNoPlace);
    uint32_t& place = places_[o.coarse];
    if (place == kNoPlace) {
      if (sums_.size() == kMaxKernels) continue;
      sums_.emplace_back();
      place = static_cast<uint32_t>(sums_.size());
    }
    if (part_of_.size() < sums_.size()) part_of_.resize(sums_.size());
    uint32_t& part = part_of_[place - 1];
    if (part == 0) {
      step.parts.push_back({.place = place});
      part = static_cast<uint32_t>(step.parts.size());
    }
    ++step.parts[part - 1].calls;
    step.parts[part - 1].time_ns += o.end_ns - o.start_ns;
  }
  for (const Part& part : step.parts) part_of_[part.place - 1] = 0;
  if (index.has_value()) {
    early_.push_back(std::move(step));
  } else {
    Count(step);
  }
}

void StepWork::Count(const Step& step) {
  ++steps_;
  for (const Part& part : step.parts) {
    Sum& sum = sums_[part.place - 1];
    sum.calls += part.calls;
    sum.time_ns += part.time_ns;
    sum.squares += absl::uint128(part.time_ns) * part.time_ns;
  }
}

void StepWork::KeepFrom(uint64_t index) {
  for (const Step& step : early_) {
    if (step.index >= index) Count(step);
  }
  early_ = {};
}

StepWork::Sum StepWork::Of(uint32_t token) const {
  const uint32_t place = token < places_.size() ? places_[token] : kNoPlace;
  return place == kNoPlace ? Sum{} : sums_[place - 1];
}

}  // namespace gpuprobe::model
