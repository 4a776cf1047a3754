#include "collector/analysis/suspects.h"

#include <algorithm>
#include <cmath>

namespace gpuprobe::analysis {

void Suspects::Look(const JobNumbers& job, uint64_t now_ns) {
  const auto passed_ns = static_cast<double>(now_ns - std::min(looked_ns_, now_ns));
  const double kept = std::exp(-passed_ns / static_cast<double>(kMemoryNs));
  for (auto& [key, rank] : ranks_) rank.seen = false;
  for (size_t place = 0; place < job.ranks.size(); ++place) {
    const RankNumbers& numbers = job.ranks[place];
    const auto [at, is_new] = ranks_.try_emplace({numbers.rank, numbers.host});
    Rank& rank = at->second;
    const bool goes_on = !is_new && numbers.caused_wait_ns >= rank.caused_wait_ns;
    const uint64_t caused_ns = goes_on ? numbers.caused_wait_ns - rank.caused_wait_ns : 0;
    if (passed_ns > 0) rank.cost = kept * rank.cost + (1 - kept) * static_cast<double>(caused_ns) / passed_ns;
    rank.caused_wait_ns = numbers.caused_wait_ns;
    if (rank.cost >= kLeastCost || numbers.halted) rank.costly_at_ns = now_ns;
    rank.place = place;
    rank.seen = true;
  }
  std::erase_if(ranks_, [](const auto& each) { return !each.second.seen; });
  looked_ns_ = now_ns;
}

std::vector<size_t> Suspects::Choose(const JobNumbers& job, uint64_t now_ns) {
  Look(job, now_ns);
  std::vector<Rank*> others;
  std::vector<Rank*> chosen;
  for (auto& [key, rank] : ranks_) (rank.chosen ? chosen : others).push_back(&rank);
  // Halted ranks cause no waiting that is over.
  const auto costs_more = [&](const Rank* a, const Rank* b) {
    const bool a_is_costly = a->costly_at_ns == now_ns;
    const bool b_is_costly = b->costly_at_ns == now_ns;
    if (a_is_costly != b_is_costly) return a_is_costly;
    return a->cost != b->cost ? a->cost > b->cost : a->place < b->place;
  };
  const auto may_go = [&](const Rank* rank) {
    return rank->costly_at_ns == 0 || now_ns > rank->costly_at_ns + kStayNs;
  };
  const size_t most = std::min(others.size(), kMost);
  std::partial_sort(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(most), others.end(),
                    costs_more);
  for (size_t i = 0; i < most; ++i) {
    if (chosen.size() < kMost) {
      chosen.push_back(others[i]);
      continue;
    }
    if (others[i]->costly_at_ns != now_ns) break;
    std::sort(chosen.begin(), chosen.end(), costs_more);
    const auto least = std::find_if(chosen.rbegin(), chosen.rend(), may_go);
    if (least == chosen.rend()) break;
    (*least)->chosen = false;
    *least = others[i];
  }
  std::vector<size_t> places;
  for (Rank* rank : chosen) {
    rank->chosen = true;
    places.push_back(rank->place);
  }
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace gpuprobe::analysis
