// The CUPTI releases that the library can claim to be, and what NVIDIA says was wrong with each.
//
// A release is known here by the number that cupti_version.h gives it. Updates of 12.x mostly share their
// release's number, so a defect that an update mended is there in all of that number. The default is 13.0.1,
// as on the one real machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpusim::cupti {

constexpr uint32_t kDefaultVersion = 130001;

// "12.6" to 24; 0 for a name that is not in the table.
uint32_t VersionNumber(std::string_view name);
// What cuptiGetVersion answers: 12.0 and 12.1 say the number of 11.8.
uint32_t ReportedVersion(uint32_t version);
// All names, for messages: "11.8, 12.0, ...".
std::string VersionNames();

struct Defects {
  bool crashes_on_null = false;
  bool forced_flush_crashes = false;
  bool disabling_kernels_hangs = false;
  bool no_device_synchronisation_records = false;
  bool graph_trace_crashes = false;
  bool later_sessions_misnumber_graphs = false;
  bool clock_zeroes_times = false;
  bool calls_slow_down = false;
  bool kernels_keep_names = false;
};
Defects DefectsOf(uint32_t api_version);

}  // namespace gpusim::cupti
