// What the user says marks a step: --step-marker nvtx:REGEX | kernel:REGEX | collective:OP.
//
// Separate because it comes from a command line and is matched where records are joined.
#pragma once

#include <cstdint>
#include <regex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpuprobe::model {

class StepMarker {
 public:
  enum class Kind : uint8_t { kNone, kNvtx, kKernel, kCollective };

  StepMarker() = default;
  // InvalidArgument says what is wrong.
  static absl::StatusOr<StepMarker> Parse(const std::string& text);

  Kind kind() const { return kind_; }
  const std::string& text() const { return text_; }  // as it was given
  // A regular expression (ECMAScript) is searched for in a range's name, and in a kernel's as the compiler
  // mangled it and as a person would write it. An operation is NCCL's name without its prefix, in any case.
  bool Matches(std::string_view name) const;

 private:
  Kind kind_ = Kind::kNone;
  std::regex regex_;
  std::string operation_;
  std::string text_;
};

}  // namespace gpuprobe::model
