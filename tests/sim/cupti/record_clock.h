// The clock that records are stamped with: CLOCK_REALTIME until a tool registers another.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <mutex>

namespace gpusim::cupti {

class RecordClock {
 public:
  // For good, and for everybody.
  CUptiResult Register(CUpti_TimestampCallbackFunc function);
  // What a record says instead of `real_ns`.
  uint64_t Stamp(uint64_t real_ns);

 private:
  struct Reading {
    uint64_t real_ns = 0;
    uint64_t ticks = 0;
  };
  static Reading ReadBoth(CUpti_TimestampCallbackFunc function);

  std::mutex mutex_;
  CUpti_TimestampCallbackFunc clock_ = nullptr;
  Reading first_;
};

}  // namespace gpusim::cupti
