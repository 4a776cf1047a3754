#include "collector/cli/rolled_up_line.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {

std::string RolledUpLine(const model::JobModel& job) {
  std::set<std::string> hosts;
  for (const auto& process : job.processes()) {
    if (process->hello().rolled_up()) hosts.insert(process->identity().host());
  }
  if (hosts.empty()) return "";
  const bool one = hosts.size() == 1;
  const std::string names = one ? text::Printable(*hosts.begin())
                                : absl::StrCat(text::Printable(*hosts.begin()), " and ", hosts.size() - 1,
                                               hosts.size() == 2 ? " other host" : " other hosts");
  return absl::StrCat("of what ", names,
                      " recorded there are only roll-ups here, steps and NCCL calls; kernels, copies and "
                      "allocations are in the run's directory on ",
                      one ? names : "each of them");
}

}  // namespace gpuprobe::cli
