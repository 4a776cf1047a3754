#include "collector/render/memory_table.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/memory/lifetime_report.h"
#include "collector/analysis/units.h"
#include "collector/report/memory.h"
#include "collector/report/ranks.h"

namespace gpuprobe::render {
namespace {

using Lifetimes = analysis::MemoryLifetimesReport;

std::string EvidenceOf(const Lifetimes::Holding& holding) {
  if (holding.evidence.empty()) return "-";
  return holding.inferred ? holding.evidence : absl::StrCat("observed: ", holding.evidence);
}

// "peaks by phase: forward 30.1 GiB, backward 34.6 GiB": the highest in any step.
std::string PhasePeaks(const std::optional<analysis::MemoryBySteps>& by_step) {
  if (!by_step.has_value() || by_step->phases.size() < 2) return "";
  std::vector<std::string> parts;
  for (const analysis::MemoryBySteps::Phase& phase : by_step->phases)
    parts.push_back(absl::StrCat(report::Word(phase.name), " ", analysis::Bytes(phase.peak_bytes)));
  return absl::StrCat("; peaks by host phase: ", absl::StrJoin(parts, ", "));
}

}  // namespace

Table MemoryTable(const std::vector<analysis::RankReport>& ranks) {
  Table t{.id = "memory-lifetimes",
          .title = "Memory at its peak",
          .columns = {"memory at its peak", "bytes", "share", "inferred from"},
          .left = {true, false, false, true},
          .rows = {},
          .note = ""};
  const analysis::RankReport* whose = nullptr;
  const Lifetimes* most = nullptr;
  const std::optional<analysis::MemoryBySteps>* by_step = nullptr;
  bool tensors = false;
  const auto consider = [&](const analysis::RankReport& r, const std::optional<Lifetimes>& each,
                            const std::optional<analysis::MemoryBySteps>& steps, bool pytorch) {
    if (!each.has_value() || each->peak_bytes == 0 ||
        (most != nullptr && each->peak_bytes <= most->peak_bytes))
      return;
    whose = &r;
    most = &*each;
    by_step = &steps;
    tensors = pytorch;
  };
  for (const analysis::RankReport& r : ranks) {
    for (const analysis::PytorchMemoryReport& p : r.pytorch_memory) consider(r, p.lifetimes, p.by_step, true);
  }
  if (most == nullptr) {
    for (const analysis::RankReport& r : ranks) {
      for (const analysis::DeviceMemoryReport& d : r.device_memory)
        consider(r, d.lifetimes, d.by_step, false);
    }
  }
  if (most == nullptr) return t;
  for (const Lifetimes::Holding& holding : most->holdings) {
    const double share = static_cast<double>(holding.bytes) / static_cast<double>(most->peak_bytes);
    t.rows.push_back(
        {holding.what, analysis::Bytes(holding.bytes), analysis::Percent(share), EvidenceOf(holding)});
  }
  t.note = absl::StrCat(whose->is_device ? "" : "rank ", whose->label, ", ",
                        tensors ? "PyTorch's tensors" : "driver allocations", ", ",
                        analysis::Bytes(most->peak_bytes), " in step ", most->peak_step);
  absl::StrAppend(&t.note, PhasePeaks(*by_step));
  const std::string growth = analysis::GrowthText(*most);
  if (!growth.empty()) absl::StrAppend(&t.note, "; ", growth);
  return t;
}

}  // namespace gpuprobe::render
