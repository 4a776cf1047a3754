// What the tool can conclude: each finding is one entry, below the function that finds it, in the file of its
// subject (findings_<subject>.cc).
//
// The report, the page's picture of a finding, `trace --around`, `gpuprobe help findings` and the list in
// docs/findings/README.md derive from the entries. A rule is a pure function of the report: it appends what
// it finds and leaves id and severity to its entry. docs/findings/<id>.md describes the finding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collector/report/report.h"

namespace gpuprobe::analysis {

// In the order in which findings without a measurable cost are listed.
enum class FindingTopic {
  kMemory,
  kHangs,
  kRanks,
  kCommunication,
  kSteps,
  kHardware,
  kRecording,
  kHealth  // looks at the findings of all others
};
// "Hangs and deaths"
const char* TitleOf(FindingTopic topic);

// What a finding refers to: a step, a moment, or no particular step.
struct Moment {
  std::optional<uint64_t> step = std::nullopt;
  std::optional<uint64_t> time_ns = std::nullopt;
};

struct FindingRule {
  const char* id;
  FindingTopic topic;
  Severity severity;
  std::string holds_when;  // for people: the condition, with its thresholds (thresholds.h)
  void (*find)(const Report& report, std::vector<Finding>& out);
  const char* picture = "";                          // in page/web/pictures.ts; empty: none
  Moment (*moment)(const Report& report) = nullptr;  // nullptr: no particular step
  bool of_the_end = false;                           // how a process ended, which one that runs has not
};

// All, by topic.
std::span<const FindingRule> FindingRules();
// REQUIRES: a rule has this id.
const FindingRule& RuleOf(std::string_view id);

// The findings that the rest of the report proves, worst first.
std::vector<Finding> FindingsOf(const Report& report);

// For people: what the conditions of stragglers mean by "holds up the others".
std::string HoldsUpText();

// The parts of conditions: "2.5 %" of 0.025, "1.1x" of 1.1, "60 s", "64 MiB".
namespace condition {
std::string Share(double share);
std::string Ratio(double ratio);
std::string Seconds(uint64_t ns);
std::string Mib(uint64_t bytes);
}  // namespace condition

std::vector<FindingRule> BalanceRules();
std::vector<FindingRule> CaptureRules();
std::vector<FindingRule> CommunicationRules();
std::vector<FindingRule> DeviceRules();
std::vector<FindingRule> GpuHealthRules();
std::vector<FindingRule> GrowthRules();
std::vector<FindingRule> HangRules();
std::vector<FindingRule> HostIdleRules();
std::vector<FindingRule> LongStepRules();
std::vector<FindingRule> MemoryRules();
std::vector<FindingRule> OptionRules();
std::vector<FindingRule> RankRules();
std::vector<FindingRule> StepRules();

// Steps after the warm-up; 0 without steps.
uint64_t SteadySteps(const Report& report);
// "39 steps"; "1,237 steps that all ranks reported (3,640 in all)" where others could not be compared.
std::string ComparedSteps(const Report& report, uint64_t compared);

// For a judgement of the usual step.
bool EnoughSteps(const Report& report);
std::vector<HostLoad> HostLoadsOf(const Report& report);
// Of which `rank-died` tells; null: of none.
const RankReport* FirstToDie(const Report& report);
// Hosts that wait for a CPU explain most of what GPUs are idle because of them.
bool Starved(const Report& report);

// For reports to which only one of several hosts reported.
inline constexpr char kTogether[] =
    "put the hosts' run directories into one directory (or give all hosts the same --out on a shared file "
    "system), and run gpuprobe report on it.";

}  // namespace gpuprobe::analysis
