// Which ranks a table for people shows when there are too many of them.
//
// Separate because every table of ranks makes the same choice; report.json has all.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace gpuprobe::analysis {
struct RankReport;
struct Report;
}  // namespace gpuprobe::analysis

namespace gpuprobe::render {

struct RankChoice {
  std::vector<size_t> shown;  // places in report.ranks: those that are named, then ascending
  std::set<size_t> named;     // of report.ranks: cut off, out of memory, hanging, straggling
  std::string note;           // how many are left out, and who is not; empty when all are shown
};

// All in order, up to 32. Of more: first those that findings name, then those that stand at the ends (least
// and most busy, most memory).
RankChoice ChooseRanks(const analysis::Report& report);

// Whether its work was to be recorded: at levels idle and calls, of ranks that were captured alone.
bool IsRecorded(const analysis::Report& report, const analysis::RankReport& rank);

// Whether its kernels are known, and not only how many they are (Trust.ranks_without_detail).
bool IsInDetail(const analysis::RankReport& rank);

}  // namespace gpuprobe::render
