// The text shown while a job runs: one line, a screen with one row per rank, or a screen of one rank.
//
// Separate from the report's text because it covers the last moments, and changes every second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collector/analysis/live_status.h"
#include "collector/render/text_layout.h"

namespace gpuprobe::render {

// "8 ranks on n1, 8 x NVIDIA L40S, CUDA 13.0, NCCL 2.28.9"
std::string LiveIntroduction(const analysis::LiveStatus& status);
// "step 118  412 ms  compute 61%  ...", without an end of line.
std::string LiveLine(const analysis::LiveStatus& status, const Screen& screen = {});
// The same in so many columns, if what must be said fits: leaves out what is least needed, and never who is
// late, in trouble or without work, or what was lost.
std::string LiveLineWithin(const analysis::LiveStatus& status, const Screen& screen, size_t columns);

// Orders of the ranks' table; by kRank or by what is worst first.
enum class LiveOrder { kRank, kLate, kStep, kWaited, kMemory };
inline constexpr std::pair<const char*, LiveOrder> kLiveOrders[] = {{"rank", LiveOrder::kRank},
                                                                    {"late", LiveOrder::kLate},
                                                                    {"step", LiveOrder::kStep},
                                                                    {"waited", LiveOrder::kWaited},
                                                                    {"memory", LiveOrder::kMemory}};
// Indexes into status.ranks.
std::vector<size_t> OrderOf(const analysis::LiveStatus& status, LiveOrder order);

inline constexpr size_t kLiveRanks = 32;

struct LiveView {
  LiveOrder order = LiveOrder::kRank;
  size_t first = 0;                // of the ordered ranks, the first shown
  size_t rows = kLiveRanks;        // shown at most
  std::optional<size_t> selected;  // into status.ranks
};

// Introduction, line, hangs, and one row per rank; with more ranks than rows and the order of ranks, those
// that are in trouble or late most.
std::string LiveScreen(const analysis::LiveStatus& status, const LiveView& view = {},
                       const Screen& screen = {});

// What a rank did at an earlier look.
struct LiveMoment {
  uint64_t ago_ns = 0;
  analysis::LiveRank rank;
};
// The same for one rank: what it does, and how it did before, the latest first.
std::string LiveRankScreen(const analysis::LiveStatus& status, size_t rank,
                           const std::vector<LiveMoment>& past, const Screen& screen = {});

}  // namespace gpuprobe::render
