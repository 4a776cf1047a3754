#include "tests/sim/core/knobs.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <regex>

#include "tests/sim/core/cupti_seam.h"

namespace gpusim {

struct NameRule {
  std::regex pattern;
  uint64_t duration_ns = 0;
};

namespace {

[[noreturn]] void Reject(const char* knob, const std::string& why) {
  std::fprintf(stderr, "gpusim: %s: %s\n", knob, why.c_str());
  _exit(64);
}

std::vector<std::string> Split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= text.size()) {
    size_t end = text.find_first_of(separators, at);
    if (end == std::string::npos) end = text.size();
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// "alpha=10us,beta=300GB/s" as pairs; a word without "=" has an empty value.
std::vector<std::pair<std::string, std::string>> Pairs(const char* text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& part : Split(text, ",;")) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      pairs.emplace_back(part, "");
    } else {
      pairs.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    }
  }
  return pairs;
}

bool ParseNumber(const std::string& text, double* value, std::string* unit) {
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || !std::isfinite(*value) || *value < 0) return false;
  while (*end == ' ') ++end;
  *unit = end;
  return true;
}

double NumberOrReject(const char* knob, const std::string& text) {
  double value = 0;
  std::string unit;
  if (!ParseNumber(text, &value, &unit) || !unit.empty()) Reject(knob, "'" + text + "' is not a number");
  return value;
}

void ReadRules(const char* knob, const char* text, std::vector<std::shared_ptr<const NameRule>>* rules) {
  for (const std::string& rule : Split(text, ";")) {
    const size_t equals = rule.rfind('=');
    uint64_t duration_ns = 0;
    if (equals == std::string::npos || !ParseDuration(rule.substr(equals + 1), &duration_ns)) {
      Reject(knob, "'" + rule + "' is not regex=duration");
    }
    try {
      rules->push_back(
          std::make_shared<const NameRule>(NameRule{std::regex(rule.substr(0, equals)), duration_ns}));
    } catch (const std::regex_error& error) {
      Reject(knob, "'" + rule + "': " + error.what());
    }
  }
}

void ReadLink(const char* text, Knobs* knobs) {
  for (const auto& [key, value] : Pairs(text)) {
    const bool read = key == "alpha"  ? ParseDuration(value, &knobs->link.alpha_ns)
                      : key == "beta" ? ParseRate(value, &knobs->link.bytes_per_s)
                                      : false;
    if (!read)
      Reject("GPUSIM_LINK",
             std::string(key).append(" is neither alpha=DURATION nor beta=RATE: ").append(value));
  }
}

// Both knobs that pick on one rank: "rank=3,factor=1.3" and "rank=2,call=100".
void ReadRankKnob(const char* knob, const char* text, const char* what, int my_rank, double* value) {
  double rank = -1;
  double number = 0;
  bool complete = false;
  for (const auto& [key, part] : Pairs(text)) {
    if (key == "rank") {
      rank = NumberOrReject(knob, part);
    } else if (key == what) {
      number = NumberOrReject(knob, part);
      complete = true;
    } else {
      Reject(knob, "unknown '" + key + "'");
    }
  }
  if (rank < 0 || !complete) Reject(knob, std::string("needs rank=N,") + what + "=X");
  if (static_cast<int>(rank) == my_rank) *value = number;
}

int RankFromEnvironment() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') return std::atoi(text);
  }
  return -1;
}

Knobs* ReadKnobs() {
  auto* knobs = new Knobs;  // lives as long as the process
  knobs->rank = RankFromEnvironment();
  if (const char* text = std::getenv("GPUSIM_DEVICES")) {
    knobs->devices = static_cast<int>(NumberOrReject("GPUSIM_DEVICES", text));
    if (knobs->devices > 64) Reject("GPUSIM_DEVICES", "more than 64");
  }
  if (const char* text = std::getenv("GPUSIM_DEVICE_NAME")) knobs->device_name = text;
  if (const char* text = std::getenv("GPUSIM_MEMORY_GIB")) {
    knobs->memory_bytes =
        static_cast<uint64_t>(std::llround(NumberOrReject("GPUSIM_MEMORY_GIB", text) * (uint64_t{1} << 30)));
  }
  if (const char* text = std::getenv("GPUSIM_KERNELS")) ReadRules("GPUSIM_KERNELS", text, &knobs->kernels);
  if (const char* text = std::getenv("GPUSIM_DRIVER_CALLS"))
    ReadRules("GPUSIM_DRIVER_CALLS", text, &knobs->calls);
  if (const char* text = std::getenv("GPUSIM_LINK")) ReadLink(text, knobs);
  if (const char* text = std::getenv("GPUSIM_PCIE")) {
    if (!ParseRate(text, &knobs->pcie_bytes_per_s))
      Reject("GPUSIM_PCIE", std::string(text) + " is not a rate");
  }
  if (const char* text = std::getenv("GPUSIM_NCCL_BUFFERS_MIB")) {
    const double mib = NumberOrReject("GPUSIM_NCCL_BUFFERS_MIB", text);
    knobs->nccl_buffer_bytes = static_cast<uint64_t>(std::llround(mib * (uint64_t{1} << 20)));
  }
  if (const char* text = std::getenv("GPUSIM_SLOW")) {
    ReadRankKnob("GPUSIM_SLOW", text, "factor", knobs->rank, &knobs->slow_factor);
  }
  if (const char* text = std::getenv("GPUSIM_HANG")) {
    double call = -1;
    const auto pairs = Pairs(text);
    if (pairs.size() == 1 && pairs.front().first == "call") {
      knobs->stuck_call = static_cast<int64_t>(NumberOrReject("GPUSIM_HANG", pairs.front().second));
    } else {
      ReadRankKnob("GPUSIM_HANG", text, "call", knobs->rank, &call);
      knobs->hang_call = static_cast<int64_t>(call);
    }
  }
  if (const char* text = std::getenv("GPUSIM_FAULT")) knobs->faults = Pairs(text);
  if (const char* text = std::getenv("GPUSIM_TRUTH")) knobs->truth_dir = text;
  if (const char* text = std::getenv("GPUSIM_CALLS"))
    knobs->note_calls = NumberOrReject("GPUSIM_CALLS", text) != 0;
  return knobs;
}

std::string Demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (text == nullptr) return name;
  std::string result = text;
  std::free(text);
  return result;
}

}  // namespace

const Knobs& GetKnobs() {
  static const Knobs* knobs = ReadKnobs();
  return *knobs;
}

bool ParseDuration(const std::string& text, uint64_t* nanoseconds) {
  double value = 0;
  std::string unit;
  if (!ParseNumber(text, &value, &unit)) return false;
  double scale = 0;
  if (unit.empty() || unit == "ns") scale = 1;
  if (unit == "us") scale = 1e3;
  if (unit == "ms") scale = 1e6;
  if (unit == "s") scale = 1e9;
  if (scale == 0) return false;
  *nanoseconds = static_cast<uint64_t>(std::llround(value * scale));
  return true;
}

bool ParseRate(const std::string& text, double* bytes_per_s) {
  double value = 0;
  std::string unit;
  if (!ParseNumber(text, &value, &unit)) return false;
  double scale = 0;
  if (unit.empty() || unit == "B/s") scale = 1;
  if (unit == "KB/s") scale = 1e3;
  if (unit == "MB/s") scale = 1e6;
  if (unit == "GB/s") scale = 1e9;
  if (scale == 0 || value == 0) return false;
  *bytes_per_s = value * scale;
  return true;
}

Pace& CurrentPace() {
  static Pace pace;
  return pace;
}

namespace {

constexpr uint64_t kNoRule = UINT64_MAX;

// What GPUSIM_KERNELS says of this kernel.
uint64_t RuledDurationNs(const char* mangled_name) {
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<std::string, uint64_t>;
  const std::lock_guard<std::mutex> lock(*mutex);
  const auto found = known->find(mangled_name);
  if (found != known->end()) return found->second;
  uint64_t duration_ns = kNoRule;
  const std::string name = Demangle(mangled_name);
  for (const auto& rule : GetKnobs().kernels) {
    if (std::regex_search(name, rule->pattern)) {
      duration_ns = rule->duration_ns;
      break;
    }
  }
  known->emplace(mangled_name, duration_ns);
  return duration_ns;
}

}  // namespace

uint64_t KernelDurationNs(const char* mangled_name) {
  return KernelDurationNs(mangled_name, kDefaultKernelNs);
}

uint64_t KernelDurationNs(const char* mangled_name, uint64_t usual_ns) {
  const uint64_t ruled_ns = RuledDurationNs(mangled_name);
  const double duration_ns = static_cast<double>(ruled_ns == kNoRule ? usual_ns : ruled_ns);
  const double slowed_ns = std::round(duration_ns * GetKnobs().slow_factor);
  return static_cast<uint64_t>(
      std::llround(slowed_ns * CurrentPace().kernels.load(std::memory_order_relaxed)));
}

uint64_t DriverCallNs(const char* function) {
  for (const auto& rule : GetKnobs().calls) {
    if (std::regex_search(function, rule->pattern)) return rule->duration_ns;
  }
  return 0;
}

uint64_t TransferNs(uint64_t bytes, double bytes_per_s) {
  const double nanoseconds = std::ceil(static_cast<double>(bytes) * 1e9 / bytes_per_s);
  return nanoseconds < 1 ? 1 : static_cast<uint64_t>(nanoseconds);
}

int ProcessRank() { return GetKnobs().rank; }

bool RankHangsAt(uint64_t call) {
  const int64_t hang_call = GetKnobs().hang_call;
  return hang_call >= 0 && static_cast<uint64_t>(hang_call) == call;
}

bool IsStuckAt(uint64_t call) {
  const int64_t stuck_call = GetKnobs().stuck_call;
  return stuck_call >= 0 && static_cast<uint64_t>(stuck_call) == call;
}

LinkModel Link() {
  LinkModel link = GetKnobs().link;
  link.bytes_per_s /= CurrentPace().link.load(std::memory_order_relaxed);
  return link;
}
uint64_t NcclBufferBytes() { return GetKnobs().nccl_buffer_bytes; }

bool FaultIs(const char* name, const char** value) {
  for (const auto& [key, text] : GetKnobs().faults) {
    if (key == name) {
      if (value != nullptr) *value = text.c_str();
      return true;
    }
  }
  return false;
}

}  // namespace gpusim
