#include "collector/model/steps/step_marker.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/name_pattern.h"

namespace gpuprobe::model {

absl::StatusOr<StepMarker> StepMarker::Parse(const std::string& text) {
  constexpr uint64_t kMostCalls = 1'000'000;
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  StepMarker marker;
  marker.name_ = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "nvtx") marker.kind_ = Kind::kNvtx;
  if (kind == "kernel") marker.kind_ = Kind::kKernel;
  if (kind == "collective") marker.kind_ = Kind::kCollective;
  if (marker.kind_ == Kind::kNone || marker.name_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be nvtx:NAME, kernel:NAME, collective:OP or collective:OP/N, got \"", text, "\""));
  }
  marker.text_ = text;
  if (marker.kind_ != Kind::kCollective) {
    if (IsNamePattern(marker.name_)) return marker;
    return absl::InvalidArgumentError(
        absl::StrCat("NAME is a whole name in which a * stands for any text (nvtx:step, nvtx:step*), not a "
                     "regular expression, got \"",
                     marker.name_, "\""));
  }
  const size_t slash = marker.name_.find('/');
  if (slash == std::string::npos) return marker;
  const std::string calls = marker.name_.substr(slash + 1);
  marker.name_.resize(slash);
  if (marker.name_.empty() || !absl::SimpleAtoi(calls, &marker.calls_) || marker.calls_ == 0 ||
      marker.calls_ > kMostCalls) {
    return absl::InvalidArgumentError(absl::StrCat("N of collective:OP/N must be a whole number from 1 to ",
                                                   kMostCalls, ", got \"", text, "\""));
  }
  return marker;
}

bool StepMarker::Matches(std::string_view name) const {
  if (kind_ == Kind::kNone) return false;
  if (kind_ == Kind::kCollective) return absl::EqualsIgnoreCase(std::string(name), name_);
  if (MatchesPattern(name_, name)) return true;
  if (kind_ != Kind::kKernel) return false;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && plain != nullptr && MatchesPattern(name_, plain.get());
}

}  // namespace gpuprobe::model
