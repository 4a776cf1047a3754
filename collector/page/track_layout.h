// Puts what ran on a rank on tracks: one a stream, and one for each depth of the ranges of a thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "collector/page/slices.h"

namespace gpuprobe::page {

// Where something ran.
struct Place {
  bool range = false;    // on a thread of the host, else on a stream
  uint64_t where = 0;    // the thread, or the device << 32 | the stream
  uint32_t context = 0;  // of the stream

  uint32_t device() const { return static_cast<uint32_t>(where >> 32); }
  uint32_t stream() const { return static_cast<uint32_t>(where); }
};

struct PlacedSlice {
  Place place;
  Slice slice;  // its track is not known yet
};

// Ranges come first, of the two threads with most of them and at most four deep, then all streams, the one
// with most compute first. `name`: of a place; `several`: there is more than one device.
RankSlices LayOut(std::vector<PlacedSlice> slices,
                  absl::FunctionRef<std::string(const Place& place, bool several)> name);

}  // namespace gpuprobe::page
