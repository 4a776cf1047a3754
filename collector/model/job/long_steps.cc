#include "collector/model/job/long_steps.h"

#include <algorithm>

namespace gpuprobe::model {

void LongSteps::Add(const Step& step) {
  lengths_ns_.Add(step.total_ns);
  for (size_t i = 0; i < kParts; ++i) parts_ns_[i].Add(step.parts[i]);
  const auto place = std::partition_point(longest_.begin(), longest_.end(),
                                          [&](const Step& kept) { return kept.total_ns >= step.total_ns; });
  if (place == longest_.end() && longest_.size() == kKept) return;
  longest_.insert(place, step);
  if (longest_.size() > kKept) longest_.pop_back();
}

}  // namespace gpuprobe::model
