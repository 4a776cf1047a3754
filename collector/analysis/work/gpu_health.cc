#include "collector/analysis/work/gpu_health.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/analysis/median.h"
#include "collector/analysis/thresholds.h"
#include "collector/analysis/units.h"
#include "collector/model/process/process_model.h"

namespace gpuprobe::analysis {
namespace {

static_assert(static_cast<int>(ClockLimit::kClocksSet) == static_cast<int>(v1::CLOCK_LIMIT_CLOCKS_SET));
static_assert(static_cast<int>(ClockLimit::kPowerBrake) == static_cast<int>(v1::CLOCK_LIMIT_POWER_BRAKE));

constexpr double kNsPerS = 1e9;

std::vector<LimitedClock> LimitsOf(const model::DeviceHealth& health) {
  std::vector<LimitedClock> limits;
  if (health.busy_ns() == 0) return limits;
  for (int i = 0; i < v1::ClockLimit_ARRAYSIZE; ++i) {
    const uint64_t ns = health.LimitedNs(static_cast<v1::ClockLimit>(i));
    if (ns == 0) continue;
    limits.push_back(
        {.limit = static_cast<ClockLimit>(i),
         .share = std::min(1.0, static_cast<double>(ns) / static_cast<double>(health.busy_ns()))});
  }
  std::stable_sort(limits.begin(), limits.end(),
                   [](const LimitedClock& a, const LimitedClock& b) { return a.share > b.share; });
  return limits;
}

// "1,110 MHz"
std::string Clock(double mhz) { return absl::StrCat(Count(static_cast<uint64_t>(std::lround(mhz))), " MHz"); }

std::string Celsius(double degrees) { return absl::StrFormat("%.0f degrees Celsius", degrees); }

// What keeps the clock down, as the end of a sentence: "... 31 % of the time".
std::string LimitText(ClockLimit limit, const GpuHealth& h, const GpuHealth& usual) {
  const std::string share = Percent(h.ShareOf(limit));
  switch (limit) {
    case ClockLimit::kPowerCap:
      if (h.power_limit_w > 0 && usual.power_limit_w > 0 &&
          h.power_limit_w < thresholds::kLowerClockRatio * usual.power_limit_w)
        return absl::StrFormat("its power limit of %.0f W (theirs: %.0f W) keeps it down %s of the time",
                               h.power_limit_w, usual.power_limit_w, share);
      return absl::StrFormat("its power limit keeps it down %s of the time (theirs: %s)", share,
                             Percent(usual.ShareOf(limit)));
    case ClockLimit::kThermal:
    case ClockLimit::kHardwareThermal:
      return absl::StrFormat("%s keeps it down for its temperature %s of the time%s",
                             limit == ClockLimit::kThermal ? "the driver" : "the board", share,
                             h.temperature_c > 0 && usual.temperature_c > 0
                                 ? absl::StrFormat(" (up to %s, the others %s)", Celsius(h.temperature_c),
                                                   Celsius(usual.temperature_c))
                                 : "");
    case ClockLimit::kPowerBrake:
      return absl::StrCat("the power supply's brake signal keeps it down ", share, " of the time");
    case ClockLimit::kHardwareSlowdown:
      return absl::StrCat("the board keeps it down ", share, " of the time");
    case ClockLimit::kSyncBoost:
      return absl::StrCat("the group that shares a clock with it keeps it down ", share, " of the time");
    case ClockLimit::kClocksSet:
      return absl::StrCat("somebody has set its clocks");
    default:
      return "NVML does not say why";
  }
}

}  // namespace

GpuHealth GpuHealthOf(const model::ProcessModel& process, uint32_t device) {
  GpuHealth out;
  const auto found = process.health().find(device);
  if (found == process.health().end()) return out;
  const model::DeviceHealth& h = found->second;
  out.observed_s = static_cast<double>(h.observed_ns()) / kNsPerS;
  out.busy_s = static_cast<double>(h.busy_ns()) / kNsPerS;
  out.clock_mhz = h.MeanClockMhz();
  out.lowest_clock_mhz = h.lowest_clock_mhz();
  out.max_clock_mhz = h.max_clock_mhz();
  out.power_w = h.MeanPowerWatts();
  out.power_limit_w = h.power_limit_milliwatts() / 1000.0;
  out.temperature_c = h.highest_temperature_celsius();
  out.limited = LimitsOf(h);
  out.ecc_corrected = h.ecc_corrected();
  out.ecc_uncorrected = h.ecc_uncorrected();
  out.remap_pending = h.remap_pending();
  out.remap_failed = h.remap_failed();
  out.pcie_replays = h.pcie_replays();
  out.pcie_generation = h.link().generation;
  out.pcie_lanes = h.link().lanes;
  out.max_pcie_generation = h.max_link().generation;
  out.max_pcie_lanes = h.max_link().lanes;
  out.error_count = h.xid_count();
  for (const model::DeviceHealth::Xid& xid : h.xids())
    out.errors.push_back({.time_ns = process.Realtime(xid.time_ns), .xid = xid.number});
  return out;
}

GpuHealth UsualHealth(const std::vector<GpuHealth>& all) {
  const auto median_from = [&](double least, auto value) -> double {
    std::vector<double> values;
    for (const GpuHealth& h : all) {
      if (h.busy_s > 0 && static_cast<double>(value(h)) >= least)
        values.push_back(static_cast<double>(value(h)));
    }
    return values.empty() ? 0 : UpperMedian(std::move(values));
  };
  // 0: not known.
  const auto median = [&](auto value) { return median_from(std::numeric_limits<double>::min(), value); };
  GpuHealth usual;
  usual.observed_s = median([](const GpuHealth& h) { return h.observed_s; });
  usual.busy_s = median([](const GpuHealth& h) { return h.busy_s; });
  usual.clock_mhz = median([](const GpuHealth& h) { return h.clock_mhz; });
  usual.lowest_clock_mhz = median([](const GpuHealth& h) { return h.lowest_clock_mhz; });
  usual.max_clock_mhz = median([](const GpuHealth& h) { return h.max_clock_mhz; });
  usual.power_w = median([](const GpuHealth& h) { return h.power_w; });
  usual.power_limit_w = median([](const GpuHealth& h) { return h.power_limit_w; });
  usual.temperature_c = median([](const GpuHealth& h) { return h.temperature_c; });
  for (int i = 0; i < v1::ClockLimit_ARRAYSIZE; ++i) {
    const auto limit = static_cast<ClockLimit>(i);
    const double share = median_from(0, [&](const GpuHealth& h) { return h.ShareOf(limit); });
    if (share > 0) usual.limited.push_back({.limit = limit, .share = share});
  }
  const auto whole = [&](auto value) { return static_cast<uint32_t>(median(value)); };
  usual.pcie_generation = whole([](const GpuHealth& h) { return h.pcie_generation; });
  usual.pcie_lanes = whole([](const GpuHealth& h) { return h.pcie_lanes; });
  usual.max_pcie_generation = whole([](const GpuHealth& h) { return h.max_pcie_generation; });
  usual.max_pcie_lanes = whole([](const GpuHealth& h) { return h.max_pcie_lanes; });
  return usual;
}

ClockComparison CompareClocks(const GpuHealth& health, const GpuHealth& usual) {
  if (std::min(health.busy_s, usual.busy_s) < thresholds::kClockSeconds || health.clock_mhz <= 0 ||
      usual.clock_mhz <= 0) {
    return ClockComparison::kUnknown;
  }
  return health.clock_mhz < thresholds::kLowerClockRatio * usual.clock_mhz ? ClockComparison::kLower
                                                                           : ClockComparison::kAsHigh;
}

ClockLimit LimitOf(const GpuHealth& health, const GpuHealth& usual) {
  ClockLimit most = ClockLimit::kUnknown;
  double excess = thresholds::kClockLimitShare;
  for (const LimitedClock& each : health.limited) {
    const double more = each.share - usual.ShareOf(each.limit);
    if (more < excess) continue;
    excess = more;
    most = each.limit;
  }
  // A lower limit than the others' keeps it down for as long as theirs does them.
  if (most == ClockLimit::kUnknown && health.power_limit_w > 0 &&
      health.power_limit_w < thresholds::kLowerClockRatio * usual.power_limit_w &&
      health.ShareOf(ClockLimit::kPowerCap) > thresholds::kClockLimitShare) {
    return ClockLimit::kPowerCap;
  }
  return most;
}

std::string ClockText(const GpuHealth& health, const GpuHealth& usual, double slowdown, const char* peers) {
  const ClockComparison clocks = CompareClocks(health, usual);
  if (clocks == ClockComparison::kUnknown) return "";
  const double ratio = usual.clock_mhz / health.clock_mhz;
  const bool explains = slowdown <= 1 || (ratio - 1) / (slowdown - 1) >= thresholds::kClockExplainsShare;
  if (clocks == ClockComparison::kAsHigh) {
    return absl::StrFormat(
        "Its GPU's clock is about as high as the other %s' (%s and %s while they computed, means of one look "
        "a "
        "second)%s.",
        peers, Clock(health.clock_mhz), Clock(usual.clock_mhz),
        explains ? "" : ", so the clock does not explain it");
  }
  return absl::StrFormat(
      "While it computed its GPU ran at %s, the other %s' at %s (by one look a second): %s.%s",
      Clock(health.clock_mhz), peers, Clock(usual.clock_mhz),
      LimitText(LimitOf(health, usual), health, usual),
      explains ? "" : " That is too little to explain all of it.");
}

std::string ClockAdvice(const GpuHealth& health, const GpuHealth& usual, const std::string& place) {
  switch (LimitOf(health, usual)) {
    case ClockLimit::kThermal:
    case ClockLimit::kHardwareThermal:
      return absl::StrCat(
          "Check how ", place,
          " is cooled: fans, airflow, its neighbours; if it stays hot, take the host out of service.");
    case ClockLimit::kPowerBrake:
    case ClockLimit::kHardwareSlowdown:
      return absl::StrCat(
          "Check the power supply of ", place,
          " and the rack's power limit; nvidia-smi -q -d PERFORMANCE shows what the board says.");
    case ClockLimit::kPowerCap:
      return absl::StrCat(
          "Compare the power limit of ", place,
          " with the others' (nvidia-smi -q -d POWER), and its temperature: a hot chip needs more power "
          "for the same clock.");
    case ClockLimit::kSyncBoost:
      return absl::StrCat("Take ", place, " out of its sync boost group, or find the slow one in it.");
    case ClockLimit::kClocksSet:
      return absl::StrCat("Reset the clocks of ", place, ": nvidia-smi -rac and -rgc.");
    default:
      return absl::StrCat(
          "See why the clock of ", place,
          " is lower: nvidia-smi -q -d CLOCK,PERFORMANCE; locked clocks have no reason there.");
  }
}

bool HasSlowerLink(const GpuHealth& health, const GpuHealth& usual) {
  const auto capacity = [](const GpuHealth& h) {
    return h.pcie_lanes == 0 || h.pcie_generation == 0 ? 0 : uint64_t{h.pcie_lanes} << h.pcie_generation;
  };
  return capacity(health) != 0 && capacity(health) < capacity(usual);
}

std::string LinkText(const GpuHealth& health, const GpuHealth& usual) {
  return absl::StrFormat(
      "Its PCIe link runs with %d lanes of generation %d, theirs with %d of generation %d.",
      health.pcie_lanes, health.pcie_generation, usual.pcie_lanes, usual.pcie_generation);
}

const XidMeaning* MeaningOfXid(uint32_t number) {
  static constexpr std::pair<uint32_t, XidMeaning> kMeanings[] = {
      {13, {"a kernel did something illegal", XidBlame::kProgram}},
      {31, {"a kernel accessed memory that is not mapped", XidBlame::kProgram}},
      {32, {"the stream of commands was corrupt", XidBlame::kGpu}},
      {43, {"it stopped the work of a process after an error", XidBlame::kProgram}},
      {45, {"it cleaned up after a process that failed or was killed", XidBlame::kProgram}},
      {48, {"its memory had an error that cannot be corrected", XidBlame::kMemory}},
      {61, {"its microcontroller failed", XidBlame::kGpu}},
      {62, {"its microcontroller halted", XidBlame::kGpu}},
      {63, {"a row of its memory is to be replaced", XidBlame::kMemory}},
      {64, {"a row of its memory could not be replaced", XidBlame::kMemory}},
      {69, {"a kernel or the driver used it wrongly", XidBlame::kProgram}},
      {74, {"an NVLink had errors", XidBlame::kLink}},
      {79, {"it has fallen off the bus", XidBlame::kGpu}},
      {92, {"its memory has many errors that are corrected", XidBlame::kMemory}},
      {94, {"its memory had an error that cannot be corrected, which ended one process", XidBlame::kMemory}},
      {95,
       {"its memory had an error that cannot be corrected, and all processes on it are affected",
        XidBlame::kMemory}},
      {109, {"it took too long to switch between contexts", XidBlame::kGpu}},
      {119, {"its system processor (GSP) did not answer", XidBlame::kGpu}},
      {120, {"its system processor (GSP) failed", XidBlame::kGpu}},
      {140, {"its memory had errors that cannot be corrected", XidBlame::kMemory}},
      {143, {"it could not be initialised", XidBlame::kGpu}},
      {154, {"the driver says that it has to be reset or the host restarted", XidBlame::kGpu}},
  };
  for (const auto& [known, meaning] : kMeanings) {
    if (known == number) return &meaning;
  }
  return nullptr;
}

}  // namespace gpuprobe::analysis
