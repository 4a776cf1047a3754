// What a job consists of: the ranks that wait for each other. A member is a process, or, where a process
// drives several GPUs, one of these.
//
// Members are numbered in the order in which they became known, and keep their numbers. As long as no process
// drives several GPUs, a member has its process's number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collector/model/calls/compared_series.h"
#include "collector/model/process/process_model.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

class RankComparison;

struct Member {
  const ProcessModel* process = nullptr;
  uint32_t index = 0;  // of the process
  uint32_t place = 0;  // in its DeviceSteps; 0: the process, as far as its other devices are not members
  uint32_t number = 0;
  const RankComparison* comparison = nullptr;  // of the job; nullptr: with no other rank

  const StepTracker& steps() const { return process->device_steps().At(place).steps; }
  // Whether its steps are those of its process's first device.
  bool Follows() const { return process->device_steps().At(place).follows; }
  // Whether it is one of several GPUs that its process drives.
  bool IsDevice() const { return process->device_steps().Driven() > 1; }
  // The ordinal, if it is.
  std::optional<uint32_t> device() const {
    return IsDevice() ? process->device_steps().At(place).ordinal : std::nullopt;
  }
  // Whether it is reported: the process itself, or a device that it uses regularly.
  bool IsReported() const { return place == 0 || process->device_steps().IsDriven(place); }
  // visit(totals) for each kernel that runs there.
  template <typename Visitor>
  void ForEachKernel(Visitor visit) const {
    const std::optional<uint32_t> own = device();
    for (const auto& kernel : process->kernels()) {
      if (!own.has_value() || kernel->device == *own) visit(*kernel);
    }
  }
  // visit(kernel, geometry, calls): see DeviceWork.
  template <typename Visitor>
  void ForEachSite(Visitor visit) const {
    const std::optional<uint32_t> own = device();
    process->ForEachSite([&](const KernelTotals& kernel, const LaunchGeometry& geometry, uint64_t calls) {
      if (!own.has_value() || kernel.device == *own) visit(kernel, geometry, calls);
    });
  }
  // What the comparison says of a series of its process.
  const ComparedSeries& Compared(const CollectiveSeries& series) const;
  // visit(series) of the communicators there.
  template <typename Visitor>
  void ForEachSeries(Visitor visit) const {
    const bool all = !IsDevice();
    for (const auto& series : process->collectives().series()) {
      if (all || process->PlaceOf(series->comm) == place) visit(*series);
    }
  }
};

// By number.
using Members = std::vector<Member>;

}  // namespace gpuprobe::model
