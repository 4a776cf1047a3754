// How far to trust a comparison of two runs: what keeps them from being comparable, under which conditions
// each ran, and what was found in only one of them. Numbers can look fine although one run hung, lost
// records, or was cut off.
#pragma once

#include <string>
#include <vector>

#include "collector/analysis/comparison/run_series.h"
#include "collector/report/conditions.h"
#include "collector/report/findings.h"

namespace gpuprobe::analysis {

struct Report;

struct ComparedCondition {
  std::string what;
  std::string a;
  std::string b;
};

// Those that differ.
std::vector<ComparedCondition> ConditionsOf(const Conditions& a, const Conditions& b);

// Both have steps of the same ranks, so that each can be compared with itself.
bool HaveSameRanks(const Run& a, const Run& b);

// Sentences on what cannot be compared, and why.
std::vector<std::string> LimitsOf(const Run& a, const Run& b);

// Clauses that follow a run's name, "hung after 20 steps"; empty if nothing speaks against its numbers.
std::vector<std::string> DoubtsOf(const Report& report);

struct ComparedFinding {
  std::string id;
  bool in_a = false;  // else in B
  Severity severity = Severity::kInfo;
  std::string statement;  // the first of this id
};

// Findings that only one run has, by id; as the reports order them, A's first. "Nothing stands out" is not
// listed.
std::vector<ComparedFinding> FindingsOfOne(const Report& a, const Report& b);

}  // namespace gpuprobe::analysis
