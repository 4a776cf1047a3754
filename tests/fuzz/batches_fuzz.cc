// Batches of up to three processes into the model, in any order and with anything in their columns; then the
// report of it. No batch may crash the collector or make it allocate out of proportion, whatever it refers
// to.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "collector/analysis/build_report.h"
#include "collector/model/job/job_model.h"
#include "collector/render/json_report.h"
#include "collector/render/text_report.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/target.h"

GPUPROBE_FUZZ_TARGET(batches)(const uint8_t* data, size_t size) {
  using namespace gpuprobe;
  constexpr int kMaxFrames = 24;
  fuzz::Choices choices(data, size);
  const bool show = choices.Rarely(16);  // most of the time would go into writing JSON
  model::JobModel job;
  const uint32_t processes = 1 + choices.Below(3);
  uint64_t sequence[3] = {1, 1, 1};
  for (uint32_t i = 0; i < processes; ++i)
    job.Join(fuzz::PlainHello(static_cast<int>(i))).Apply(fuzz::Definitions()).IgnoreError();
  for (int frame = 0; frame < kMaxFrames && !choices.empty(); ++frame) {
    const uint32_t which = choices.Below(processes);
    model::ProcessModel& process = *job.processes()[which];
    if (choices.Rarely(32)) {
      v1::Bye bye;
      fuzz::Fill(choices, bye);
      process.ApplyBye(bye);
      continue;
    }
    if (choices.Rarely(32)) {
      job.Join(fuzz::PlainHello(static_cast<int>(which)));
      continue;
    }
    process.Apply(fuzz::NextBatch(choices, ++sequence[which])).IgnoreError();
  }
  job.Finish();
  const analysis::Report report = analysis::BuildReport(job, {});
  if (show && (render::JsonReport(report).empty() || render::TextReport(report, "").empty())) std::abort();
  return 0;
}
