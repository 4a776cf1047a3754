// What a good report says first about each scenario of `gpuprobe simulate`, and what it may say besides.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace gpuprobe::simulate {

struct Expected {
  std::string_view scenario;
  std::string_view first;                 // the finding that must come first
  std::vector<std::string_view> further;  // findings that are true as well
  // The work of a step, where it takes `gpuprobe report --params --tokens-per-step` to see what is wrong.
  double parameters = 0;
  double tokens_per_step = 0;
};

std::span<const Expected> AllExpected();
const Expected& ExpectedOf(std::string_view scenario);

}  // namespace gpuprobe::simulate
