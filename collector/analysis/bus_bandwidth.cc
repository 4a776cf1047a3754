#include "collector/analysis/bus_bandwidth.h"

#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {

MovedBytes MovedBytesOf(std::string_view op, uint64_t bytes, int ranks) {
  const auto b = static_cast<double>(bytes);
  const double n = ranks;
  switch (nccl::FactsOf(op).volume) {
    case nccl::Volume::kTwice:
      return {.algorithm = b, .bus = b * 2 * (n - 1) / n};
    case nccl::Volume::kPerRank:
      return {.algorithm = b * n, .bus = b * (n - 1)};
    case nccl::Volume::kOnce:
      break;
  }
  return {.algorithm = b, .bus = b};
}

}  // namespace gpuprobe::analysis
