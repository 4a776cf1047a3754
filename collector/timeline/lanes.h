// Puts slices on lanes of a track so that no two overlap wrongly: nested slices may contain one another, flat
// ones may not touch.
//
// Trace viewers close the innermost open slice, so two slices that merely overlap would swap their ends.
// Slices come nearly in the order in which they start; one that comes too late for a lane, or that overlaps
// its last slice, goes to the next lane.
//
// Example, flat: [0, 10) goes to lane 0, [5, 8) to lane 1, [10, 12) to lane 0 again.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gpuprobe::timeline {

class Lanes {
 public:
  static constexpr uint32_t kMaxLanes = 64;

  enum class Form : uint8_t { kFlat, kNested };
  explicit Lanes(Form form = Form::kFlat) : form_(form) {}

  // The lane for this slice; absent if it overlaps a slice on each of the kMaxLanes lanes.
  std::optional<uint32_t> Place(uint64_t start_ns, uint64_t end_ns);

 private:
  struct Lane {
    uint64_t last_start_ns = 0;
    std::vector<uint64_t> open_ends_ns;  // of slices that the next one may be in, outermost first
  };
  bool Fits(Lane& lane, uint64_t start_ns, uint64_t end_ns) const;

  Form form_;
  std::vector<Lane> lanes_;
};

}  // namespace gpuprobe::timeline
