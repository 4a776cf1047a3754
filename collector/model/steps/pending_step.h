// A step whose last operation is known, while operations that run in it may still come.
#pragma once

#include <cstdint>

#include "collector/model/state/members.h"

namespace gpuprobe::model {

struct PendingStep {
  // Positions of its first operation, and after its last one.
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t lost = 0;          // operations without record
  uint32_t left = 0;          // lost operations that may still be restored
  uint64_t end_error_ns = 0;  // of the restored part
  // Set for the first pending step, once nothing is left to be restored.
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;  // 0: not known yet
  uint64_t previous_launch_ns = 0;
  // Where only some are recorded.
  uint64_t index = 0;
  uint64_t host_end_ns = 0;
  uint64_t earlier_end_ns = 0;
  uint64_t earlier_launch_ns = 0;
  bool after_others = false;  // steps before it were left out

  template <typename Archive>
  void Visit(Archive& archive) {
    archive.Members(this, begin, end, lost, left, end_error_ns, start_ns, end_ns, previous_launch_ns, index,
                    host_end_ns, earlier_end_ns, earlier_launch_ns, after_others);
  }
};

}  // namespace gpuprobe::model
