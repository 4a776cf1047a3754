// The name of an operator's range without PyTorch's numbers.
//
// torch.autograd.profiler.emit_nvtx opens a range around each operator and numbers it, as in "aten::mm, seq =
// 3, op_id = 20, sizes = [[8, 4], [4, 2]]". Each call would be a name of its own, a million in an hour. So
// only the operator's name is kept: "aten::mm". Pure.
#pragma once

#include <cstddef>
#include <string_view>

#include "injector/base/text.h"

namespace gpuprobe::injector {

// The digits at the start of the text.
constexpr size_t DigitsAt(std::string_view text) noexcept {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  return digits;
}

// Any other name stays as it is.
constexpr std::string_view OperatorName(std::string_view range) noexcept {
  constexpr std::string_view kOperator = ", op_id = ";
  constexpr std::string_view kSequence = ", seq = ";
  const size_t at = range.find(kOperator);
  if (at == std::string_view::npos || DigitsAt(Slice(range, at + kOperator.size())) == 0) return range;
  const std::string_view before = Slice(range, 0, at);
  const size_t sequence = before.rfind(kSequence);
  if (sequence == std::string_view::npos) return before;
  const std::string_view number = Slice(before, sequence + kSequence.size());
  return !number.empty() && DigitsAt(number) == number.size() ? Slice(before, 0, sequence) : before;
}

}  // namespace gpuprobe::injector
