// A finding: a statement with its evidence, advice and cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

enum class Severity { kInfo, kWarning, kError };

// The ranks and steps that a finding is about: what report.html selects when somebody clicks on the finding.
struct FindingSubject {
  std::vector<int> ranks = {};
  std::optional<uint64_t> first_step = std::nullopt;
  std::optional<uint64_t> last_step = std::nullopt;
  std::vector<uint64_t> steps = {};

  static constexpr void Declare(auto& fields) {
    using S = FindingSubject;
    fields("ranks", &S::ranks, "empty if it concerns all ranks");
    fields("first_step", &S::first_step,
           "where the stretch of the run begins in which it holds; `null`: at the beginning");
    fields("last_step", &S::last_step, "where it ends; `null`: at the end");
    fields("steps", &S::steps, "single steps, if it is about a few");
  }
};

struct Finding {
  std::string statement;
  std::string evidence = {};
  std::string advice = {};
  std::optional<double> cost_ns_per_step = std::nullopt;
  bool urgent = false;  // listed with the errors
  bool passed = false;  // an error that the job survived, while another one stopped it
  FindingSubject about = {};
  std::string id = {};  // this and the severity: from its entry (finding_rules.h)
  Severity severity = Severity::kInfo;

  static constexpr void Declare(auto& fields) {
    fields("id", &Finding::id, "`gpuprobe help findings` lists all ids with their conditions");
    fields("severity", &Finding::severity,
           "errors come first, and a leak that fills a device within a day. The rest is ordered by cost");
    fields("statement", &Finding::statement, "what was concluded");
    fields("evidence", &Finding::evidence, "from which numbers");
    fields("advice", &Finding::advice, "what to do about it");
    fields("cost_ns_per_step", &Finding::cost_ns_per_step,
           "how much shorter a step would be without it; `null` if it cannot be measured. If it began during "
           "the run, the cost is of the steps since then");
    fields("about", &Finding::about, "the ranks and steps that it is about");
    fields.Unwritten(&Finding::urgent, &Finding::passed);
  }
};

}  // namespace gpuprobe::analysis
