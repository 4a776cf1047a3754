// What options of several subcommands are checked for.
//
// Separate because CLI11's own check for numbers above zero answers with the largest double in 309 digits.
#pragma once

#include <cmath>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {

inline CLI::Validator AboveZero() {
  return CLI::Validator(
      [](const std::string& value) {
        double number = 0;
        const bool good = absl::SimpleAtod(value, &number) && number > 0 && std::isfinite(number);
        return good ? std::string() : absl::StrCat("\"", value, "\" is no number above 0");
      },
      "");
}

}  // namespace gpuprobe::cli
