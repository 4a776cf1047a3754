#include "collector/analysis/bus_bandwidth.h"

namespace gpuprobe::analysis {

MovedBytes MovedBytesOf(std::string_view op, uint64_t bytes, int ranks) {
  const auto b = static_cast<double>(bytes);
  const double n = ranks;
  if (op == "AllReduce") return {.algorithm = b, .bus = b * 2 * (n - 1) / n};
  if (op == "AllGather" || op == "ReduceScatter" || op == "AlltoAll" || op == "Gather" || op == "Scatter") {
    return {.algorithm = b * n, .bus = b * (n - 1)};
  }
  return {.algorithm = b, .bus = b};
}

}  // namespace gpuprobe::analysis
