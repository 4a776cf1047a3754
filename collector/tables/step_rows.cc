#include "collector/tables/step_rows.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/steps/step_report.h"
#include "collector/report/words.h"

namespace gpuprobe::tables {
namespace {

std::string PhaseOf(size_t phase) { return report::Word(static_cast<model::StepPhase>(phase)); }

}  // namespace

std::string StepRow(const StepOwner& owner, const model::StepRecord& step) {
  std::string row = absl::StrCat("{\"kind\":\"step\",\"rank\":", owner.rank, ",\"pid\":", owner.pid,
                                 ",\"world_size\":", owner.world_size,
                                 ",\"gpu\":", owner.gpu.has_value() ? absl::StrCat(*owner.gpu) : "null",
                                 ",\"step\":", step.index);
  const std::pair<const char*, uint64_t> fields[] = {
      {"start_ns", step.start_ns},
      {"end_ns", step.end_ns},
      {"total_ns", step.total_ns()},
      {"compute_ns", step.compute_ns},
      {"comm_ns", step.comm_ns},
      {"exposed_comm_ns", step.exposed_comm_ns},
      {"copy_ns", step.copy_ns},
      {"idle_ns", step.idle_ns},
      {"host_bound_ns", step.host_bound_ns},
      {"input_wait_ns", step.input_ns},
      {"sync_ns", step.sync_ns},
      {"memory_ns", step.memory_ns},
      {"pause_ns", step.pause_ns},
      {"launch_gap_ns", step.launch_gap_ns},
      {"unknown_ns", step.unknown_ns},
      {"operations", step.operations},
      {"lost_operations", step.lost},
      {"error_ns", step.error_ns},
  };
  for (const auto& [name, value] : fields) absl::StrAppend(&row, ",\"", name, "\":", value);
  for (size_t i = 0; i < model::kStepPhases; ++i)
    absl::StrAppend(&row, ",\"", PhaseOf(i), "_ns\":", step.phase_ns[i]);
  absl::StrAppend(&row, ",\"warmup\":", step.warmup ? "true" : "false",
                  ",\"incomplete\":", step.incomplete ? "true" : "false", "}");
  return row;
}

std::string StepTimingLines(const StepOwner& owner, const model::StepRecord& step) {
  std::string lines;
  const auto line = [&](const std::string& phase, uint64_t ns) {
    constexpr uint64_t kSecond = 1'000'000'000;
    absl::StrAppend(&lines, "{\"step\":", step.index, ",\"phase\":\"", phase, "\",\"seconds\":", ns / kSecond,
                    ".", absl::StrFormat("%09d", ns % kSecond), ",\"rank\":", owner.rank,
                    ",\"world_size\":", owner.world_size, "}\n");
  };
  line("step", step.total_ns());
  for (size_t i = 0; i < model::kStepPhases; ++i) line(PhaseOf(i), step.phase_ns[i]);
  return lines;
}

}  // namespace gpuprobe::tables
