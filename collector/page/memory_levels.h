// How memory moved over the run on the ranks that report.html shows, by kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/model/job/job_model.h"

namespace gpuprobe::page {

struct MemoryLevels {
  // One of the lines that a page shows for a rank.
  static constexpr size_t kMostPoints = 512;

  size_t member = 0;
  std::string kind;                // "device", "host_pinned" ..., "tensors" for PyTorch's allocator
  std::optional<uint32_t> device;  // of "tensors"
  uint64_t start_ns = 0;           // on the process's clock
  uint64_t width_ns = 0;           // of the time that each value stands for
  std::vector<uint64_t> greatest_bytes;
  std::vector<uint64_t> least_bytes;
};

// Kinds that were never used are left out.
std::vector<MemoryLevels> MemoryLevelsOf(const model::JobModel& job, const std::vector<size_t>& members);

}  // namespace gpuprobe::page
