#include "collector/model/process/driver_calls.h"

namespace gpuprobe::model {

void DriverCalls::Sum::Add(const DriverCallRecord& call) {
  const uint64_t duration_ns = call.end_ns - call.start_ns;
  ++calls;
  total_ns += duration_ns;
  failed += call.result != 0 ? 1 : 0;
  nccl_ns += call.by_nccl ? duration_ns : 0;
  if (duration_ns <= longest_ns) return;
  longest_ns = duration_ns;
  longest_start_ns = call.start_ns;
}

void DriverCalls::On(const DriverCallRecord& call) {
  if (call.end_ns < call.start_ns) return;
  sums_[call.function].Add(call);
  if (early_.size() < kEarly) early_.push_back(call);
}

DriverCalls::Sums DriverCalls::SumsBefore(uint64_t time_ns) const {
  Sums sums;
  for (const DriverCallRecord& call : early_) {
    if (call.start_ns < time_ns) sums[call.function].Add(call);
  }
  return sums;
}

}  // namespace gpuprobe::model
