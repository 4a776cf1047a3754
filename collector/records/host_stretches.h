// Joins the samples of a thread into stretches of time in which it was seen in one place.
//
// Example: samples at 20, 30 and 40 ms, each of which stands for the 10 ms before it, find a thread in read()
// of one file, called from one line: one stretch from 10 to 40 ms, of three samples. A sample taken while the
// process launches is a moment: what lies between it and the one before is not this place alone.
//
// Memory: one stretch for each thread. Times are those of the samples that are added.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collector/records/definitions.h"
#include "collector/records/rows.h"

namespace gpuprobe::model {

struct HostStretch {
  HostSampleRecord last;  // of its samples
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint64_t run_delay_ns = 0;  // of all samples
  uint32_t samples = 0;
};

class HostStretches {
 public:
  // Samples of a thread in order of time. Calls ended(stretch) for the one that this sample does not belong
  // to.
  template <typename Ended>
  void Add(const HostSampleRecord& r, Ended&& ended) {
    const auto [it, added] = open_.try_emplace(r.thread, Begin(r, 0));
    if (added || Extend(it->second, r)) return;
    ended(it->second);
    it->second = Begin(r, it->second.end_ns);
  }
  template <typename Ended>
  void Finish(Ended&& ended) {
    for (const auto& [thread, stretch] : open_) ended(stretch);
    open_.clear();
  }

 private:
  // `not_before_ns`: the end of the stretch before it.
  static HostStretch Begin(const HostSampleRecord& r, uint64_t not_before_ns);
  static bool Extend(HostStretch& stretch, const HostSampleRecord& r);

  std::map<uint32_t, HostStretch> open_;  // by ThreadDef
};

// What the thread was in: "cuMemFree_v2", else the innermost function of Python "Loader.fetch", else "read",
// else "running".
std::string_view HostPlaceName(const HostSampleRecord& r, const Definitions& definitions);
// "running", "sleeping" ...; empty: not known.
std::string_view ThreadStateWord(v1::ThreadState state);
// "Loader.fetch (loader.py:12)", innermost first; at most kDeepestShown, of which the last is then "...".
inline constexpr size_t kDeepestShown = 128;
std::vector<std::string> PythonStackOf(const HostSampleRecord& r, const Definitions& definitions);

}  // namespace gpuprobe::model
