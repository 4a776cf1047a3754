#include "collector/cli/near_word.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::cli {
namespace {

// Optimal string alignment distance: the fewest insertions, deletions, replacements and exchanges of
// neighbours.
size_t TypingErrors(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string_view WithoutDashes(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word;
}

}  // namespace

std::string NearWord(std::string_view word, const std::vector<std::string>& words) {
  constexpr size_t kLongest = 64;  // longer text is not a typo
  const std::string given = absl::AsciiStrToLower(std::string(WithoutDashes(word)));
  if (given.empty() || given.size() > kLongest) return "";
  std::string nearest;
  size_t fewest = SIZE_MAX;
  for (const std::string& candidate : words) {
    const std::string_view name = WithoutDashes(candidate);
    size_t errors = TypingErrors(given, name);
    constexpr size_t kLeastBeginning = 3;
    if (given.size() >= kLeastBeginning && name.starts_with(given)) errors = std::min<size_t>(errors, 1);
    const size_t allowed = std::max<size_t>(1, std::max(given.size(), name.size()) / 3);
    if (errors > allowed || errors >= std::max(given.size(), name.size()) || errors >= fewest) continue;
    fewest = errors;
    nearest = candidate;
  }
  return nearest;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& words) {
  const std::string near = NearWord(word, words);
  return near.empty() ? "" : absl::StrCat("; did you mean ", near, "?");
}

}  // namespace gpuprobe::cli
