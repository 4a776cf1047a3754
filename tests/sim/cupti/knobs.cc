#include "tests/sim/cupti/knobs.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace gpusim::cupti {
namespace {

bool SetFault(std::string_view name, uint64_t n, Knobs* knobs) {
  if (name == "subscriber_taken") {
    knobs->subscriber_taken = true;
  } else if (name == "one_subscriber") {
    knobs->one_subscriber = true;
  } else if (name == "unusable") {
    knobs->unusable = true;
  } else if (name == "zero_timestamps") {
    knobs->zero_timestamps = n;
  } else if (name == "backward_timestamps") {
    knobs->backward_timestamps = n;
  } else if (name == "drops") {
    knobs->drops = n;
  } else if (name == "lock_over_callbacks") {
    knobs->lock_over_callbacks = true;
  } else if (name == "no_kernel_records") {
    knobs->no_kernel_records = true;
  } else if (name == "withheld_records") {
    knobs->withheld_records = n;
  } else if (name == "crash_on_null") {
    knobs->defects.crashes_on_null = true;
  } else if (name == "hang_flush") {
    knobs->hang_flush = true;
  } else if (name == "slow_flush_ms") {
    knobs->slow_flush_ms = n;
  } else if (name == "unasked_kind") {
    knobs->unasked_kind = n;
  } else if (name == "damaged_buffer") {
    knobs->damaged_buffers = n;
  } else if (name == "graph_buffers") {
    knobs->graph_buffers = n;
  } else {
    return false;
  }
  return true;
}

}  // namespace

Knobs ParseKnobs(const char* version, const char* faults, std::string* complaint) {
  Knobs knobs;
  complaint->clear();
  if (version != nullptr && *version != '\0') {
    knobs.api_version = VersionNumber(version);
    knobs.defects = DefectsOf(knobs.api_version);
    if (knobs.api_version == 0)
      *complaint = std::string("GPUSIM_CUPTI_VERSION=") + version + " is none of " + VersionNames();
  }
  std::string_view rest = faults == nullptr ? "" : faults;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    if (item.empty()) {
      continue;
    }
    uint64_t n = 1;
    const size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      n = std::strtoull(std::string(item.substr(equals + 1)).c_str(), nullptr, 10);
      item = item.substr(0, equals);
    }
    if (SetFault(item, n, &knobs) && n == 0) {
      *complaint = "GPUSIM_FAULT: " + std::string(item) + " needs a number above 0";
    }
  }
  return knobs;
}

const Knobs& TheKnobs() {
  static const Knobs kKnobs = [] {
    std::string complaint;
    Knobs parsed = ParseKnobs(std::getenv("GPUSIM_CUPTI_VERSION"), std::getenv("GPUSIM_FAULT"), &complaint);
    if (!complaint.empty()) {
      std::fprintf(stderr, "gpusim: %s\n", complaint.c_str());
      std::_Exit(2);
    }
    return parsed;
  }();
  return kKnobs;
}

}  // namespace gpusim::cupti
