#include "collector/analysis/hangs/hang_words.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/hangs/process_state.h"

namespace gpuprobe::analysis {

std::string HangRankName(const HangRank& r) {
  return r.rank.has_value() ? absl::StrCat("rank ", r.label) : r.label;
}

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string HangRankNames(const Hang& hang) {
  std::vector<std::string> labels;
  for (const HangRank& r : hang.ranks) labels.push_back(r.label);
  const bool plain =
      std::all_of(hang.ranks.begin(), hang.ranks.end(), [](const HangRank& r) { return r.rank.has_value(); });
  const size_t all = hang.ranks.size() + static_cast<size_t>(hang.ranks_left_out);
  std::string text = absl::StrCat(plain ? (all == 1 ? "rank " : "ranks ") : "", absl::StrJoin(labels, ", "));
  if (hang.ranks_left_out > 0) absl::StrAppend(&text, " and ", hang.ranks_left_out, " more");
  return text;
}

bool IsBusyOnHost(const HangRank& r) {
  return !r.halt.has_value() && r.blocked_in.empty() && r.load.cpus >= kBusyCpus;
}

bool IsHalted(const Hang& hang) {
  return !hang.ranks.empty() && hang.ranks.front().state == HangRank::State::kHalted;
}

}  // namespace gpuprobe::analysis
