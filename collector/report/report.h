// The report as numbers: what every rendering (text, JSON, page) shows, computed once from the model.
//
// Each subject has a header of its own in report/; include that where one subject is enough, and this one
// where the whole report is read. Times are nanoseconds, sizes bytes, bandwidths 1e9 bytes per second. A
// number that could not be computed is absent (optional, or an empty list), never zero by default.
#pragma once

#include <optional>
#include <vector>

#include "collector/report/call_trace.h"
#include "collector/report/clocks.h"
#include "collector/report/collectives.h"
#include "collector/report/communication.h"
#include "collector/report/communicators.h"
#include "collector/report/conditions.h"
#include "collector/report/findings.h"
#include "collector/report/hangs.h"
#include "collector/report/host_time.h"
#include "collector/report/links.h"
#include "collector/report/long_steps.h"
#include "collector/report/phases.h"
#include "collector/report/ranks.h"
#include "collector/report/step_growth.h"
#include "collector/report/steps.h"
#include "collector/report/stragglers.h"
#include "collector/report/trust.h"
#include "collector/report/utilisation.h"
#include "collector/report/work.h"

namespace gpuprobe::analysis {

// Additive changes keep the number; a change of meaning or a removal raises it.
inline constexpr int kReportSchemaVersion = 1;

struct Report {
  Conditions conditions;
  Trust trust;
  std::vector<RankReport> ranks;
  std::optional<StepsReport> steps;
  std::vector<HostTimeReport> host_time;
  BetweenRanks between_ranks;
  std::optional<CallTraceReport> call_trace;
  std::vector<CollectiveReport> collectives;
  std::vector<PhaseReport> phases;
  std::vector<KernelReport> top_kernels;
  ComputeReport compute;
  std::vector<DriverCallReport> driver_calls;  // most time first
  UtilisationReport utilisation;
  std::vector<Straggler> stragglers;  // slowest first
  std::optional<LongStepsReport> long_steps;
  std::optional<StepGrowth> step_growth;
  ClockReport clock;
  CommunicationReport communication;
  std::vector<CommunicatorReport> communicators;
  std::vector<Hang> hangs;  // longest first
  std::vector<Finding> findings;
  std::vector<PastHang> past_hangs;  // in the order in which they were reported

  static constexpr void Declare(auto& fields) {
    using R = Report;
    fields.Computed(
        "schema_version", [](const R&) { return kReportSchemaVersion; }, "1");
    fields("conditions", &R::conditions, "what was measured");
    fields("trust", &R::trust, "how far the numbers can be believed");
    fields("steps", &R::steps, "training steps over all ranks; `null` if none were found");
    fields("host_time", &R::host_time,
           "what hosts did while GPUs were idle for them, by the cause of that, mean over the steps of all "
           "ranks; absent where nothing shows it: no samples of the host were taken")
        .AbsentIfEmpty();
    fields.Computed(
        "ranks_in", [](const R&) -> std::optional<std::string> { return std::nullopt; },
        "`\"ranks.json\"` if `ranks[]` is only a summary, else `null`: [Many ranks](#many-ranks)");
    fields("ranks", &R::ranks,
           "one entry per process, by rank, or one per GPU of a process that drives several")
        .Summarises();
    fields("collectives", &R::collectives,
           "over all ranks, one entry per operation, communicator and size, most time first");
    fields("phases", &R::phases, "over all ranks: annotated ranges by name under their parent");
    fields("top_kernels", &R::top_kernels, "over all ranks: the 20 kernels with most total time");
    fields("compute", &R::compute, "kernels by class, short kernels, copies through pageable memory");
    fields(
        "driver_calls", &R::driver_calls,
        "slow calls of driver functions that load modules, instantiate graphs, allocate or register memory "
        "and make contexts, streams or events, by function over all ranks, most time first");
    fields("utilisation", &R::utilisation, "MFU and HFU, if a step's work was given, else `null`");
    fields("stragglers", &R::stragglers,
           "ranks that others wait for, or whose kernels are slow; the most expensive first");
    fields("long_steps", &R::long_steps,
           "a few steps that are much longer than the others; `null` if there are none");
    fields("step_growth", &R::step_growth,
           "steps that take longer and longer over the run; `null` if they do not");
    fields("clock", &R::clock, "offsets between the ranks' clocks");
    fields("communication", &R::communication, "what communication costs a step");
    fields("between_ranks", &R::between_ranks, "how far the ranks' mean steps differ, by part");
    fields("call_trace", &R::call_trace,
           "at `GPUPROBE_LEVEL=calls`: what is known of the whole run, captured or not; every other number "
           "is of "
           "what was captured. Else `null`");
    fields("communicators", &R::communicators,
           "the job's communicators, in the order in which they were created");
    fields("hangs", &R::hangs,
           "collectives that hung at the end, and calls that ranks issued differently; longest first");
    fields("past_hangs", &R::past_hangs,
           "hangs that were reported while the job ran and went on before its end, as they were last seen");
    fields("findings", &R::findings, "what was concluded, worst first");
  }
};

}  // namespace gpuprobe::analysis
