// The report as numbers: what every rendering (text, JSON, page) shows, computed once from the model.
//
// Each subject has a header of its own in report/; include that where one subject is enough, and this one
// where the whole report is read. Times are nanoseconds, sizes bytes, bandwidths 1e9 bytes per second. A
// number that could not be computed is absent (optional, or an empty list), never zero by default.
#pragma once

#include <optional>
#include <vector>

#include "collector/analysis/communicator_report.h"
#include "collector/analysis/finding_subject.h"
#include "collector/analysis/hang.h"
#include "collector/analysis/long_steps.h"
#include "collector/analysis/report/clocks.h"
#include "collector/analysis/report/collectives.h"
#include "collector/analysis/report/communication.h"
#include "collector/analysis/report/conditions.h"
#include "collector/analysis/report/findings.h"
#include "collector/analysis/report/links.h"
#include "collector/analysis/report/phases.h"
#include "collector/analysis/report/ranks.h"
#include "collector/analysis/report/steps.h"
#include "collector/analysis/report/stragglers.h"
#include "collector/analysis/report/trust.h"
#include "collector/analysis/report/utilisation.h"
#include "collector/analysis/report/work.h"

namespace gpuprobe::analysis {

struct Report {
  Conditions conditions;
  Trust trust;
  std::vector<RankReport> ranks;
  std::optional<StepsReport> steps;           // over all ranks
  std::vector<CollectiveReport> collectives;  // over all ranks
  std::vector<PhaseReport> phases;            // over all ranks: statistics of all instances
  std::vector<KernelReport> top_kernels;      // over all ranks
  ComputeReport compute;                      // over all ranks
  UtilisationReport utilisation;
  std::vector<Straggler> stragglers;  // slowest first
  std::optional<LongStepsReport> long_steps;
  ClockReport clock;
  std::vector<LinkModel> link_models;
  CommunicationReport communication;
  std::vector<CommunicatorReport> communicators;  // in the order in which they were made
  std::vector<Hang> hangs;                        // longest first
  std::vector<Finding> findings;
  std::vector<PastHang> past_hangs;  // in the order in which they were reported
};

}  // namespace gpuprobe::analysis
