// The series of one run that a comparison needs: how long the parts of a step, each kernel, and each kind of
// collective took, per block of steps and rank.
//
// The unit is the step of the job (up to model::StepBlocks::kMost of them; beyond, a block of consecutive
// steps). Ranks wait for each other, so their times in one step are one observation and not many; and
// constant differences between ranks are not noise, since a mean over the same ranks has none of it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"
#include "collector/model/steps/step_blocks.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {

// A mean for each block, in the order of time; NaN where a block has none.
using Series = std::vector<double>;
// The values that there are.
Series ValuesOf(const Series& series);
// Block by block: what the series are in the mean, and how those that have this block differ from their own
// mean in it. So a rank whose records of a step were lost does not move that step's mean.
Series MeanOf(const std::vector<const Series*>& all);

struct RankSeries {
  int rank = -1;                        // -1: not known; see RunSeries::by_gpu
  std::optional<uint32_t> device = {};  // one of several GPUs of its process
  std::array<Series, model::kStepParts> parts;
  std::map<std::string, Series> kernels;  // by demangled name; ns of a step
};

struct CollectiveSeries {
  std::string name;          // "AllReduce 25.0 MiB, 8 ranks"
  std::vector<int> members;  // ranks of the job, ascending; empty: not known
  double calls_per_step = 0;
  double wait_ns = 0;  // of a call and rank
  Series transfer_ns;  // of a call
};

struct RunSeries {
  uint64_t block_steps = 1;  // of the parts' series
  uint64_t kernel_block_steps = 1;
  std::vector<RankSeries> ranks;  // by rank
  bool by_gpu = false;            // the ranks are GPUs of one process without a rank, with their ordinals
  std::map<std::string, double> kernel_calls;  // of a rank and step
  std::vector<CollectiveSeries> collectives;
};

// Transfers after the warm-up, block of calls by block of calls: the mean, and the first call of each.
struct TimedTransfers {
  Series transfer_ns;
  std::vector<model::CallBlocks::First> first;
};
TimedTransfers TimedTransfersOf(const model::JobModel& job, const model::CallBlocks& blocks);

// `report`: of the same job, with all kernels.
RunSeries SeriesOf(const model::JobModel& job, const Report& report);

// Of the parts of steps alone, with one entry for all ranks, their mean: at most one series a rank in memory
// at a time, so for jobs of many ranks, too.
RunSeries MeanSeriesOf(const model::JobModel& job);

// The series by which two runs are compared.
struct Run {
  Report report;
  RunSeries series;
};

}  // namespace gpuprobe::analysis
