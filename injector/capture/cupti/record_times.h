// Finds the times in a CUPTI record of any kind that we enable.
//
// Thread: any. Allocation: none. Failure: none.
#pragma once

#include <cupti.h>

namespace gpuprobe::injector {

// Visits the record as its oldest layout, which has the times; false for kinds that we never enable.
template <typename Visit>
bool VisitTimed(CUpti_Activity* record, Visit visit) noexcept {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      visit(*reinterpret_cast<CUpti_ActivityKernel4*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      visit(*reinterpret_cast<CUpti_ActivityMemcpy*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      visit(*reinterpret_cast<CUpti_ActivityMemcpyPtoP*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMSET:
      visit(*reinterpret_cast<CUpti_ActivityMemset*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
      visit(*reinterpret_cast<CUpti_ActivitySynchronization*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE:
      visit(*reinterpret_cast<CUpti_ActivityGraphTrace*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      visit(*reinterpret_cast<CUpti_ActivityMemory3*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_MEMORY_POOL:
      visit(*reinterpret_cast<CUpti_ActivityMemoryPool2*>(record));
      return true;
    case CUPTI_ACTIVITY_KIND_OVERHEAD:
      visit(*reinterpret_cast<CUpti_ActivityOverhead*>(record));
      return true;
    default:
      return false;
  }
}

}  // namespace gpuprobe::injector
