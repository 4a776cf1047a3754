#include "collector/cli/checks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "collector/analysis/units.h"
#include "collector/cli/near_word.h"

namespace gpuprobe::cli {
namespace {

// The name of a validator is nowhere shown: it remembers the words.
const std::string kOneOf = "one of ";

std::string Got(const std::string& value) {
  // A long value is not a typo: its beginning is enough to recognise it.
  constexpr size_t kShown = 40;
  return absl::StrCat(", got \"", value.substr(0, kShown), value.size() > kShown ? "..." : "", "\"");
}

std::optional<uint64_t> ParseSize(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &number)) return std::nullopt;
  std::string unit = absl::AsciiStrToLower(text.substr(digits));
  constexpr std::string_view kPrefixes = "kmgtpe";
  double factor = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = kPrefixes.find(unit.front());
    const std::string_view rest = std::string_view(unit).substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "i" && rest != "ib"))
      return std::nullopt;
    factor = std::exp2(10.0 * static_cast<double>(power + 1));
  }
  // Whole bytes are taken as they are: a double holds only 53 bits.
  uint64_t bytes = 0;
  if (factor == 1 && absl::SimpleAtoi(text.substr(0, digits), &bytes)) return bytes;
  const double size = std::floor(number * factor);
  constexpr double kLimit = 0x1p64;
  if (size >= kLimit) return std::nullopt;
  return static_cast<uint64_t>(size);
}

}  // namespace

CLI::Validator AboveZero() {
  return CLI::Validator(
      [](const std::string& value) {
        double number = 0;
        const bool good = absl::SimpleAtod(value, &number) && number > 0 && std::isfinite(number);
        return good ? std::string() : absl::StrCat("must be a positive number", Got(value));
      },
      "");
}

CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](const std::string& value) {
        uint64_t number = 0;
        const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
        if (digits && absl::SimpleAtoi(value, &number) && number >= least && number <= most)
          return std::string();
        if (most == UINT64_MAX) return absl::StrCat("must be a whole number", Got(value));
        return absl::StrCat("must be a whole number from ", least, " to ", most, Got(value));
      },
      "");
}

CLI::Validator Size(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& value) {
        const std::optional<uint64_t> bytes = ParseSize(value);
        if (bytes.has_value() && *bytes >= least && *bytes <= most) {
          value = absl::StrCat(*bytes);
          return std::string();
        }
        const std::string range =
            most == UINT64_MAX ? absl::StrCat("of at least ", analysis::Bytes(least))
                               : absl::StrCat("from ", analysis::Bytes(least), " to ", analysis::Bytes(most));
        return absl::StrCat("must be a size ", range, ", such as 512MiB or 4GiB", Got(value));
      },
      "", "size");
}

CLI::Validator OneOf(std::vector<std::string> words) {
  const std::string listed = absl::StrJoin(words, ", ");
  const std::string name = absl::StrCat(kOneOf, absl::StrJoin(words, " "));
  return CLI::Validator(
      [words = std::move(words), listed](const std::string& value) {
        if (std::find(words.begin(), words.end(), value) != words.end()) return std::string();
        return words.size() == 1
                   ? absl::StrCat("must be ", listed, Got(value))
                   : absl::StrCat("must be one of ", listed, Got(value), DidYouMean(value, words));
      },
      "", name);
}

CLI::Validator Suggested(const std::vector<std::string>& words) {
  return CLI::Validator([](const std::string& /*value*/) { return std::string(); }, "",
                        absl::StrCat(kOneOf, absl::StrJoin(words, " ")));
}

std::vector<std::string> WordsOf(CLI::Option& option) {
  try {
    const std::string& name = option.get_validator(0)->get_name();
    if (!name.starts_with(kOneOf)) return {};
    return std::vector<std::string>(absl::StrSplit(name.substr(kOneOf.size()), ' ', absl::SkipEmpty()));
  } catch (const CLI::OptionNotFound&) {  // it has no validator, and there is no other way to ask
    return {};
  }
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](const std::string& value) { return value.empty() ? "must not be empty" : std::string(); }, "");
}

}  // namespace gpuprobe::cli
