#include "collector/model/step_work.h"

#include <algorithm>

namespace gpuprobe::model {

void StepWork::AddStep(std::span<const StepOperation> own, uint64_t length_ns,
                       std::optional<uint64_t> index) {
  for (const StepOperation& o : own) {
    if (o.work != WorkClass::kCompute || o.coarse == 0) continue;
    if (places_.size() <= o.coarse) places_.resize(size_t{o.coarse} + 1, kNoPlace);
    uint32_t& place = places_[o.coarse];
    if (place == kNoPlace) {
      if (kernels_ == kMaxKernels) continue;
      place = ++kernels_;
    }
    if (part_of_.size() < kernels_) part_of_.resize(kernels_);
    uint32_t& part = part_of_[place - 1];
    if (part == 0) {
      parts_.push_back({.place = place});
      part = static_cast<uint32_t>(parts_.size());
    }
    ++parts_[part - 1].calls;
    parts_[part - 1].time_ns += o.end_ns - o.start_ns;
  }
  Count(parts_, index.has_value() ? RunOf(*index, length_ns) : sums_);
  for (const Part& part : parts_) part_of_[part.place - 1] = 0;
  parts_.clear();
}

void StepWork::Count(const std::vector<Part>& step, Sums& sums) {
  ++sums.steps;
  for (const Part& part : step) {
    if (sums.kernels.size() < part.place) sums.kernels.resize(part.place);
    Sum& sum = sums.kernels[part.place - 1];
    sum.calls += part.calls;
    sum.time_ns += part.time_ns;
    sum.squares += absl::uint128(part.time_ns) * part.time_ns;
  }
}

StepWork::Sums& StepWork::RunOf(uint64_t index, uint64_t length_ns) {
  // Less than kWarmupFactor: who is longer than twice the usual step is not in a run with a usual one.
  constexpr double kSame = 1.5;
  if (early_.empty()) {
    early_.push_back({.begin = index, .first_ns = length_ns, .sums = {}});
    return early_.back().sums;
  }
  const auto length = static_cast<double>(length_ns);
  const auto first = static_cast<double>(early_.back().first_ns);
  if ((length > kSame * first || kSame * length < first) && early_.size() < kMaxRuns)
    early_.push_back({.begin = index, .first_ns = length_ns, .sums = {}});
  return early_.back().sums;
}

void StepWork::KeepFrom(uint64_t index) {
  const auto add = [this](const Sums& later) {
    sums_.steps += later.steps;
    if (sums_.kernels.size() < later.kernels.size()) sums_.kernels.resize(later.kernels.size());
    for (size_t i = 0; i < later.kernels.size(); ++i) {
      sums_.kernels[i].calls += later.kernels[i].calls;
      sums_.kernels[i].time_ns += later.kernels[i].time_ns;
      sums_.kernels[i].squares += later.kernels[i].squares;
    }
  };
  for (const Run& run : early_) {
    if (run.begin >= index) add(run.sums);
  }
  // Warm-up of very different steps went on into the last run.
  if (sums_.steps == 0 && early_.size() == kMaxRuns) add(early_.back().sums);
  early_ = {};
}

StepWork::Sum StepWork::Of(uint32_t token) const {
  const uint32_t place = token < places_.size() ? places_[token] : kNoPlace;
  return place == kNoPlace || place > sums_.kernels.size() ? Sum{} : sums_.kernels[place - 1];
}

}  // namespace gpuprobe::model
