// The phase of a step's operations: from annotated ranges where there are any, else inferred.
//
// Separate because its rules are about names and threads, not about time. Inferred: kernels of optimizers
// (by name) are the optimizer; work that PyTorch's autograd threads launch is backward, the main thread's
// launches before the last of these are forward, those after it belong to the optimizer. Without such
// threads, kernels of backward passes and losses (by name) show where backward begins, and an input copy
// where forward does. Compute that none of these rules places is "other".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/step_operation.h"
#include "collector/model/steps/step_record.h"

namespace gpuprobe::model {

// Recent annotated ranges that name the phase of the work launched in them.
class PhaseRanges {
 public:
  static constexpr uint8_t kNone = 255;  // a range that names no phase

  void Add(uint64_t id, uint64_t parent, uint64_t end_ns, uint8_t phase);
  // kNone if neither the range nor one around it names a phase.
  uint8_t PhaseOf(uint64_t range) const;
  void ForgetBefore(uint64_t time_ns);
  bool empty() const { return !named_; }

 private:
  struct Range {
    uint64_t parent = 0;
    uint64_t end_ns = 0;
    uint8_t phase = kNone;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, parent, end_ns, phase);
    }
  };
  static constexpr size_t kMaxRanges = 65536;
  // After this many ranges without one that names a phase, there are none.
  static constexpr uint64_t kHopeless = 100'000;

  absl::flat_hash_map<uint64_t, Range> ranges_;
  bool named_ = false;
  uint64_t heard_ = 0;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, ranges_, named_, heard_);
    for (auto& [id, range] : ranges_) archive.Require(range.phase == kNone || range.phase < kStepPhases);
    if (!archive.ok()) ranges_.clear();
  }
};

// One phase for each operation; those from `own` on were launched after the step. `annotated`: ranges said
// it.
std::vector<StepPhase> PhasesOf(std::span<const StepOperation> operations, size_t own,
                                const PhaseRanges& ranges, bool& annotated);

}  // namespace gpuprobe::model
