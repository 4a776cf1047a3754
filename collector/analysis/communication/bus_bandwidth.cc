#include "collector/analysis/communication/bus_bandwidth.h"

#include <algorithm>

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

MovedBytes MovedBytesOf(std::span<const PlanPart> plan, int ranks, bool to_all) {
  MovedBytes sum;
  double sent = 0;
  double received = 0;
  for (const PlanPart& part : plan) {
    const MovedBytes moved = MovedBytesOf(part.op, part.bytes, ranks);
    if (nccl::IsTransfer(part.op)) {
      (nccl::IsSend(part.op) ? sent : received) += moved.algorithm;
    } else {
      sum.algorithm += moved.algorithm;
      sum.bus += moved.bus;
    }
  }
  const double one_way = std::max(sent, received);
  sum.algorithm += one_way;
  sum.bus += to_all ? one_way * (ranks - 1) / ranks : one_way;
  return sum;
}

}  // namespace gpuprobe::analysis
