// The user's step marker: --step-marker nvtx:NAME | kernel:NAME | collective:OP | collective:OP/N.
//
// Separate because it comes from a command line and is matched where records are joined.
#pragma once

#include <cstdint>
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
  // For a collective: calls per step; 0: a cluster of calls ends a step.
  uint64_t calls() const { return calls_; }
  // A NAME (proto/name_pattern.h) is matched against a range's name, or a kernel's, mangled and demangled. An
  // operation is NCCL's name without its prefix, in any case.
  bool Matches(std::string_view name) const;

 private:
  Kind kind_ = Kind::kNone;
  std::string name_;  // a pattern, or the operation
  uint64_t calls_ = 0;
  std::string text_;
};

}  // namespace gpuprobe::model
