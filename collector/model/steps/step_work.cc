#include "collector/model/steps/step_work.h"

#include <utility>

namespace gpuprobe::model {

void StepWork::AddStep(std::span<const StepOperation> own, uint64_t length_ns, uint64_t ordinal, bool early) {
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
  Sums& sums = early ? early_.Of(ordinal, length_ns) : sums_;
  Count(parts_, sums);
  CountPageable(own, sums);
  step_blocks_.Add(ordinal, 1);
  if (blocks_.size() < kernels_) blocks_.resize(kernels_);
  for (const Part& part : parts_) {
    blocks_[part.place - 1].Add(ordinal, part.time_ns);
    part_of_[part.place - 1] = 0;
  }
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

void StepWork::CountPageable(std::span<const StepOperation> own, Sums& sums) {
  for (const StepOperation& o : own) {
    if ((o.roles & kRolePageable) == 0) continue;
    Sum& sum = o.work == WorkClass::kCopyToDevice ? sums.pageable_to_device : sums.pageable_from_device;
    ++sum.calls;
    sum.time_ns += o.end_ns - o.start_ns;
  }
}

void StepWork::Sums::Add(const Sums& later) {
  steps += later.steps;
  for (const auto& [into, from] : {std::pair{&pageable_to_device, &later.pageable_to_device},
                                   std::pair{&pageable_from_device, &later.pageable_from_device}}) {
    into->calls += from->calls;
    into->time_ns += from->time_ns;
  }
  if (kernels.size() < later.kernels.size()) kernels.resize(later.kernels.size());
  for (size_t i = 0; i < later.kernels.size(); ++i) {
    kernels[i].calls += later.kernels[i].calls;
    kernels[i].time_ns += later.kernels[i].time_ns;
    kernels[i].squares += later.kernels[i].squares;
  }
}

void StepWork::KeepFrom(uint64_t index) { early_.KeepFrom(index, sums_); }

StepWork::Sum StepWork::Of(uint32_t token) const {
  const uint32_t place = token < places_.size() ? places_[token] : kNoPlace;
  return place == kNoPlace || place > sums_.kernels.size() ? Sum{} : sums_.kernels[place - 1];
}

const StepWork::Blocks* StepWork::BlocksOf(uint32_t token) const {
  const uint32_t place = token < places_.size() ? places_[token] : kNoPlace;
  return place == kNoPlace || place > blocks_.size() ? nullptr : &blocks_[place - 1];
}

}  // namespace gpuprobe::model
