#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {

void StragglerSlowGpu(const Report& report, std::vector<Finding>& out) {
  for (const Straggler& s : report.stragglers) {
    std::string waiting;
    if (s.others_wait_mean_ns > 0) {
      waiting = absl::StrFormat(" In collectives each other rank waited %s in all, rank %d %s.",
                                Duration(s.others_wait_mean_ns), s.rank, Duration(s.wait_ns));
    }
    const std::string where = s.device.has_value() ? absl::StrCat("GPU ", *s.device, " on ", s.host) : s.host;
    out.push_back(
        {.statement = absl::StrFormat("Rank %d is slow: its kernels take %.2f x as long as the same kernels "
                                      "on the other ranks, %s more in all.",
                                      s.rank, s.slowdown, Duration(s.extra_ns)),
         .evidence = absl::StrFormat(
             "%s: %s a call against %s (median of the ranks), launched equally often.%s",
             KernelName(s.kernel, 40), Duration(s.kernel_mean_ns), Duration(s.kernel_elsewhere_ns), waiting),
         .advice = absl::StrCat("Look at clocks, power limit and temperature of ", where,
                                ", and at who else uses it.")});
  }
}

}  // namespace gpuprobe::analysis
