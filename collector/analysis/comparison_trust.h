// What keeps two runs from being comparable, and what was found in one of them only.
//
// Separate from the comparison of numbers, which can look well although one run hung, lost records, or was
// cut off: these say how far to trust it.
#pragma once

#include <string>
#include <vector>

#include "collector/analysis/report.h"

namespace gpuprobe::analysis {

// Of a run: clauses that follow its name, "hung after 20 steps"; empty if nothing speaks against its numbers.
std::vector<std::string> DoubtsOf(const Report& report);

struct ComparedFinding {
  std::string id;
  bool in_a = false;  // else in B
  Severity severity = Severity::kInfo;
  std::string statement;  // the first of this id
};

// By id, those of which one run has none; as the reports order them, A's first. That nothing stands out is
// not listed.
std::vector<ComparedFinding> FindingsOfOne(const Report& a, const Report& b);

}  // namespace gpuprobe::analysis
