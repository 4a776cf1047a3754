// Which ranks a table for people shows when there are too many of them.
//
// Separate because every table of ranks makes the same choice; report.json has all.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace gpuprobe::analysis {
struct Report;
}

namespace gpuprobe::render {

struct RankChoice {
  std::vector<size_t> shown;  // places in report.ranks: those that are named, then ascending
  std::set<size_t> named;     // of report.ranks: cut off, out of memory, hanging, straggling
  std::string note;           // how many are left out, and who is not; empty when all are shown
};

// All in order, up to 32. Of more: first those that findings name, then those that stand at the ends (least
// and most busy, most memory).
RankChoice ChooseRanks(const analysis::Report& report);

}  // namespace gpuprobe::render
