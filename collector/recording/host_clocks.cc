#include "collector/recording/host_clocks.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"

namespace gpuprobe::recording {

void HostClocks::Look(const model::JobModel& job, uint64_t now_ns) {
  now_ns_ = now_ns;
  std::map<std::string, uint64_t> newest;  // of what came since the last look, by host
  for (const std::unique_ptr<model::ProcessModel>& process : job.processes()) {
    const uint64_t clock_ns = process->totals().last_clock_ns;
    uint64_t& heard_ns = heard_[process.get()];
    if (clock_ns <= heard_ns) continue;
    heard_ns = clock_ns;
    uint64_t& of_host = newest[process->identity().host()];
    of_host = std::max(of_host, process->Realtime(clock_ns));
  }
  for (const auto& [host, clock_ns] : newest) {
    const auto ahead_ns = static_cast<int64_t>(clock_ns - now_ns);
    if (static_cast<uint64_t>(std::abs(ahead_ns)) < kApartNs) {
      apart_.erase(host);
      continue;
    }
    Apart& apart = apart_[host];
    if (apart.since_ns == 0) apart.since_ns = now_ns;
    apart.ahead_ns = ahead_ns;
    apart.until_ns = now_ns;
  }
  std::erase_if(apart_, [&](const auto& each) { return now_ns - each.second.until_ns > kKnownNs; });
}

std::vector<std::string> HostClocks::TakeLines() {
  std::vector<std::string> lines;
  for (auto& [host, apart] : apart_) {
    if (apart.said || now_ns_ - apart.since_ns < kSaidAfterNs) continue;
    apart.said = true;
    const auto ns = static_cast<double>(std::abs(apart.ahead_ns));
    lines.push_back(absl::StrCat(
        "CLOCK  ", host, "'s clock is ", analysis::Duration(ns), apart.ahead_ns > 0 ? " ahead of" : " behind",
        " that of the host that shows the job: while that is so, it does not look for hangs. "
        "Let NTP set both (chronyc tracking).\n"));
  }
  return lines;
}

}  // namespace gpuprobe::recording
