// Rows of RecordedSteps: the steps of a program that is recorded only in part, as the probe saw them.
//
// Separate from records.h because they exist only where steps are left out.
#pragma once

#include "collector/model/records.h"

namespace gpuprobe::model {

struct RecordedStep {
  uint64_t begin_ns;
  uint64_t end_ns;
  uint64_t index;
  // About the unrecorded time before it; 0: nothing was seen.
  uint64_t earlier_end_ns;     // of the device's work that was launched before it
  uint64_t earlier_launch_ns;  // the last one
  uint64_t wait_start_ns;      // of the host's last synchronising call
  uint64_t wait_end_ns;
};

template <typename Visitor>
absl::Status ForEachRecordedStep(const v1::Batch& batch, Visitor&& visit) {
  const v1::RecordedSteps& m = batch.recorded_steps();
  const int rows = internal::Rows(m.begin_delta(), m.duration(), m.index_delta(), m.earlier_end(),
                                  m.earlier_launch(), m.wait_start(), m.wait_duration());
  if (rows < 0) return internal::Ragged("RecordedSteps");
  const internal::Column begin(m.begin_delta());
  const internal::Column duration(m.duration());
  const internal::Column index(m.index_delta());
  const internal::Column earlier_end(m.earlier_end());
  const internal::Column earlier_launch(m.earlier_launch());
  const internal::Column wait_start(m.wait_start());
  const internal::Column wait_duration(m.wait_duration());
  RecordedStep r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.begin_ns = r.end_ns;
    internal::Step(r.begin_ns, begin[i]);
    r.end_ns = r.begin_ns + duration[i];
    internal::Step(r.index, index[i]);
    const auto before = [&r](auto by) { return by == 0 ? 0 : r.begin_ns - static_cast<uint64_t>(by); };
    r.earlier_end_ns = before(earlier_end[i]);
    r.earlier_launch_ns = before(earlier_launch[i]);
    r.wait_start_ns = before(wait_start[i]);
    r.wait_end_ns = r.wait_start_ns + wait_duration[i];
    visit(r);
  }
  return absl::OkStatus();
}

}  // namespace gpuprobe::model
