#include "tests/sim/cupti/versions.h"

namespace gpusim::cupti {
namespace {

struct Version {
  std::string_view name;
  uint32_t number;
};

// [observed] CUPTI 13.1.1 and all before it down to 11.8, without a GPU: what cuptiGetVersion answers; 11.8,
// 12.0 and 12.1 say 18 alike, although cupti_version.h gives 12.0 the number 19.
// [documented] cupti_version.h of 13.2 to 13.5, CUPTI_API_VERSION: the numbers of these.
constexpr Version kVersions[] = {
    {"11.8", 18},       {"12.0", 19},       {"12.1", 19},       {"12.2", 20},       {"12.3", 21},
    {"12.4", 22},       {"12.5", 23},       {"12.6", 24},       {"12.8", 26},       {"12.9", 27},
    {"12.9.1", 28},     {"13.0.0", 130000}, {"13.0", 130001},   {"13.0.1", 130001}, {"13.1", 130100},
    {"13.1.1", 130101}, {"13.2", 130200},   {"13.2.1", 130201}, {"13.2.2", 130202}, {"13.3", 130300},
    {"13.3.1", 130301}, {"13.4", 130400},   {"13.4.1", 130401}, {"13.5", 130500},
};

constexpr uint32_t kCuda118 = 18;
constexpr uint32_t kCuda120 = 19;
constexpr uint32_t kCuda126 = 24;
constexpr uint32_t kCuda128 = 26;
constexpr uint32_t kCuda129 = 27;
constexpr uint32_t kCuda130 = 130000;
constexpr uint32_t kCuda130Update1 = 130001;
constexpr uint32_t kCuda131Update1 = 130101;
constexpr uint32_t kCuda132 = 130200;
constexpr uint32_t kCuda133 = 130300;
constexpr uint32_t kCuda134Update1 = 130401;

}  // namespace

uint32_t VersionNumber(std::string_view name) {
  for (const Version& version : kVersions) {
    if (version.name == name) return version.number;
  }
  return 0;
}

uint32_t ReportedVersion(uint32_t version) { return version == kCuda120 ? kCuda118 : version; }

std::string VersionNames() {
  std::string names;
  for (const Version& version : kVersions) {
    names += (names.empty() ? "" : ", ") + std::string(version.name);
  }
  return names;
}

Defects DefectsOf(uint32_t version) {
  Defects defects;
  // [assumed] A declined buffer request crashes CUPTI before 12.9. (The headers of all releases say that it
  // may be declined.) Probe: it declines from 12.9 on, and hands out one more buffer before. Fallback:
  // GPUPROBE_BUFFERS, so that no request need be declined.
  defects.crashes_on_null = version < kCuda129;
  // [documented] CUPTI 13.0 Update 1, resolved issues: cuptiActivityFlushAll may crash in 13.0.
  // [assumed] In 13.0 a flush crashes only if it is forced, and then every time. Probe: it never forces a
  // flush in 13.0 (proto/cupti_versions.h). Fallback: if a plain flush may crash, too, nothing helps but to
  // flush at exit only, or to leave CUPTI 13.0 alone.
  defects.forced_flush_crashes = version == kCuda130;
  // [documented] CUPTI 13.0 Update 1, resolved issues: disabling CONCURRENT_KERNEL may deadlock in 13.0.
  // [assumed] In 13.0 disabling CONCURRENT_KERNEL deadlocks whenever a kernel was recorded before. Probe:
  // kernels stay enabled in 13.0 at every level of detail (proto/cupti_versions.h). Fallback: none is needed,
  // as the call is not made.
  defects.disabling_kernels_hangs = version == kCuda130;
  // [documented] CUPTI 13.0 Update 1, resolved issues: no synchronisation records for cudaDeviceSynchronize
  // and cuCtxSynchronize_v2 in 13.0.
  defects.no_device_synchronisation_records = version == kCuda130;
  // [documented] CUPTI 12.4 Update 1, resolved issues: tracing graphs whole may crash where they have memcpy
  // and memset nodes.
  // [assumed] Tracing graphs whole crashes up to 12.5 for any graph that holds a copy or a fill: reports of
  // crashes go up to 12.5 Update 1, which has 12.5's number. Probe: it does not record graphs whole before
  // 12.6, also when GPUPROBE_KINDS asks for it (proto/cupti_versions.h). Fallback: graphs are recorded node
  // by node, which costs more.
  defects.graph_trace_crashes = version < kCuda126;
  // [documented] CUPTI 13.1 Update 1, resolved issues: wrong correlation ids of cudaGraphLaunch and its
  // kernels in profiling sessions after the first.
  defects.later_sessions_misnumber_graphs = version < kCuda131Update1;
  // [observed] H100, CUPTI 13.0.1: kernels whose records wait in CUPTI while a timestamp callback is
  // registered, for the first time or again, have start and end 0 (110 of 110). A flush before it saves them.
  //
  // [assumed] So it is from 12.8 on; the release notes of 13.1 are quoted so for 12.6 Update 2 to 13.0, but
  // were not found. Probe: it flushes before a tool's clock is registered. Fallback: they are counted as
  // invalid_timestamp. Settled by: gpu-check step "second tool, old style".
  defects.clock_zeroes_times = version >= kCuda128 && version <= kCuda130Update1;
  // [assumed] Each flush takes longer than the one before in 13.2; reports say that repeated calls slow
  // everything down, not which ones. (CUPTI 13.4 Update 1 mends a growing use of the processor in long
  // traces.) Probe: it flushes from a thread of its own only, twice a second. Fallback: GPUPROBE_FLUSH_MS.
  defects.calls_slow_down = version >= kCuda132 && version < kCuda133;
  // [documented] CUPTI 13.4 Update 1, resolved issues: stale kernel names in records after modules are loaded
  // again.
  // [assumed] Before that, a kernel whose handle was an unloaded module's has the name that the handle was
  // first recorded with. Names in callbacks are right. Probe: it says that names may be wrong once a module
  // was loaded after another was unloaded (proto/cupti_versions.h), reports with each launch whether its name
  // is NCCL's, and corrects no other. Fallback: times and counts are right either way.
  defects.kernels_keep_names = version < kCuda134Update1;
  return defects;
}

}  // namespace gpusim::cupti
