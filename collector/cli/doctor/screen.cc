#include "collector/cli/doctor/screen.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gpuprobe::cli::doctor {
namespace {

using render::Emphasis;

struct StateWords {
  State state;
  const char* one;
  const char* many;
  Emphasis emphasis;
};
constexpr std::array<StateWords, 4> kWords = {{{State::kProblem, "problem", "problems", Emphasis::kError},
                                               {State::kWarning, "warning", "warnings", Emphasis::kWarning},
                                               {State::kNote, "note", "notes", Emphasis::kNone},
                                               {State::kOk, "ok", "ok", Emphasis::kQuiet}}};

const StateWords& WordsOf(State state) {
  return *std::find_if(kWords.begin(), kWords.end(),
                       [&](const StateWords& words) { return words.state == state; });
}

long CountOf(const Checks& checks, State state) {
  return std::count_if(checks.begin(), checks.end(),
                       [&](const Check& check) { return check.state == state; });
}

}  // namespace

bool NeedsAttention(const Checks& checks) {
  return std::any_of(checks.begin(), checks.end(),
                     [](const Check& check) { return check.state > State::kNote; });
}

std::string Verdict(const Checks& checks) {
  std::vector<std::string> parts;
  for (const StateWords& words : kWords) {
    const long count = CountOf(checks, words.state);
    if (words.state != State::kOk && count > 0)
      parts.push_back(absl::StrCat(count, " ", count == 1 ? words.one : words.many));
  }
  return absl::StrCat(NeedsAttention(checks) ? "" : "nothing stands in the way",
                      NeedsAttention(checks) || parts.empty() ? "" : ", ", absl::StrJoin(parts, ", "));
}

std::string Text(const Checks& checks, const render::Screen& screen) {
  const render::Layout layout(screen);
  size_t widest = 0;
  for (const Check& check : checks) widest = std::max(widest, check.subject.size());
  constexpr size_t kStateWidth = 7;  // "problem"
  const std::string indent(kStateWidth + widest + 4, ' ');
  std::string text = layout.Wrap("", "  ", Verdict(checks), Emphasis::kStrong) + "\n";
  for (const Check& check : checks) {
    const StateWords& words = WordsOf(check.state);
    const std::string lead = absl::StrFormat("%-*s  %-*s  ", kStateWidth, words.one, widest, check.subject);
    absl::StrAppend(&text, layout.Wrap(lead, indent, check.fact, words.emphasis));
    if (!check.remedy.empty()) absl::StrAppend(&text, layout.Wrap(indent, indent, check.remedy));
  }
  return text;
}

nlohmann::ordered_json Json(const Checks& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back(
        {{"subject", check.subject},
         {"state", WordsOf(check.state).one},
         {"fact", check.fact},
         {"remedy", check.remedy.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(check.remedy)}});
  }
  return {{"verdict", Verdict(checks)},
          {"problems", CountOf(checks, State::kProblem)},
          {"warnings", CountOf(checks, State::kWarning)},
          {"notes", CountOf(checks, State::kNote)},
          {"checks", std::move(list)}};
}

}  // namespace gpuprobe::cli::doctor
