// How long a simulated job's steps take, by its schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collector/simulate/virtual_node.h"

namespace gpuprobe::simulate {

class StepTimes : public NodeObserver {
 public:
  explicit StepTimes(int steps) : end_ns_(static_cast<size_t>(steps)) {}

  void OnDeviceWork(int /*rank*/, const DeviceWork& work) override {
    if (work.step < 0 || static_cast<size_t>(work.step) >= end_ns_.size()) return;
    int64_t& end = end_ns_[static_cast<size_t>(work.step)];
    end = std::max(end, work.end_ns);
  }
  void OnHostInterval(int /*rank*/, HostCause /*cause*/, int64_t /*start_ns*/, int64_t /*end_ns*/) override {}
  void OnCall(const FinishedCall& /*call*/) override {}
  void OnStep(int /*rank*/, int /*step*/) override {}

  // From the end of the one before `first` to the end of the last one. REQUIRES: 0 < first < steps.
  double MeanNs(int first) const {
    const size_t before = static_cast<size_t>(first) - 1;
    return static_cast<double>(end_ns_.back() - end_ns_[before]) /
           static_cast<double>(end_ns_.size() - 1 - before);
  }

 private:
  std::vector<int64_t> end_ns_;  // of the last work of all ranks
};

}  // namespace gpuprobe::simulate
