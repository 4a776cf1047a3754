// An NVTX range for a scope, or nothing when ranges are off (--nvtx=0).
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace gpuprobe::samples {

class Range {
 public:
  Range(const char* name, bool enabled) : enabled_(enabled) {
    if (enabled_) nvtxRangePushA(name);
  }
  ~Range() {
    if (enabled_) nvtxRangePop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool enabled_;
};

}  // namespace gpuprobe::samples
