// The report's tables as rows of text, defined once for the terminal and for the page.
//
// Separate from both so that the two cannot say different things.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace gpuprobe::analysis {
struct OwnCost;
struct Report;
}  // namespace gpuprobe::analysis

namespace gpuprobe::render {

struct Table {
  std::string id;
  std::string title;  // of the page's section
  std::vector<std::string> columns;
  std::vector<bool> left;  // columns that are text, not numbers
  std::vector<std::vector<std::string>> rows;
  std::string note;
  std::set<size_t> marked = {};  // rows that findings are about: the page highlights them
};

// Only those that have rows, in the order of the report.
std::vector<Table> TablesOf(const analysis::Report& report);

// "0.14 % + CUPTI's part, estimated at 0.4 to 1.2 % (based on H100 figures)": what being profiled costs.
std::string CostText(const analysis::OwnCost& cost);

// "gpuprobe: 4 ranks on n1 in 12.3 s, 81,234 records, none lost, own cost 0.4 %"
std::string Headline(const analysis::Report& report);
// "gpuprobe: 4 x NVIDIA L40S, CUDA 13.0, NCCL 2.28.9, GPU times from CUPTI activity"
std::string ConditionsLine(const analysis::Report& report);

}  // namespace gpuprobe::render
