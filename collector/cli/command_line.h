// The command line as data, read off the parsers of the subcommands: what completions and manual pages are
// made of, so that they cannot differ from --help.
#pragma once

#include <string>
#include <vector>

namespace gpuprobe::cli {

struct OptionDescription {
  std::vector<std::string> names;  // "-o", "--out"; of a positional one its placeholder: "DIR"
  bool positional = false;
  std::string value;  // placeholder of its value: "SIZE"; empty: it takes none
  bool value_may_be_absent = false;
  std::vector<std::string> words;  // the only values that it takes; empty: it takes others too
  std::string help;

  // Whether its value may be a file, as far as the parser knows.
  bool takes_text() const { return value == "TEXT" || (positional && words.empty()); }
};

struct CommandDescription {
  std::string name;
  std::string summary;
  std::string description;
  bool takes_command = false;  // ends with "-- COMMAND [ARGUMENTS]"
  std::vector<OptionDescription> options;
};

std::vector<CommandDescription> DescribeCommands();

// Scripts that complete subcommands, options and values in a shell.
std::string BashCompletion();
std::string ZshCompletion();

// Pages for man(1), in roff: gpuprobe(1), and gpuprobe-COMMAND(1).
std::string ManPage();
std::string ManPageOf(const CommandDescription& command);

}  // namespace gpuprobe::cli
