#include "collector/page/memory_levels.h"

#include <algorithm>

#include "collector/analysis/names.h"

namespace gpuprobe::page {
namespace {

MemoryLevels LevelsOf(const model::LevelHistory& level, size_t member) {
  MemoryLevels out;
  out.member = member;
  out.start_ns = level.start_ns();
  out.width_ns = level.width_ns();
  size_t each = 1;
  while (level.buckets().size() > each * MemoryLevels::kMostPoints) each *= 2;
  out.width_ns *= each;
  for (size_t i = 0; i < level.buckets().size(); ++i) {
    const model::LevelHistory::Bucket& bucket = level.buckets()[i];
    if (i % each == 0) {
      out.greatest_bytes.push_back(bucket.greatest);
      out.least_bytes.push_back(bucket.least);
    } else {
      out.greatest_bytes.back() = std::max(out.greatest_bytes.back(), bucket.greatest);
      out.least_bytes.back() = std::min(out.least_bytes.back(), bucket.least);
    }
  }
  return out;
}

}  // namespace

std::vector<MemoryLevels> MemoryLevelsOf(const model::JobModel& job, const std::vector<size_t>& members) {
  std::vector<MemoryLevels> all;
  for (const size_t member : members) {
    if (job.members()[member].place != 0) continue;  // the process's levels are its first member's
    const model::ProcessModel& p = *job.members()[member].process;
    for (size_t kind = 0; kind < p.memory().size(); ++kind) {
      const model::MemoryLedger::Kind& memory = p.memory()[kind];
      if (memory.high_water_bytes == 0 || memory.level.empty()) continue;
      all.push_back(LevelsOf(memory.level, member));
      all.back().kind = kind == v1::MEMORY_KIND_PINNED
                            ? "host_pinned"
                            : std::string(analysis::MemoryName(static_cast<v1::MemoryKind>(kind)));
    }
    for (const auto& [device, allocator] : p.allocator()) {
      if (allocator.peak_allocated_bytes == 0 || allocator.allocated.empty()) continue;
      all.push_back(LevelsOf(allocator.allocated, member));
      all.back().kind = "tensors";
      all.back().device = device;
    }
  }
  return all;
}

}  // namespace gpuprobe::page
