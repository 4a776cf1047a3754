#include "collector/model/steps/range_meanings.h"

#include <string>

#include "collector/model/steps/work_roles.h"

namespace gpuprobe::model {

RangeMeanings::Meaning RangeMeanings::Of(uint32_t name_id, std::string_view name, const StepMarker& marker,
                                         bool steps_known) {
  if (by_name_.size() <= name_id) by_name_.resize(size_t{name_id} + 1);
  uint8_t& meaning = by_name_[name_id];
  if (meaning == kUnknown) {
    const std::string kind = KindOfRange(name);
    const bool step = !steps_known && (marker.kind() == StepMarker::Kind::kNvtx
                                           ? marker.Matches(name)
                                           : marker.kind() == StepMarker::Kind::kNone && LooksLikeStep(kind));
    const std::optional<StepPhase> phase = IsOperatorRange(name) ? std::nullopt : PhaseOfRange(kind);
    meaning = step                   ? kStep
              : phase.has_value()    ? static_cast<uint8_t>(1 + static_cast<int>(*phase))
              : LooksLikeInput(kind) ? kInput
                                     : kNothing;
  }
  if (meaning == kStep) return {.step = true, .phase = std::nullopt, .input = false};
  if (meaning == kInput) return {.step = false, .phase = std::nullopt, .input = true};
  if (meaning == kNothing) return {};
  return {.step = false, .phase = static_cast<StepPhase>(meaning - 1), .input = false};
}

}  // namespace gpuprobe::model
