// The members of records that wait in the model's state. Separate from the records, which know nothing of a
// state.
#pragma once

#include "collector/model/records.h"
#include "collector/model/state/members.h"

namespace gpuprobe::model {

template <typename Archive>
void AllocatorRefusalRecord::Visit(Archive& archive) {
  archive.Members(this, time_ns, device, asked_bytes, allocated_bytes, reserved_bytes, range);
}

template <typename Archive>
void AllocationRecord::Visit(Archive& archive) {
  archive.Members(this, time_ns, op, memory, address, bytes, device, failed, thread, range, duration_ns,
                  by_nccl);
}

}  // namespace gpuprobe::model
