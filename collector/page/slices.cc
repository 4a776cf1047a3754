#include "collector/page/slices.h"

#include <algorithm>
#include <limits>

namespace gpuprobe::page {
namespace {

// One pass over slices by track and start; `across_kinds`: also joins different kinds.
std::vector<Slice> Joined(const std::vector<Slice>& slices, uint64_t least_ns, bool across_kinds) {
  std::vector<Slice> out;
  uint64_t longest_ns = 0;  // of those in out.back()
  for (const Slice& slice : slices) {
    const uint64_t length_ns = slice.end_ns - slice.start_ns;
    if (!out.empty() && length_ns < least_ns && longest_ns < least_ns && out.back().track == slice.track &&
        (across_kinds || out.back().kind == slice.kind) && slice.start_ns < out.back().end_ns + least_ns) {
      Slice& run = out.back();
      run.end_ns = std::max(run.end_ns, slice.end_ns);
      run.count += slice.count;
      if (length_ns > longest_ns) {
        longest_ns = length_ns;
        run.name = slice.name;
        run.kind = slice.kind;
      }
      run.seq = run.comm = 0;
      continue;
    }
    out.push_back(slice);
    longest_ns = slice.count > 1 ? 0 : length_ns;
  }
  return out;
}

}  // namespace

void JoinShort(uint64_t span_ns, size_t most, std::vector<Slice>& slices) {
  constexpr uint64_t kParts = 1000;
  uint64_t least_ns = span_ns / kParts;
  slices = Joined(slices, least_ns, /*across_kinds=*/false);
  while (slices.size() > most && least_ns < std::numeric_limits<uint64_t>::max() / 4) {
    least_ns = 2 * least_ns + 1;
    slices = Joined(slices, least_ns, /*across_kinds=*/true);
  }
}

void KeepLongest(size_t most, std::vector<HostSlice>& slices) {
  if (slices.size() > most) {
    std::nth_element(
        slices.begin(), slices.begin() + static_cast<ptrdiff_t>(most), slices.end(),
        [](const HostSlice& a, const HostSlice& b) { return a.end_ns - a.start_ns > b.end_ns - b.start_ns; });
    slices.resize(most);
  }
  std::stable_sort(slices.begin(), slices.end(),
                   [](const HostSlice& a, const HostSlice& b) { return a.start_ns < b.start_ns; });
}

}  // namespace gpuprobe::page
