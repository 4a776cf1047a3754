// The ranks and steps that a finding is about: what report.html selects when somebody clicks on the finding.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gpuprobe::analysis {

struct FindingSubject {
  std::vector<int> ranks = {};  // empty: all, or none in particular
  // A stretch of the run, as all ranks count steps; absent: from the beginning, to the end.
  std::optional<uint64_t> first_step = std::nullopt;
  std::optional<uint64_t> last_step = std::nullopt;
  std::vector<uint64_t> steps = {};  // single steps, where it is about few
};

}  // namespace gpuprobe::analysis
