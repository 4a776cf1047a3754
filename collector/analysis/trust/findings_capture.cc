#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/hangs/process_state.h"
#include "collector/analysis/names.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/trust/last_moments_text.h"
#include "collector/analysis/units.h"
#include "collector/model/job/job_model.h"
#include "collector/records/device_clock.h"
#include "collector/records/process_names.h"
#include "collector/report/processes.h"
#include "collector/report/report.h"

namespace gpuprobe::analysis {
namespace {

std::string LossPercent(double share) { return absl::StrFormat("%.2g %%", share * 100); }

// "Ranks 0-3, 7"; a few processes with their ids.
std::string CutOffText(const Report& report, const std::vector<CutOff>& processes) {
  constexpr size_t kNamed = 2;
  constexpr size_t kRanges = 8;
  std::vector<std::string> who;
  who.reserve(processes.size());
  for (const CutOff& c : processes) who.push_back(c.who);
  std::vector<int> ranks;
  for (const RankReport& r : report.ranks) {
    if (r.cut_off && r.cut_off_by_collector == (processes.front().by == CutOff::By::kCollector) &&
        r.rank.has_value())
      ranks.push_back(*r.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  if (who.size() > kNamed && ranks.size() == who.size())
    return absl::StrCat("Ranks ", RankList(ranks, kRanges));
  who.front()[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(who.front()[0])));
  if (who.size() > kRanges) {
    who.resize(kRanges);
    who.emplace_back("...");
  }
  return absl::StrJoin(who, ", ");
}

// "Rank 3 (pid 4711), last data after 12.0 s."
std::string LastDataText(const Report& report, const std::vector<CutOff>& processes) {
  std::vector<double> after_s;
  for (const CutOff& c : processes) {
    const uint64_t start = report.conditions.start_ns;
    after_s.push_back(c.last_data_ns > start ? static_cast<double>(c.last_data_ns - start) / 1e9 : 0);
  }
  const auto [first, last] = std::minmax_element(after_s.begin(), after_s.end());
  const std::string from = absl::StrFormat("%.1f s", *first);
  const std::string to = absl::StrFormat("%.1f s", *last);
  return absl::StrCat(CutOffText(report, processes), ", last data after ",
                      from == to ? to : absl::StrCat(from, " to ", to), ".");
}

void RecordsLost(const Report& report, std::vector<Finding>& out) {
  const Trust& t = report.trust;
  if (t.lost_total == 0) return;
  const double share = static_cast<double>(t.lost_total) / static_cast<double>(t.records + t.lost_total);
  const auto lost = [&](v1::LossReason reason) { return t.lost.contains(LossName(reason)); };
  std::vector<std::string> reasons;
  for (const auto& [reason, records] : t.lost) reasons.push_back(absl::StrCat(reason, " ", Count(records)));
  // An allocation or a release may be among them; what follows from each of the others is known.
  const bool memory = lost(v1::LOSS_ALLOCATION_UNKNOWN) || lost(v1::LOSS_DEFINITIONS_FULL) ||
                      lost(v1::LOSS_EVENT_RING_FULL) || lost(v1::LOSS_THREAD_SLOTS_FULL) ||
                      lost(v1::LOSS_SEND_QUEUE_FULL) || lost(v1::LOSS_INTERRUPTED);
  out.push_back(
      {.statement = absl::StrCat(Count(t.lost_total),
                                 t.lost_total == 1 ? " record was lost, " : " records were lost, ",
                                 LossPercent(share), " of all; totals are low by about that much."),
       .evidence = absl::StrCat("By reason: ", absl::StrJoin(reasons, ", "), ".",
                                memory ? " Memory levels and high-water marks may be off." : ""),
       .advice =
           lost(v1::LOSS_SEND_QUEUE_FULL)
               ? "Raise GPUPROBE_MEMORY_MIB and GPUPROBE_QUEUE_MIB, or give the collector a core of its own."
           : lost(v1::LOSS_BUFFER_POOL_EMPTY)
               ? "Raise GPUPROBE_MEMORY_MIB, GPUPROBE_BUFFERS or GPUPROBE_BUFFER_KIB."
           : lost(v1::LOSS_NO_DEVICE_RECORD)
               ? "CUPTI delivered no record for these launches. Check that its version matches the driver's "
                 "and that no other tool consumes its records."
           : lost(v1::LOSS_BATCH_MISSING)
               ? "The collector was killed or its disk failed; data that it had not yet written is lost."
               : "See the reasons above; shorter runs lose less at exit."});
}

// The job stood still until it was ended: its processes gave their GPUs no work of which records could miss.
bool StoodIdle(const Report& report, size_t processes) {
  return std::any_of(report.hangs.begin(), report.hangs.end(), [&](const Hang& hang) {
    return hang.kind == Hang::Kind::kNoWork &&
           hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out) == processes;
  });
}

// Of two that have left some, and that no other finding tells of; all of them with gpuprobe autopsy.
std::string LastMomentsText(const Report& report, CutOff::By by) {
  constexpr size_t kSaid = 2;
  std::string text;
  size_t said = 0;
  size_t known = 0;
  const RankReport* const dead = FirstToDie(report);
  for (const RankReport& r : report.ranks) {
    if (&r == dead || !r.last_moments.has_value() || r.cut_off_by_collector != (by == CutOff::By::kCollector))
      continue;
    const std::string last = MomentsText(*r.last_moments);
    if (last.empty() || ++known > kSaid) continue;
    ++said;
    absl::StrAppend(&text, " Last moments of ", r.Name(), ": ", last, ".");
  }
  if (known > said) absl::StrAppend(&text, " gpuprobe autopsy shows those of ", known - said, " more.");
  return text;
}

// By which signal all processes of the job were asked to end at once, as by Ctrl-C; 0: they were not, or it
// hung then.
uint32_t StoppedBy(const Report& report) {
  uint32_t signal = 0;
  for (const RankReport& r : report.ranks) {
    if (r.is_device && !r.is_first) continue;
    const uint32_t asked = r.end.has_value() ? RequestToEnd(*r.end) : 0;
    if (asked == 0 || !r.cut_off || r.cut_off_by_collector) return 0;
    signal = asked;
  }
  return report.hangs.empty() ? signal : 0;
}

void JobStopped(const Report& report, std::vector<Finding>& out) {
  const uint32_t signal = StoppedBy(report);
  if (signal == 0) return;
  out.push_back({.statement = absl::StrCat("The job was stopped by ", SignalName(signal),
                                           "; what its processes recorded last is missing."),
                 .evidence = LastDataText(report, report.trust.cut_off),
                 .advice = ""});
}

void RankCutOff(const Report& report, std::vector<Finding>& out) {
  std::vector<CutOff> ended;
  std::vector<CutOff> left;  // by the collector
  for (const CutOff& c : report.trust.cut_off) (c.by == CutOff::By::kCollector ? left : ended).push_back(c);
  if (!ended.empty() && !StoodIdle(report, ended.size()) && StoppedBy(report) == 0) {
    out.push_back({.statement = absl::StrCat(ended.size(), ended.size() == 1 ? " process" : " processes",
                                             " exited uncleanly; later records are missing."),
                   .evidence = LastDataText(report, ended) + LastMomentsText(report, CutOff::By::kProcess),
                   .advice = ended.size() == 1
                                 ? "It was killed, crashed, or called _exit; its own log says which."
                                 : "They were killed, crashed, or called _exit; their own logs say which."});
  }
  if (!left.empty()) {
    out.push_back(
        {.statement = absl::StrCat("The collector ended before ",
                                   left.size() == 1 ? "1 process" : absl::StrCat(left.size(), " processes"),
                                   " did; later records are missing."),
         .evidence = LastDataText(report, left) + LastMomentsText(report, CutOff::By::kCollector),
         .advice =
             "The program may have gone on unharmed. If nobody stopped the collector, it was killed: check "
             "dmesg and its cgroup's memory limit."});
  }
}

// Not an alarm: what a reader of this report must not expect.
void RanBefore(const Report& report, std::vector<Finding>& out) {
  const std::vector<Attached>& attached = report.trust.attached;
  if (attached.empty()) return;
  constexpr size_t kNamed = 2;
  uint64_t ran_ns = 0;
  uint64_t allocations = 0;
  uint64_t calls = 0;
  std::vector<std::string> who;
  for (const Attached& process : attached) {
    ran_ns = std::max(ran_ns, process.ran_ns);
    allocations += process.earlier_allocations;
    calls += process.earlier_communicators;
    who.push_back(process.who);
  }
  const std::string whom =
      who.size() > kNamed ? absl::StrCat(who.size(), " processes") : absl::StrJoin(who, ", ");
  std::string evidence = absl::StrCat(
      "Not known: memory allocated before, of which only the change is shown; communicators and CUDA graphs "
      "made "
      "before, so calls of different ranks are not matched; NVTX ranges of libraries that had called NVTX. "
      "Steps "
      "count from there.");
  if (allocations > 0)
    absl::StrAppend(&evidence, " ", Count(allocations), allocations == 1 ? " release was" : " releases were",
                    " of earlier memory.");
  if (calls > 0)
    absl::StrAppend(&evidence, " ", Count(calls), calls == 1 ? " NCCL call was" : " NCCL calls were",
                    " on an earlier communicator.");
  out.push_back({.statement = absl::StrCat(
                     "Recording was attached to ", whom, ", ",
                     ran_ns == 0 ? "which ran already"
                                 : absl::StrCat(Duration(static_cast<double>(ran_ns)), " after the start"),
                     "; nothing from before is in this report."),
                 .evidence = evidence,
                 .advice = "Start the job under gpuprobe run to see all of it."});
}

void RanksMissing(const Report& report, std::vector<Finding>& out) {
  const Conditions& c = report.conditions;
  if (!c.ranks_expected.has_value() || c.ranks_heard >= *c.ranks_expected) return;
  std::vector<bool> heard(static_cast<size_t>(std::min(*c.ranks_expected, 1 << 16)));
  for (const RankReport& r : report.ranks) {
    if (r.rank.has_value() && static_cast<size_t>(*r.rank) < heard.size())
      heard[static_cast<size_t>(*r.rank)] = true;
  }
  constexpr size_t kRanges = 8;
  std::vector<int> missing;
  for (size_t i = 0; i < heard.size(); ++i) {
    if (!heard[i]) missing.push_back(static_cast<int>(i));
  }
  out.push_back(
      {.statement = absl::StrFormat("%d of %d ranks reported; this report covers only those.", c.ranks_heard,
                                    *c.ranks_expected),
       .evidence = absl::StrCat("Missing: ", missing.size() == 1 ? "rank " : "ranks ",
                                RankList(missing, kRanges), "."),
       .advice = absl::StrCat("With several hosts, each collector records only its own ranks: ", kTogether,
                              " Otherwise check that the library was loaded in the missing ranks.")});
}

void DuplicateRanks(const Report& report, std::vector<Finding>& out) {
  const std::vector<DuplicateRank>& duplicates = report.conditions.duplicate_ranks;
  if (duplicates.empty()) return;
  constexpr size_t kNamed = 4;
  std::vector<std::string> who;
  for (const DuplicateRank& duplicate : duplicates) {
    if (who.size() == kNamed) break;
    std::vector<uint32_t> pids = duplicate.pids;
    const size_t more = pids.size() - std::min(pids.size(), 2 * kNamed);
    pids.resize(pids.size() - more);
    who.push_back(absl::StrCat("rank ", duplicate.rank, ": pids ", absl::StrJoin(pids, ", "),
                               more > 0 ? absl::StrCat(" and ", more, " more") : ""));
  }
  if (duplicates.size() > kNamed) who.push_back(absl::StrCat(duplicates.size() - kNamed, " more ranks"));
  out.push_back(
      {.statement = duplicates.size() == 1
                        ? absl::StrCat("Rank ", duplicates.front().rank, " was recorded by ",
                                       duplicates.front().pids.size(), " processes at the same time.")
                        : absl::StrCat(duplicates.size(),
                                       " ranks were recorded by several processes each at the same time."),
       .evidence =
           absl::StrCat(absl::StrJoin(who, "; "),
                        ". Each process has a row of its own; comparisons between ranks may be wrong."),
       .advice = "Check that each process gets its own RANK. Processes that a rank starts inherit its RANK; "
                 "unset it for them."});
}

void NoStepRecorded(const Report& report, std::vector<Finding>& out) {
  const std::optional<OnDemand>& demand = report.conditions.on_demand;
  if (demand.has_value() && demand->windows.empty() && demand->level == "calls") {
    const size_t raises = report.call_trace.has_value() ? report.call_trace->raises.size() : 0;
    out.push_back(
        {.statement = "Kernels, copies and steps on the GPU are not recorded at level calls, and nothing was "
                      "captured in full.",
         .evidence = absl::StrCat(
             "GPUPROBE_LEVEL is calls: collectives, steps of the marker, allocations and communicators "
             "were recorded. The collector asked for ",
             raises == 0
                 ? "nothing more."
                 : absl::StrCat("more ", raises, raises == 1 ? " time" : " times", ", and got none.")),
         .advice = "While the job runs: gpuprobe capture DIR --steps 5."});
    return;
  }
  if (demand.has_value() && demand->windows.empty()) {
    out.push_back(
        {.statement = "Nothing was captured: the run is at level idle, and nobody asked for any step.",
         .evidence = "GPUPROBE_LEVEL is idle; only allocations and communicators were recorded.",
         .advice = "While the job runs: gpuprobe capture DIR --steps 5. Without --level idle, everything is "
                   "recorded."});
    return;
  }
  const std::optional<StepsRecorded>& steps = report.conditions.steps_recorded;
  if (!steps.has_value() || steps->recorded > 0) return;
  const std::string asked = absl::StrCat("GPUPROBE_STEP_MARKER is ", steps->marker);
  if (steps->begun == 0) {
    out.push_back(
        {.statement = "Only some steps were to be recorded, and none began; only allocations were recorded.",
         .evidence = absl::StrCat(asked, "."),
         .advice = "Name a range that the program opens or an operation that it calls."});
    return;
  }
  out.push_back({.statement = absl::StrCat("None of the program's ", steps->begun,
                                           " steps were recorded; only allocations were."),
                 .evidence = absl::StrCat(asked, ", GPUPROBE_START_STEP ", steps->start, "."),
                 .advice = "Start recording earlier, or run more steps."});
}

void CaptureIncomplete(const Report& report, std::vector<Finding>& out) {
  std::vector<std::string> why;
  const Trust& t = report.trust;
  if (t.timing_source != Trust::TimingSource::kCuptiActivity && !report.ranks.empty()) {
    why.push_back(absl::StrCat(t.timing_source == Trust::TimingSource::kNone
                                   ? "no process reported GPU times"
                                   : "some processes reported no GPU times",
                               t.cupti_taken ? " because another profiler has CUPTI" : ""));
  }
  if (!t.exit_incomplete.empty()) {
    why.push_back(
        absl::StrCat("the last flush did not finish in time on ", absl::StrJoin(t.exit_incomplete, ", ")));
  }
  if (t.unrecorded_frames > 0) {
    why.push_back(absl::StrCat(Count(t.unrecorded_frames),
                               " frames could not be written to the run directory; they count in this report "
                               "but not in a later `gpuprobe report`"));
  }
  if (t.yields > 0) {
    why.push_back(
        absl::StrFormat("another profiler had CUPTI for the first %.1f s: no GPU times were recorded until "
                        "it left",
                        static_cast<double>(t.yielded_ns) / 1e9));
  }
  for (const CuptiDefect& defect : t.cupti_defects) {
    why.push_back(absl::StrCat(defect.left_out, " (", defect.defect, " in CUPTI ", report.conditions.cupti,
                               ": ", defect.source, ")"));
  }
  if (t.misnamed_kernels > 0) {
    why.push_back(
        absl::StrCat(Count(t.misnamed_kernels),
                     " kernels have another kernel's name in CUPTI's records: the name says NCCL, "
                     "or does not, and their launches say otherwise. They count as what their "
                     "launches say. Other names may be wrong, too, so no rank is compared by them"));
  }
  if (t.detail_reductions > 0) {
    why.push_back(
        absl::StrFormat("recording ended %.1f s before the end, to stay within GPUPROBE_OVERHEAD_BUDGET",
                        static_cast<double>(t.reduced_ns) / 1e9));
  }
  if (t.device_records_late * thresholds::kLateRecordsOneIn > t.records) {
    why.push_back(absl::StrCat(
        t.device_records_late,
        " GPU records arrived too late to be placed in steps: totals are correct, steps may be wrong"));
  }
  for (const auto& [name, imports] : t.unknown_functions)
    why.push_back(absl::StrCat("nccl", name, " is unknown to this probe: its calls are not recorded"));
  if (t.other_unknown_functions > 0) {
    const bool one = t.other_unknown_functions == 1;
    why.push_back(absl::StrCat(t.other_unknown_functions,
                               one ? " other NCCL function is" : " other NCCL functions are",
                               " unknown, too"));
  }
  if (t.recorded_elsewhere > 0)
    why.push_back(absl::StrCat(
        Count(t.recorded_elsewhere),
        " earlier records are in another run: the collector was replaced while the program ran"));
  if (t.invalid_times > 0)
    why.push_back(absl::StrCat(Count(t.invalid_times), " records end before they begin"));
  if (t.other_names > 0) {
    why.push_back(absl::StrCat("names of ", Count(t.other_names), " kernels, ranges or texts beyond ",
                               Count(model::ProcessNames::kMaxTexts),
                               " in a process were not kept: they read `#` for numbers, or `other names`"));
  }
  for (const std::string& damage : t.damaged_logs) why.push_back(damage);
  uint64_t untimed = 0;
  uint64_t calls = 0;
  for (const CollectiveReport& c : report.collectives) {
    untimed += c.untimed_calls - c.unlaunched_calls;  // calls that rightly launch nothing lack nothing
    calls += c.calls;
  }
  // A hanging call has no end, and so no time; nor has one in whose middle the job was stopped.
  // Nor one in whose middle a process was attached to or detached from.
  const bool was_cut = StoppedBy(report) != 0 || !t.attached.empty();
  const bool of_the_end = was_cut && untimed * thresholds::kStoppedCallsOneIn <= calls;
  if (untimed > 0 && report.hangs.empty() && !of_the_end) {
    why.push_back(absl::StrCat(Count(untimed), " of ", Count(calls),
                               " collective calls have no kernel and therefore no GPU time"));
  }
  if (why.empty()) return;
  const bool only_names = why.size() == 1 && t.other_names > 0;
  out.push_back(
      {.statement = "The capture is incomplete.",
       .evidence = absl::StrCat(absl::StrJoin(why, "; "), "."),
       .advice = t.cupti_taken ? "Run without the other profiler."
                 : t.timing_source == Trust::TimingSource::kNone
                     ? "See the line that gpuprobe prints when the program starts (GPUPROBE_VERBOSE=1)."
                 : only_names
                     ? "Totals are complete. Name ranges and kernels without what differs in each step."
                 : !t.cupti_defects.empty() ? "Use a newer CUPTI. Treat totals as lower bounds."
                                            : "Treat totals as lower bounds."});
}

// Of launches outside of CUDA graphs; GraphNodes is about the kernels in them.
void CostlyCapture(const Report& report, std::vector<Finding>& out) {
  const OwnCost& cost = report.trust.cost;
  const double own = cost.own_fraction.value_or(0);
  const double least = cost.expected_least.value_or(0) - cost.graph_nodes_least;
  const double most = cost.expected_most.value_or(0) - cost.graph_nodes_most;
  if (own + least < thresholds::kCostlyTimeShare) return;
  out.push_back(
      {.statement = absl::StrFormat("Profiling costs an estimated %.2g %% of the job's time or more.",
                                    (own + least) * 100),
       .evidence = absl::StrFormat("Our code takes %.2g %% of the time, CUPTI an estimated %.2g to %.2g %% "
                                   "(%s launches of kernels, 1 to 3 us each, based on H100 figures).",
                                   own * 100, least * 100, most * 100, Count(cost.launches)),
       .advice = "GPUPROBE_OVERHEAD_BUDGET=5 ends recording if it costs more for 3 s; "
                 "GPUPROBE_KINDS=nccl,nvtx,memory "
                 "records no kernels. CUDA graphs reduce the number of launches."});
}

// Nothing is switched while the program runs: CUPTI 13.0 ends a program that launches a graph whole which it
// made executable when nodes were recorded (docs/real-hardware.md).
void GraphNodes(const Report& report, std::vector<Finding>& out) {
  const OwnCost& cost = report.trust.cost;
  const auto lost = report.trust.lost.find(LossName(v1::LOSS_INVALID_TIMESTAMP));
  const uint64_t invalid = lost == report.trust.lost.end() ? 0 : lost->second;
  const uint64_t nodes = cost.graph_nodes + invalid;
  const bool many_invalid =
      cost.graph_nodes > 0 &&
      static_cast<double>(invalid) >= thresholds::kInvalidNodesShare * static_cast<double>(nodes);
  if (cost.graph_nodes_most < thresholds::kGraphNodesTimeShare && !many_invalid) return;
  Finding finding{
      .statement = "CUDA graphs are recorded node by node, which may slow their replays.",
      .evidence = absl::StrCat(Count(cost.graph_nodes), " nodes were recorded, an estimated ",
                               Percent(cost.graph_nodes_least), " to ", Percent(cost.graph_nodes_most),
                               " of the processes' time (0.1 to 1.4 us each, based on H100 figures)."),
      .advice =
          "GPUPROBE_KINDS=kernels,copies,memsets,syncs,memory,nccl,nvtx,graphs records each graph launch as "
          "a whole, and eager kernels one by one."};
  if (many_invalid) {
    finding.statement =
        "CUDA graphs are recorded node by node, and CUPTI returned no valid times for many nodes.";
    absl::StrAppend(&finding.evidence, " ", Count(invalid),
                    " kernel records have no valid times: CUPTI may have run out of device buffers.");
  }
  out.push_back(finding);
}

void DetailDropped(const Report& report, std::vector<Finding>& out) {
  const uint64_t since = report.trust.detail_since_ns;
  if (since == 0) return;
  const uint64_t start = report.conditions.start_ns;
  const double after_s = since > start ? static_cast<double>(since - start) / 1e9 : 0;
  out.push_back(
      {.statement = absl::StrFormat("Individual records are kept only from %.1f s into the run.", after_s),
       .evidence = "The run reached its size limit, so older records were dropped after being counted: the "
                   "numbers here cover the whole run, gpuprobe export does not.",
       .advice = "Raise --keep SIZE to keep more."});
}

void RanksInPart(const Report& report, std::vector<Finding>& out) {
  const uint64_t without = report.trust.ranks_without_detail;
  if (without == 0) return;
  const uint64_t all = report.ranks.size();
  const bool too_many = all > model::JobModel::kMostInDetail;
  out.push_back(
      {.statement =
           absl::StrCat("Kernels, memory and hosts are those of ", Count(all - std::min(all, without)),
                        " of the ", Count(all), " ranks; steps and collectives are those of all."),
       .evidence = too_many
                       ? absl::StrCat("With more than ", Count(model::JobModel::kMostInDetail),
                                      " ranks, a hub reads the detail of those that others wait for, and "
                                      "of a few among the others.")
                       : std::string("The hosts of the other ranks have not sent it yet, or run another "
                                     "release of gpuprobe."),
       .advice =
           "Each host's own run directory has the detail of all its ranks: gpuprobe report DIR there."});
}

void ClockStepped(const Report& report, std::vector<Finding>& out) {
  const int64_t step = report.trust.clock_step_ns;
  if (std::abs(step) < thresholds::kClockStepNs) return;
  out.push_back({.statement = absl::StrFormat("The host's clock was stepped by %.1f ms during the run.",
                                              static_cast<double>(step) / 1e6),
                 .evidence = "CLOCK_REALTIME moved against CLOCK_MONOTONIC between two batches.",
                 .advice = "Intervals that span that moment are off by that much; durations within a record "
                           "are not affected."});
}

void DeviceClock(const Report& report, std::vector<Finding>& out) {
  const int64_t ahead_ns = report.trust.device_clock_ahead_ns;
  if (ahead_ns == 0) return;
  const std::string by = Duration(std::abs(static_cast<double>(ahead_ns)));
  out.push_back(
      {.statement = absl::StrCat("CUPTI's clock is ", by, ahead_ns > 0 ? " ahead of" : " behind",
                                 " the system's; device times were corrected."),
       .evidence =
           "The first work on the device seemed to run before its launch or after its record arrived. "
           "Delays between launch and start are relative to the shortest one; exported records keep "
           "their own times.",
       .advice = "Run without whatever changes the program's clock (libfaketime), or without the other tool "
                 "that gave CUPTI a clock of its own."});
}

Moment AtCutOff(const Report& report) {
  for (const RankReport& rank : report.ranks) {
    if (rank.cut_off) return {.time_ns = rank.start_ns + rank.duration_ns};
  }
  return {};
}

}  // namespace

std::vector<FindingRule> CaptureRules() {
  return {
      {"duplicate-rank", FindingTopic::kHardware, Severity::kWarning,
       "two or more processes that used a GPU were the same rank at the same time", DuplicateRanks},
      {"rank-cut-off", FindingTopic::kHangs, Severity::kWarning,
       "a process exited uncleanly, or the collector ended before it; not if the job stood idle until then, "
       "or was "
       "stopped as a whole",
       RankCutOff, "lifelines", AtCutOff, /*of_the_end=*/true},
      {"job-stopped", FindingTopic::kRecording, Severity::kInfo,
       "all processes ended by a signal that asks them to (SIGINT, SIGTERM, SIGHUP, SIGQUIT), and nothing "
       "hung",
       JobStopped, "", nullptr, /*of_the_end=*/true},
      {"attached-late", FindingTopic::kRecording, Severity::kInfo,
       "recording began while a process ran already (gpuprobe attach)", RanBefore},
      {"records-lost", FindingTopic::kRecording, Severity::kWarning, "records were lost", RecordsLost,
       "coverage"},
      {"ranks-missing", FindingTopic::kRecording, Severity::kInfo, "some ranks did not report", RanksMissing,
       "ranks"},
      {"capture-incomplete", FindingTopic::kRecording, Severity::kWarning,
       absl::StrFormat(
           "GPU times are missing, more than 1 in %d records came too late for their steps, the "
           "last flush was cut short, a process had more distinct names than are kept, or the recorded "
           "data is damaged",
           thresholds::kLateRecordsOneIn),
       CaptureIncomplete, "coverage"},
      {"costly-capture", FindingTopic::kRecording, Severity::kWarning,
       absl::StrCat(
           "profiling takes ", condition::Share(thresholds::kCostlyTimeShare),
           " of the processes' time or more: our own code plus the least that CUPTI is estimated to add to "
           "launches"),
       CostlyCapture, "overhead"},
      {"graph-nodes", FindingTopic::kRecording, Severity::kInfo,
       absl::StrFormat("recording CUDA graphs node by node may take %s of the processes' time, or %s of the "
                       "nodes have no valid times",
                       condition::Share(thresholds::kGraphNodesTimeShare),
                       condition::Share(thresholds::kInvalidNodesShare)),
       GraphNodes},
      {"no-step-recorded", FindingTopic::kRecording, Severity::kWarning,
       "only some steps were to be recorded, and the program ran none of them; or the run was at level idle, "
       "and "
       "nothing was captured",
       NoStepRecorded},
      {"clock-stepped", FindingTopic::kHardware, Severity::kWarning,
       absl::StrFormat("the host's clock was stepped by %g ms or more",
                       static_cast<double>(thresholds::kClockStepNs) / 1e6),
       ClockStepped},
      {"device-clock", FindingTopic::kHardware, Severity::kInfo,
       absl::StrFormat("CUPTI's clock differed from the system's by more than %g ms",
                       static_cast<double>(model::DeviceClock::kAgreesWithinNs) / 1e6),
       DeviceClock},
      {"detail-dropped", FindingTopic::kRecording, Severity::kInfo,
       "individual records were dropped to stay within --keep", DetailDropped},
      {"ranks-in-part", FindingTopic::kRecording, Severity::kInfo,
       "of some ranks only steps and collectives are known", RanksInPart},
  };
}

}  // namespace gpuprobe::analysis
