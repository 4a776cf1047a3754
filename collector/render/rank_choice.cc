#include "collector/render/rank_choice.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"

namespace gpuprobe::render {
namespace {

constexpr size_t kAll = 32;
constexpr size_t kOfAKind = 8;  // cut off, stragglers
constexpr size_t kAtAnEnd = 4;  // least busy, most busy, most memory

uint64_t MemoryPeak(const analysis::RankReport& rank) {
  uint64_t peak = 0;
  for (const auto& [kind, memory] : rank.memory) {
    if (kind != "host_pinned") peak = std::max(peak, memory.high_water_bytes);
  }
  return peak;
}

}  // namespace

RankChoice ChooseRanks(const analysis::Report& report) {
  const std::vector<analysis::RankReport>& ranks = report.ranks;
  RankChoice choice;
  choice.shown.resize(ranks.size());
  std::iota(choice.shown.begin(), choice.shown.end(), size_t{0});
  if (ranks.size() <= kAll) return choice;

  std::set<size_t> chosen;
  for (size_t i = 0; i < ranks.size() && chosen.size() < kOfAKind; ++i) {
    if (ranks[i].cut_off) chosen.insert(i);
  }
  for (size_t s = 0; s < std::min(kOfAKind, report.stragglers.size()); ++s) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i].rank == report.stragglers[s].rank) chosen.insert(i);
    }
  }
  const auto ends = [&](const auto& value, bool both) {
    std::vector<size_t> order = choice.shown;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return value(ranks[a]) > value(ranks[b]); });
    chosen.insert(order.begin(), order.begin() + kAtAnEnd);
    if (both) chosen.insert(order.end() - kAtAnEnd, order.end());
  };
  ends([](const analysis::RankReport& r) { return r.kernel_busy_ns; }, true);
  ends(MemoryPeak, false);
  choice.shown.assign(chosen.begin(), chosen.end());
  choice.note = absl::StrCat(
      analysis::Count(ranks.size() - chosen.size()),
      " more ranks in report.json; shown are those that were cut off, stragglers, the least and most busy, "
      "and the most memory");
  return choice;
}

}  // namespace gpuprobe::render
