#include "collector/model/step_marker.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::model {

absl::StatusOr<StepMarker> StepMarker::Parse(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string what = colon == std::string::npos ? "" : text.substr(colon + 1);
  StepMarker marker;
  if (kind == "nvtx") marker.kind_ = Kind::kNvtx;
  if (kind == "kernel") marker.kind_ = Kind::kKernel;
  if (kind == "collective") marker.kind_ = Kind::kCollective;
  if (marker.kind_ == Kind::kNone || what.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is none of nvtx:REGEX, kernel:REGEX, collective:OP"));
  }
  marker.text_ = text;
  marker.operation_ = what;
  if (marker.kind_ == Kind::kCollective) return marker;
  try {
    marker.regex_ = std::regex(what, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", what, "\" is no regular expression: ", error.what()));
  }
  return marker;
}

bool StepMarker::Matches(std::string_view name) const {
  const std::string text(name);
  if (kind_ == Kind::kCollective) return absl::EqualsIgnoreCase(text, operation_);
  if (kind_ == Kind::kNone) return false;
  if (std::regex_search(text, regex_)) return true;
  if (kind_ != Kind::kKernel) return false;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && plain != nullptr && std::regex_search(plain.get(), regex_);
}

}  // namespace gpuprobe::model
