// Names as --step-marker and GPUPROBE_STEP_MARKER take them: a * stands for any text, everything else for
// itself, and the whole name must match. "step" is the range "step" alone, "step*" also "step 12".
//
// The probe and the collector share this, so that a marker means the same to both. No allocation: usable
// inside the profiled process.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpuprobe {

constexpr bool MatchesPattern(std::string_view pattern, std::string_view name) noexcept {
  size_t p = 0;
  size_t n = 0;
  size_t star = std::string_view::npos;  // the last one, and how much of the name it stands for so far
  size_t star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++star_end;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Names something, and is not a regular expression by mistake: "^step$", "step.*", "fwd|bwd".
constexpr bool IsNamePattern(std::string_view pattern) noexcept {
  const bool anchored = !pattern.empty() && (pattern.front() == '^' || pattern.back() == '$');
  return pattern.find_first_not_of('*') != std::string_view::npos && !anchored &&
         pattern.find(".*") == std::string_view::npos &&
         pattern.find_first_of("\\|") == std::string_view::npos;
}

}  // namespace gpuprobe
