// GPUSIM_CUPTI_VERSION and GPUSIM_FAULT: which CUPTI the library claims to be, and what goes wrong in it.
//
// Separate because every other part asks it and it asks nobody; read once, when the library is loaded.
#pragma once

#include <cstdint>
#include <string>

#include "tests/sim/cupti/versions.h"

namespace gpusim::cupti {

struct Knobs {
  uint32_t api_version = kDefaultVersion;  // what cuptiGetVersion says; selects layouts and defects
  Defects defects = DefectsOf(kDefaultVersion);
  bool subscriber_taken = false;     // subscribing answers 39: "another tool" holds CUPTI
  bool one_subscriber = false;       // the driver is before 610: CUPTI does not have several subscribers
  bool unusable = false;             // every call that needs the driver answers 999
  uint64_t zero_timestamps = 0;      // every n-th kernel record has no times; 0: never
  uint64_t backward_timestamps = 0;  // every n-th kernel record ends before it starts
  uint64_t drops = 0;                // every n-th device record is dropped and counted
  bool lock_over_callbacks = false;  // one lock is held over buffer callbacks and inside every API function
  bool no_kernel_records = false;    // kernel records never come
  uint64_t withheld_records = 0;     // every n-th device record never comes, and nobody counts it
  uint64_t damaged_buffers = 0;      // every n-th buffer comes back with a record in it that cannot be read
  uint64_t graph_buffers = 0;        // so many kernels of an executable graph have times; 0: all
  bool hang_flush = false;           // cuptiActivityFlushAll never returns
  uint64_t unasked_kind = 0;   // with every n-th kernel record comes one of a kind that nobody asked for
  uint64_t slow_flush_ms = 0;  // cuptiActivityFlushAll takes this much longer
};

// `version`: a name of versions.cc; `faults`: comma-separated names of README.md, each with an
// optional "=N"; names that are not libcupti's belong to the other libraries. Either may be null. What is
// wrong is said in `complaint`, which else is empty.
Knobs ParseKnobs(const char* version, const char* faults, std::string* complaint);

// The process's knobs. A complaint ends the process with a message: a misspelt fault must not look like a
// passed test.
const Knobs& TheKnobs();

}  // namespace gpusim::cupti
