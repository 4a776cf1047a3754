// Where the ranks are that a finding is about, and what it has cost the whole job so far.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collector/report/report.h"

namespace gpuprobe::analysis {

struct FindingPlace {
  // Of the ranks that it is about; empty if it is about all of them.
  std::vector<std::string> hosts;
  std::vector<std::string> gpu_uuids;
  // Its cost per step, times the steps in which it held and the job's GPUs; 0: not known.
  double lost_gpu_seconds = 0;
};

FindingPlace PlaceOf(const Report& report, const Finding& finding);

// For how long the job's ranks were recorded, in all.
double GpuSecondsOf(const Report& report);

// The same by host, and by the UUID of the GPU with most of a rank's kernels; empty: not known.
std::map<std::string, std::map<std::string, double>> GpuSecondsByPlace(const Report& report);

}  // namespace gpuprobe::analysis
