// Builds the report from the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/analysis/hangs/hang.h"
#include "collector/model/job/job_model.h"
#include "collector/report/report.h"
#include "collector/report/utilisation.h"

namespace gpuprobe::analysis {

// Inputs that the model cannot know.
struct ReportInput {
  std::string collector_version;
  std::vector<std::string> damaged_logs;  // a sentence each
  uint64_t unrecorded_frames = 0;
  uint64_t detail_since_ns = 0;           // as Trust.detail_since_ns
  bool step_records = false;              // give the records of single steps, too
  std::vector<std::string> command_line;  // of the run; empty: that of the first rank
  ModelWork work;
  uint64_t hang_after_ns = kDefaultHangAfterNs;
  std::optional<double> link_peak;        // 1e9 bytes per second that a link carries
  bool all_kernels = false;               // top_kernels over all ranks without a limit
  std::vector<LastMoments> last_moments;  // of the processes that left a flight recorder's ring
};

// `job` must be finished. Pure.
Report BuildReport(const model::JobModel& job, const ReportInput& input);

}  // namespace gpuprobe::analysis
