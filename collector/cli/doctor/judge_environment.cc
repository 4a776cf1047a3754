// The variables that decide what is recorded: gpuprobe's own, and those of CUDA, NCCL and the loader.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/cli/doctor/checks.h"
#include "collector/cli/doctor/thresholds.h"
#include "collector/cli/help_text.h"
#include "collector/cli/recorded_steps_option.h"
#include "collector/http/access.h"
#include "proto/settings.h"

namespace gpuprobe::cli::doctor {
namespace {

constexpr char kSettings[] = "settings";
constexpr char kEnvironment[] = "environment";
constexpr std::string_view kPrefix = "GPUPROBE_";
constexpr size_t kLongestPath = 1023;

// A decimal number with nothing behind it.
bool IsWhole(std::string_view text, int64_t* number) {
  return !text.empty() && text.find_first_not_of("-0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(absl::string_view(text.data(), text.size()), number);
}

// "0,4-7"
bool AreAscendingRanks(const std::string& text) {
  int64_t before = -1;
  const std::vector<std::string> items = absl::StrSplit(text, ',');
  return std::all_of(items.begin(), items.end(), [&](const std::string& item) {
    const std::vector<std::string> ends = absl::StrSplit(item, absl::MaxSplits('-', 1));
    int64_t first = 0;
    int64_t last = 0;
    if (!IsWhole(ends.front(), &first) || !IsWhole(ends.back(), &last) || first <= before || last < first)
      return false;
    before = last;
    return true;
  });
}

// Of the words in the setting's own description: "a list of kernels, copies, separated by commas".
bool AreListed(const std::string& text, std::string_view form) {
  constexpr std::string_view kList = "a list of ";
  constexpr std::string_view kEnd = ", separated by commas";
  form.remove_prefix(std::min(form.size(), kList.size()));
  form = form.substr(0, form.rfind(kEnd));
  const std::vector<std::string> words = absl::StrSplit(absl::string_view(form.data(), form.size()), ", ");
  const std::vector<std::string> given = absl::StrSplit(text, ',');
  return std::all_of(given.begin(), given.end(), [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  });
}

bool IsMarker(const std::string& text) {
  const absl::StatusOr<model::StepMarker> marker = model::StepMarker::Parse(text);
  return marker.ok() && CheckProbeMarker(*marker).ok();
}

bool IsWell(const settings::Setting& setting, const std::string& value) {
  if (setting.kind != settings::Kind::kText) {
    int64_t number = 0;
    return IsWhole(value, &number) && number >= setting.minimum && number <= setting.maximum;
  }
  if (setting.name == "GPUPROBE_SOCKET") return value.size() <= kLongestSocketPath;
  if (setting.name == "GPUPROBE_OUT") return value.size() <= kLongestPath;
  if (setting.name == "GPUPROBE_KINDS") return AreListed(value, setting.form);
  if (setting.name == "GPUPROBE_RANKS") return AreAscendingRanks(value);
  if (setting.name == "GPUPROBE_STEP_MARKER") return IsMarker(value);
  if (setting.name == "GPUPROBE_LEVEL") return value == "idle" || value == "calls" || value == "full";
  if (setting.name == "GPUPROBE_HUB_TOKEN") return http::CheckToken(value).ok();
  return true;  // GPUPROBE_HUB is judged by who reads it
}

const settings::Setting* FindSetting(const std::string& name) {
  const auto* const found = std::find_if(std::begin(settings::kSettings), std::end(settings::kSettings),
                                         [&](const settings::Setting& s) { return s.name == name; });
  return found == std::end(settings::kSettings) ? nullptr : found;
}

void JudgeSetting(const std::string& name, const std::string& value, Checks& checks) {
  if (value.empty() || name == http::kTokenVariable) return;
  const settings::Setting* const setting = FindSetting(name);
  if (setting == nullptr) {
    const std::string nearest(settings::NearestName(name));
    checks.push_back({kSettings, State::kWarning, absl::StrCat("there is no setting ", name),
                      nearest.empty() ? "Unset it; gpuprobe help environment lists those that there are."
                                      : absl::StrCat("Did you mean ", nearest, "?")});
  } else if (!IsWell(*setting, value)) {
    const bool secret = name == "GPUPROBE_HUB_TOKEN";
    checks.push_back({kSettings, State::kWarning,
                      secret ? absl::StrCat(name, " cannot be used")
                             : absl::StrCat(name, "=", value, " cannot be used, so the default holds"),
                      absl::StrCat("Give it ", SettingValues(*setting), ".")});
  }
}

int64_t NumberOf(const Facts& facts, const char* name, int64_t otherwise) {
  int64_t number = 0;
  return IsWhole(ValueOf(facts, name), &number) ? number : otherwise;
}

// Settings that contradict each other, and those that leave out everything.
void JudgeTogether(const Facts& facts, Checks& checks) {
  if (ValueOf(facts, "GPUPROBE_DISABLE") == "1")
    checks.push_back({kSettings, State::kProblem,
                      "GPUPROBE_DISABLE=1: the library does nothing, so nothing is recorded", "Unset it."});
  struct Pair {
    const char* stop;
    const char* start;
  };
  for (const auto& [stop, start] : {Pair{"GPUPROBE_STOP_AFTER_S", "GPUPROBE_START_AFTER_S"},
                                    Pair{"GPUPROBE_STOP_STEP", "GPUPROBE_START_STEP"}}) {
    const int64_t begin = NumberOf(facts, start, 0);
    const int64_t end = NumberOf(facts, stop, INT64_MAX);
    if (end > begin) continue;
    checks.push_back({kSettings, State::kWarning,
                      absl::StrCat(stop, "=", end, " is ignored: recording starts at ", begin),
                      absl::StrCat("Make it greater than ", start, ".")});
  }
  const bool has_marker = !ValueOf(facts, "GPUPROBE_STEP_MARKER").empty();
  if (ValueOf(facts, "GPUPROBE_LEVEL") == "idle") {
    checks.push_back({kSettings, State::kNote,
                      "GPUPROBE_LEVEL=idle: nothing is recorded until gpuprobe capture asks for some steps",
                      has_marker
                          ? ""
                          : "Without GPUPROBE_STEP_MARKER, steps are counted in collectives, or not at "
                            "all."});
    return;
  }
  if (has_marker) return;
  for (const char* name : {"GPUPROBE_START_STEP", "GPUPROBE_STOP_STEP", "GPUPROBE_EVERY_STEPS"}) {
    const std::string value = ValueOf(facts, name);
    if (!value.empty())
      checks.push_back({kSettings, State::kWarning,
                        absl::StrCat(name, "=", value, " is ignored: nothing says what a step is"),
                        "Set GPUPROBE_STEP_MARKER, or give gpuprobe run --step-marker."});
  }
}

void JudgeInjection(const Facts& facts, const NamedFile& file, Checks& checks) {
  if (file.is_probe) return;
  // gpuprobe run sets both variables.
  const bool replaced = facts.command.has_value();
  if (file.error != 0) {
    checks.push_back({kEnvironment, State::kWarning,
                      absl::StrCat(file.variable, " names ", file.path, ", which cannot be loaded (",
                                   std::strerror(file.error), "); CUDA does not say so",
                                   replaced ? ", and gpuprobe run replaces it" : ""),
                      "Unset it, or set it to the path that gpuprobe help library-path prints."});
    return;
  }
  checks.push_back({kEnvironment, State::kWarning,
                    absl::StrCat(file.variable, " names another tool, ", file.path,
                                 replaced ? ": gpuprobe run replaces it, so that tool is not loaded"
                                          : ": it is loaded instead of the probe"),
                    "Unset it to record, or run that tool without gpuprobe."});
}

void JudgePreloaded(const NamedFile& file, Checks& checks) {
  if (file.error != 0) {
    checks.push_back({kEnvironment, State::kWarning,
                      absl::StrCat("LD_PRELOAD names ", file.path,
                                   ", which cannot be loaded: ", std::strerror(file.error)),
                      "Take it out: the loader complains in every program, and goes on without it."});
  } else if (!file.sanitizer.empty()) {
    checks.push_back({kEnvironment, State::kWarning,
                      absl::StrCat("LD_PRELOAD has the runtime of ", file.sanitizer, " (", file.path, ")"),
                      "Profile without it: the times are not those of the program."});
  }
}

}  // namespace

void JudgeEnvironment(const Facts& facts, Checks& checks) {
  const size_t before = checks.size();
  const EnvironmentFacts& environment = *facts.environment;
  for (const auto& [name, value] : environment.variables) {
    if (name.starts_with(kPrefix)) JudgeSetting(name, value, checks);
  }
  JudgeTogether(facts, checks);
  if (!environment.hub_error.empty())
    checks.push_back({kSettings, State::kProblem,
                      absl::StrCat("gpuprobe run will refuse this: ", environment.hub_error),
                      "Name a host that all hosts of the job can reach, or unset it."});
  for (const NamedFile& file : environment.files) {
    if (file.variable == "LD_PRELOAD") {
      JudgePreloaded(file, checks);
    } else {
      JudgeInjection(facts, file, checks);
    }
  }
  if (const std::string plugin = ValueOf(facts, "NCCL_PROFILER_PLUGIN");
      !plugin.empty() && plugin.find("libgpuprobe") == std::string::npos)
    checks.push_back({kEnvironment, State::kNote,
                      absl::StrCat("NCCL_PROFILER_PLUGIN=", plugin, ": it is chained, not displaced"),
                      "Nothing needs to be done; what that plugin costs is part of the times."});
  if (ValueOf(facts, "CUDA_LAUNCH_BLOCKING") == "1")
    checks.push_back({kEnvironment, State::kWarning,
                      "CUDA_LAUNCH_BLOCKING=1: every launch waits for its kernel, so nothing overlaps",
                      "Unset it: the times are those of a serialised program."});
  if (checks.size() == before) checks.push_back({kSettings, State::kOk, "no variable stands in the way", ""});
}

}  // namespace gpuprobe::cli::doctor
