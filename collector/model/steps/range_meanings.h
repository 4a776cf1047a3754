// What ranges of a name mean to steps: a step, a phase, or nothing. Looked up once per name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "collector/model/state/members.h"
#include "collector/model/steps/step_marker.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

class RangeMeanings {
 public:
  struct Meaning {
    bool step = false;
    std::optional<StepPhase> phase;
    bool input = false;  // loading of the next batch
  };
  // `name_id` stands for `name`. `steps_known`: by other means, so that no range is one.
  Meaning Of(uint32_t name_id, std::string_view name, const StepMarker& marker, bool steps_known);

 private:
  static constexpr uint8_t kUnknown = 0;  // phases follow
  static constexpr uint8_t kInput = 253;
  static constexpr uint8_t kStep = 254;
  static constexpr uint8_t kNothing = 255;

  std::vector<uint8_t> by_name_;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, by_name_);
    for (const uint8_t meaning : by_name_)
      archive.Require(meaning <= kStepPhases || meaning == kInput || meaning == kStep || meaning == kNothing);
  }
};

}  // namespace gpuprobe::model
