#include "collector/render/rank_choice.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"
#include "collector/report/report.h"

namespace gpuprobe::render {
namespace {

constexpr size_t kAll = 32;
constexpr size_t kOfAKind = 8;  // that findings name for one reason
constexpr size_t kAtAnEnd = 4;  // least busy, most busy, most memory

uint64_t MemoryPeak(const analysis::RankReport& rank) {
  uint64_t peak = 0;
  for (const analysis::DeviceMemoryReport& device : rank.device_memory)
    peak = std::max(peak, device.high_water_bytes);
  return peak;
}

// Those that a hang waits for or that called something else.
std::set<int> HangCulprits(const analysis::Report& report) {
  std::set<int> culprits;
  for (const analysis::Hang& hang : report.hangs) {
    for (const analysis::HangRank& rank : hang.ranks) {
      if (rank.state != analysis::HangRank::State::kWaiting && rank.rank.has_value())
        culprits.insert(*rank.rank);
    }
  }
  return culprits;
}

std::set<size_t> NamedRanks(const analysis::Report& report) {
  std::set<size_t> named;
  const auto add = [&](const auto& is_named) {
    size_t added = 0;
    for (size_t i = 0; i < report.ranks.size() && added < kOfAKind; ++i) {
      if (is_named(report.ranks[i])) {
        named.insert(i);
        ++added;
      }
    }
  };
  add([](const analysis::RankReport& r) { return r.cut_off; });
  add([](const analysis::RankReport& r) { return !r.out_of_memory.empty(); });
  const std::set<int> culprits = HangCulprits(report);
  add([&](const analysis::RankReport& r) { return r.rank.has_value() && culprits.count(*r.rank) > 0; });
  // Slowest first: of more than are shown, those that cost least are left out.
  for (size_t s = 0; s < std::min(kOfAKind, report.stragglers.size()); ++s)
    add([&](const analysis::RankReport& r) { return report.stragglers[s].Is(r); });
  return named;
}

}  // namespace

bool IsRecorded(const analysis::Report& report, const analysis::RankReport& rank) {
  const std::optional<analysis::OnDemand>& demand = report.conditions.on_demand;
  if (!demand.has_value()) return true;
  return std::any_of(demand->windows.begin(), demand->windows.end(), [&](const analysis::CapturedWindow& w) {
    return std::any_of(w.ranks.begin(), w.ranks.end(), [&](int captured) { return captured == rank.rank; });
  });
}

bool IsInDetail(const analysis::RankReport& rank) {
  return rank.kernel_count == 0 || rank.kernel_busy_ns > 0;
}

RankChoice ChooseRanks(const analysis::Report& report) {
  const std::vector<analysis::RankReport>& ranks = report.ranks;
  RankChoice choice;
  choice.named = NamedRanks(report);
  choice.shown.resize(ranks.size());
  std::iota(choice.shown.begin(), choice.shown.end(), size_t{0});
  if (ranks.size() <= kAll) return choice;

  std::set<size_t> chosen;
  const auto ends = [&](const auto& value, bool both) {
    std::vector<size_t> order = choice.shown;
    std::erase_if(order, [&](size_t i) { return !IsInDetail(ranks[i]); });
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return value(ranks[a]) > value(ranks[b]); });
    const auto some = static_cast<ptrdiff_t>(std::min(kAtAnEnd, order.size()));
    chosen.insert(order.begin(), order.begin() + some);
    if (both) chosen.insert(order.end() - some, order.end());
  };
  ends([](const analysis::RankReport& r) { return r.kernel_busy_ns; }, true);
  ends(MemoryPeak, false);
  choice.shown.assign(choice.named.begin(), choice.named.end());
  for (const size_t i : chosen) {
    if (choice.named.count(i) == 0) choice.shown.push_back(i);
  }
  choice.note = absl::StrCat(analysis::Count(ranks.size() - choice.shown.size()),
                             " more ranks in report.json; shown: ranks named in findings, the busiest, the "
                             "least busy, and those with the most memory");
  return choice;
}

}  // namespace gpuprobe::render
