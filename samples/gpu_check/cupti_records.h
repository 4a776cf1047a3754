// The record layouts that the check's own CUPTI tools read: those of CUDA 11.8, which every later CUPTI only
// extends at the end.
#pragma once

#include <cupti.h>

namespace gpuprobe::samples {

using KernelRecord = CUpti_ActivityKernel8;
using CopyRecord = CUpti_ActivityMemcpy5;
using MemsetRecord = CUpti_ActivityMemset4;
using SynchronizationRecord = CUpti_ActivitySynchronization;
using MemoryRecord = CUpti_ActivityMemory3;
using GraphRecord = CUpti_ActivityGraphTrace;

// REQUIRES: the kind of `record` is the one that has this layout.
template <typename Record>
const Record& As(const CUpti_Activity* record) {
  return *reinterpret_cast<const Record*>(record);
}

}  // namespace gpuprobe::samples
