// Checks of option values, and the messages for invalid ones: what is allowed, then what was given.
//
// CLI11's own checks answer with the bounds of its types instead: "Value abc not in range", or the largest
// double in 309 digits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace gpuprobe::cli {

// A number above 0, decimals allowed.
CLI::Validator AboveZero();
// A whole number from `least` to `most`.
CLI::Validator WholeNumber(uint64_t least, uint64_t most);
// For transform(): "512MiB", "4G", "1.5GiB" or bytes, of `least` to `most` bytes, becomes a number of bytes.
CLI::Validator Size(uint64_t least, uint64_t most);
// One of these words.
CLI::Validator OneOf(std::vector<std::string> words);
// Any text; shells offer these words for it. Who takes it refuses the others, in words of its own.
CLI::Validator Suggested(const std::vector<std::string>& words);
// The words of OneOf or Suggested; empty: there are none.
std::vector<std::string> WordsOf(CLI::Option& option);
// Any text but the empty one.
CLI::Validator NotEmpty();

}  // namespace gpuprobe::cli
