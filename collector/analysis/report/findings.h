// A finding: a statement with its evidence, advice and cost.
#pragma once

#include <optional>
#include <string>

#include "collector/analysis/finding_subject.h"

namespace gpuprobe::analysis {

enum class Severity { kInfo, kWarning, kError };

struct Finding {
  std::string statement;
  std::string evidence;
  std::string advice;
  // How much shorter a step would be without it; findings rank by it.
  std::optional<double> cost_ns_per_step = std::nullopt;
  bool ends_job = false;  // within a day, if it goes on: listed with the problems
  FindingSubject about = {};
  std::string id = {};  // this and the severity: from the table (finding_rules.h)
  Severity severity = Severity::kInfo;
};

}  // namespace gpuprobe::analysis
