#include "collector/analysis/units.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gpuprobe::analysis {
namespace {

// Three significant digits, never in exponent form.
std::string Three(double value) {
  if (value >= 100) return absl::StrFormat("%.0f", value);
  if (value >= 10) return absl::StrFormat("%.1f", value);
  return absl::StrFormat("%.2f", value);
}

}  // namespace

std::string Count(uint64_t value) {
  std::string digits = absl::StrCat(value);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string Duration(double ns) {
  // A value that would round to 1000 is 1.00 of the next unit.
  constexpr double kNext = 0.9995;
  if (ns < kNext * 1e3) return absl::StrFormat("%.0f ns", ns);
  if (ns < kNext * 1e6) return absl::StrCat(Three(ns / 1e3), " us");
  if (ns < kNext * 1e9) return absl::StrCat(Three(ns / 1e6), " ms");
  return absl::StrCat(Three(ns / 1e9), " s");
}

std::string Span(double ns) {
  constexpr double kMinute = 60e9;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  if (ns < 2 * kMinute) return Duration(ns);
  if (ns < 2 * kHour) return absl::StrFormat("%.0f min", ns / kMinute);
  if (ns < 2 * kDay) return absl::StrFormat("%.1f h", ns / kHour);
  return absl::StrFormat("%.0f days", ns / kDay);
}

std::pair<std::string, std::string> Durations(double a_ns, double b_ns) {
  std::pair<std::string, std::string> texts{Duration(a_ns), Duration(b_ns)};
  const std::string unit = texts.first.substr(texts.first.rfind(' '));
  const double larger_ns = std::max(a_ns, b_ns);
  // Three digits distinguish values that differ by more.
  constexpr double kAlike = 0.01;
  if (a_ns == b_ns || larger_ns - std::min(a_ns, b_ns) > kAlike * larger_ns ||
      texts.second.substr(texts.second.rfind(' ')) != unit)
    return texts;
  const double unit_ns = unit == " ns" ? 1 : unit == " us" ? 1e3 : unit == " ms" ? 1e6 : 1e9;
  constexpr int kMostDigits = 6;
  for (int digits = larger_ns >= 100 * unit_ns  ? 0
                    : larger_ns >= 10 * unit_ns ? 1
                                                : 2;
       digits <= kMostDigits; ++digits) {
    texts = {absl::StrCat(absl::StrFormat("%.*f", digits, a_ns / unit_ns), unit),
             absl::StrCat(absl::StrFormat("%.*f", digits, b_ns / unit_ns), unit)};
    if (texts.first != texts.second) break;
  }
  return texts;
}

std::string Bytes(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  // Three digits: in the next unit, where it would take four.
  constexpr double kNext = 999.5;
  while (value >= (unit == 0 ? 1024 : kNext) && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrCat(Three(value), " ", units[unit]);
}

std::string Rate(double gbytes_per_s) {
  if (gbytes_per_s > 0 && gbytes_per_s < 0.1) return absl::StrCat(Three(gbytes_per_s * 1e3), " MB/s");
  return absl::StrCat(Three(gbytes_per_s), " GB/s");
}

std::string KernelName(const std::string& name, size_t width) {
  if (name.size() <= width) return name;
  // Parameters begin at the first parenthesis outside template arguments that is not part of a name
  // ("(anonymous namespace)").
  int depth = 0;
  size_t end = name.size();
  size_t begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (depth > 0) continue;
    if (name.compare(i, 2, "::") == 0) begin = i + 2;
    if (name[i] != '(') continue;
    if (name.compare(i, 21, "(anonymous namespace)") == 0) {
      i += 20;
      continue;
    }
    end = i;
    break;
  }
  if (end <= width) return name.substr(0, end);
  return Shorten(name.substr(begin, end - begin), width);
}

std::vector<std::string> KernelNames(const std::vector<std::string>& names, size_t width) {
  std::vector<std::string> out;
  out.reserve(names.size());
  for (const std::string& name : names) out.push_back(KernelName(name, width));
  for (size_t i = 0; i < names.size(); ++i) {
    std::vector<size_t> alike;
    for (size_t j = i; j < names.size(); ++j) {
      if (out[j] == out[i] && names[j] != names[i]) alike.push_back(j);
    }
    if (alike.empty()) continue;
    const std::string same = out[i];
    for (size_t j = i; j < names.size(); ++j) {
      if (out[j] == same && std::find(alike.begin(), alike.end(), j) == alike.end()) alike.push_back(j);
    }
    // The differing part is shown after the common beginning.
    size_t common = names[i].size();
    for (const size_t j : alike) {
      const auto end =
          std::mismatch(names[i].begin(), names[i].end(), names[j].begin(), names[j].end()).first;
      if (names[j] != names[i]) common = std::min(common, static_cast<size_t>(end - names[i].begin()));
    }
    constexpr size_t kBefore = 4;  // of the common part
    const size_t head = width / 3;
    for (const size_t j : alike) {
      // From the function's own name on.
      const size_t found = names[j].find(same.substr(0, head));
      const size_t begin = found == std::string::npos ? 0 : found;
      const size_t from = std::max(begin + head, common < kBefore ? 0 : common - kBefore);
      if (from <= begin + head) {
        out[j] = Shorten(names[j].substr(begin), width);
      } else {
        out[j] = Shorten(absl::StrCat(names[j].substr(begin, head), "...", names[j].substr(from)), width);
      }
    }
  }
  return out;
}

std::string Listed(std::span<const std::string> names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  return absl::StrCat(absl::StrJoin(names.first(names.size() - 1), ", "), " and ", names.back());
}

std::string RankList(std::span<const int> ranks, size_t most) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (runs.size() == most) {
      runs.emplace_back("...");
      break;
    }
    runs.push_back(end - i == 1 ? absl::StrCat(ranks[i]) : absl::StrCat(ranks[i], "-", ranks[end - 1]));
    i = end;
  }
  return absl::StrJoin(runs, ", ");
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }

std::string Shorten(const std::string& text, size_t width) {
  if (text.size() <= width) return text;
  return absl::StrCat(text.substr(0, width - 3), "...");
}

}  // namespace gpuprobe::analysis
