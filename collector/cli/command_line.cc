#include "collector/cli/command_line.h"

#include "CLI/CLI.hpp"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"

namespace gpuprobe::cli {
namespace {

OptionDescription Describe(CLI::Option& option) {
  OptionDescription d;
  d.positional = option.get_positional();
  if (d.positional) {
    d.names.push_back(option.get_name(/*positional=*/true));
  } else {
    for (const std::string& name : option.get_snames()) d.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) d.names.push_back("--" + name);
  }
  if (!d.positional && option.get_items_expected_max() > 0) {
    d.value = option.get_option_text().empty() ? option.get_type_name() : option.get_option_text();
    d.value_may_be_absent = option.get_items_expected_min() == 0;
  }
  d.words = WordsOf(option);
  d.help = option.get_description();
  return d;
}

}  // namespace

std::vector<CommandDescription> DescribeCommands() {
  std::vector<CommandDescription> commands;
  ViewParsers([&](const Command& command, CLI::App& app) {
    CommandDescription d{.name = command.name,
                         .summary = command.summary,
                         .description = app.get_description(),
                         .takes_command = app.get_prefix_command(),
                         .options = {}};
    for (CLI::Option* option : app.get_options()) d.options.push_back(Describe(*option));
    commands.push_back(std::move(d));
  });
  return commands;
}

}  // namespace gpuprobe::cli
