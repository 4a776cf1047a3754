// Cuts a process's operations into steps at ranges: NVTX ranges that look like steps or that the user's
// marker names, or the steps that the probe reports where it records only some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/functional/function_ref.h"
#include "collector/model/state/members.h"
#include "collector/model/steps/open_operations.h"
#include "collector/model/steps/step_record.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

class RangeCutter {
 public:
  // Ranges of one kind that make it the program's steps; one may be anything. `AtEnd`: where the run is over.
  static constexpr size_t kLeastRanges = 3;
  static constexpr size_t kLeastRangesAtEnd = 2;

  struct StepRange {
    uint64_t start_ns = 0;
    uint64_t end_ns = 0;
    std::string kind;
    // Where only some are recorded, as RecordedStepRecord.
    uint64_t index = 0;
    uint64_t earlier_end_ns = 0;
    uint64_t earlier_launch_ns = 0;

    template <typename Archive>
    void Visit(Archive& archive) {
      archive.Members(this, start_ns, end_ns, kind, index, earlier_end_ns, earlier_launch_ns);
    }
  };

  // Steps are what the probe reports; nothing else counts.
  void UseRecorded();
  void AddRecorded(const RecordedStepRecord& step);
  // A range of this kind closed, which may be a step.
  void Add(uint64_t start_ns, uint64_t end_ns, const std::string& kind);
  // The same for a range that the user's marker names, whatever it is called.
  void AddMarked(uint64_t start_ns, uint64_t end_ns);
  // Makes the kind with most time the steps, if it has so many ranges.
  void Choose(size_t least);

  // The kind of ranges that are steps was chosen.
  bool chosen() const { return !step_kind_.empty(); }
  bool waiting() const { return !step_ranges_.empty(); }
  StepSource source() const { return source_; }

  // Hands on the steps that are over: cut(begin, end, range), with positions after the last step that was
  // cut. `all`: or else as far as later launches are known.
  void Cut(const OpenOperations& open, bool all, absl::FunctionRef<uint64_t()> last_end,
           absl::FunctionRef<void(uint64_t begin, uint64_t end, const StepRange& range)> cut);

 private:
  static constexpr size_t kMaxRanges = 1024;

  void Keep(StepRange range);

  std::deque<StepRange> step_ranges_;  // that were not used yet, as they closed
  std::string step_kind_;              // of the ranges that are steps, once chosen
  StepSource source_ = StepSource::kNone;

  friend StateAccess;
  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, step_ranges_, step_kind_, source_);
  }
};

}  // namespace gpuprobe::model
