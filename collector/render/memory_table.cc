#include "collector/render/memory_table.h"

#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "collector/analysis/lifetime_report.h"
#include "collector/analysis/units.h"

namespace gpuprobe::render {
namespace {

using Lifetimes = analysis::MemoryLifetimesReport;

std::string_view Words(std::string_view lifetime) {
  if (lifetime == "before_steps") return "made before the first step";
  if (lifetime == "first_steps") return "made in the first steps, and kept";
  if (lifetime == "first_steps_backward") return "made in backward of the first steps, and kept";
  if (lifetime == "from_forward") return "made in forward, freed later in the step";
  if (lifetime == "from_backward") return "made in backward, freed later";
  if (lifetime == "within_phase") return "made and freed in one phase";
  if (lifetime == "kept") return "made in a step, and kept";
  return "other";
}

}  // namespace

Table MemoryTable(const analysis::Report& report) {
  Table t{.id = "memory-lifetimes",
          .title = "Memory at its highest",
          .columns = {"memory", "probably", "bytes", "share"},
          .left = {true, true, false, false},
          .rows = {},
          .note = ""};
  const analysis::RankReport* whose = nullptr;
  const Lifetimes* most = nullptr;
  bool tensors = false;
  const auto consider = [&](const analysis::RankReport& r, const std::optional<Lifetimes>& each,
                            bool pytorch) {
    if (!each.has_value() || each->peak_bytes == 0 ||
        (most != nullptr && each->peak_bytes <= most->peak_bytes))
      return;
    whose = &r;
    most = &*each;
    tensors = pytorch;
  };
  for (const analysis::RankReport& r : report.ranks) {
    for (const analysis::PytorchMemoryReport& p : r.pytorch_memory) consider(r, p.lifetimes, true);
  }
  if (most == nullptr) {
    for (const analysis::RankReport& r : report.ranks) {
      for (const analysis::DeviceMemoryReport& d : r.device_memory) consider(r, d.lifetimes, false);
    }
  }
  if (most == nullptr) return t;
  for (const Lifetimes::Part& part : most->parts) {
    const double share = static_cast<double>(part.bytes) / static_cast<double>(most->peak_bytes);
    t.rows.push_back({std::string(Words(part.lifetime)), part.likely.empty() ? "-" : part.likely,
                      analysis::Bytes(part.bytes), analysis::Percent(share)});
  }
  t.note = absl::StrCat("rank ", whose->label, ", ", tensors ? "PyTorch's tensors" : "driver allocations",
                        ", ", analysis::Bytes(most->peak_bytes), " in step ", most->peak_step,
                        "; what it probably is is inferred from when it was made and freed");
  const std::string growth = analysis::GrowthText(*most);
  if (!growth.empty()) absl::StrAppend(&t.note, "; ", growth);
  return t;
}

}  // namespace gpuprobe::render
