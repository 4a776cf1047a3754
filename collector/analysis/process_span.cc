#include "collector/analysis/process_span.h"

#include <algorithm>

namespace gpuprobe::analysis {

uint64_t FirstNs(const model::ProcessModel& process) {
  const uint64_t hello = process.hello().clock().realtime_ns();
  const uint64_t first = process.totals().first_ns;
  if (hello == 0) return first == UINT64_MAX ? 0 : first;
  return std::min(hello, first);
}

uint64_t LastNs(const model::ProcessModel& process) {
  return std::max(process.totals().last_ns, process.totals().last_clock_ns);
}

uint64_t DurationNs(const model::ProcessModel& process) {
  const uint64_t first = FirstNs(process);
  const uint64_t last = LastNs(process);
  return last > first ? last - first : 0;
}

}  // namespace gpuprobe::analysis
