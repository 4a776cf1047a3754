// The command line of one subcommand: parsed by CLI11, refused in our words.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/examples.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/wrapped_help.h"
#include "collector/text/characters.h"

namespace gpuprobe::cli {
namespace {

// If set, receives each parser instead of running it.
const std::function<void(CLI::App&)>* viewer = nullptr;

// An option's value in one word: what it must be is in its description, and what it excludes is said if
// somebody tries.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (!option->get_option_text().empty()) return absl::StrCat(" ", option->get_option_text());
    if (option->get_items_expected_max() == 0) return "";
    const std::string type = option->get_type_name();
    std::string word = type.substr(0, type.find_first_of(": "));
    if (word == "FLOAT") word = "NUMBER";
    if (word == "INT" || word == "UINT") word = "N";
    return absl::StrCat(word.empty() ? "" : " ", word, option->get_required() ? " REQUIRED" : "");
  }
};

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

int Refuse(const CLI::App& app, const std::string& what) {
  const std::string& name = app.get_name();
  std::fputs(text::Printable(absl::StrCat(name, ": ", what, " (see ", name, " --help)")).append("\n").c_str(),
             stderr);
  return kUsage;
}

// CLI11 sees "--keep=" as an option without its value.
std::string MissingValue(const CLI::App& app, const Arguments& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      std::string dashed = "--" + name;
      const bool last = !arguments.empty() && arguments.back() == dashed;
      const bool empty = std::find(arguments.begin(), arguments.end(), dashed + "=") != arguments.end();
      if ((last || empty) && option->get_items_expected_min() > 0) return dashed;
    }
  }
  return "";
}

}  // namespace

int RefuseArgument(const CLI::App& app, const std::vector<std::string>& remaining) {
  const auto option = std::find_if(remaining.begin(), remaining.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
  if (option == remaining.end())
    return Refuse(app, absl::StrCat("unexpected argument \"", remaining.front(), "\""));
  const std::string name = option->substr(0, option->find('='));
  return Refuse(app, absl::StrCat("unknown option ", name, DidYouMean(name, OptionNames(app))));
}

void ViewParsers(const std::function<void(const Command&, CLI::App&)>& view) {
  for (const Command& command : Commands()) {
    const std::function<void(CLI::App&)> view_this = [&](CLI::App& app) { view(command, app); };
    viewer = &view_this;
    command.main({});
    viewer = nullptr;
  }
}

std::optional<int> Parse(CLI::App& app, const Arguments& arguments) {
  if (viewer != nullptr) {
    (*viewer)(app);
    return kDone;
  }
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(30);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    const std::string& name = app.get_name();  // "gpuprobe run"
    Print(WrappedFor(STDOUT_FILENO, absl::StrCat(app.help(), ExamplesText(name.substr(name.find(' ') + 1)))));
    return kDone;
  } catch (const CLI::ExtrasError&) {
    return RefuseArgument(app, app.remaining());
  } catch (const CLI::ConversionError& error) {
    // Values of options are checked before they are converted: this is a value of a flag, as in "--json=no".
    const std::string what = error.what();
    const size_t dashes = what.find("--");
    const size_t end = what.find_first_of(" =", dashes);
    if (dashes == std::string::npos) return Refuse(app, what);
    return Refuse(app, absl::StrCat(what.substr(dashes, end - dashes), " takes no value"));
  } catch (const CLI::ParseError& error) {
    const std::string missing = MissingValue(app, arguments);
    if (!missing.empty()) return Refuse(app, absl::StrCat(missing, " needs a value"));
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    return Refuse(app, what);
  }
  return std::nullopt;
}

}  // namespace gpuprobe::cli
