#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"

namespace gpuprobe::analysis {
namespace {

std::string Gib(uint64_t bytes) {
  constexpr double kMib = 1024.0 * 1024;
  const double mib = static_cast<double>(bytes) / kMib;
  return mib >= 100 ? absl::StrFormat("%.1f GiB", mib / 1024) : absl::StrFormat("%.1f MiB", mib);
}

}  // namespace

// The last refusal is the one that counts: an allocator asks again after it has given back what it could.
void AllocationFailed(const Report& report, std::vector<Finding>& out) {
  for (const RankReport& r : report.ranks) {
    if (r.out_of_memory.empty()) continue;
    const RefusalReport& last = r.out_of_memory.back();
    uint64_t refused = 0;
    for (const auto& [kind, m] : r.memory) refused += m.failed;
    std::string statement =
        absl::StrFormat("%s ran out of memory: asked %s (%s), %s live",
                        r.rank.has_value() ? absl::StrCat("Rank ", *r.rank) : absl::StrCat("Process ", r.pid),
                        Gib(last.asked_bytes), last.memory, Gib(last.device_live_bytes));
    if (last.capacity_bytes.has_value()) absl::StrAppend(&statement, " of ", Gib(*last.capacity_bytes));
    if (!last.path.empty()) absl::StrAppend(&statement, ", in range ", last.path);
    std::vector<std::string> live;
    for (const auto& [kind, bytes] : last.live) live.push_back(absl::StrCat(kind, " ", Gib(bytes)));
    std::string evidence =
        absl::StrCat(refused, refused == 1 ? " request was" : " requests were",
                     " refused. Live then: ", live.empty() ? "nothing" : absl::StrJoin(live, ", "), ".");
    if (last.free_at_most_bytes.has_value()) {
      absl::StrAppend(&evidence, " Free: at most ", Gib(*last.free_at_most_bytes),
                      "; the context, loaded modules and other processes take their part of it.");
    }
    out.push_back({.statement = statement + ".",
                   .evidence = evidence,
                   .advice =
                       "report.json names the largest allocations at the high-water mark and the ranges "
                       "that made them (memory, out_of_memory)."});
  }
}

}  // namespace gpuprobe::analysis
