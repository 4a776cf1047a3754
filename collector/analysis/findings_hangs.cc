#include "collector/analysis/finding_rules.h"

namespace gpuprobe::analysis {
namespace {

void HangsOfKind(const Report& report, Hang::Kind kind, std::vector<Finding>& out) {
  for (const Hang& hang : report.hangs) {
    if (hang.kind != kind) continue;
    out.push_back(
        {.statement = HangStatement(hang), .evidence = HangEvidence(hang), .advice = HangAdvice(hang)});
  }
}

}  // namespace

void HangMismatch(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kMismatch, out);
}

void HangMissingRank(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kMissingRank, out);
}

void HangAllIssued(const Report& report, std::vector<Finding>& out) {
  HangsOfKind(report, Hang::Kind::kAllIssued, out);
}

}  // namespace gpuprobe::analysis
