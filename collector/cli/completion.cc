// Completions for bash and zsh. Both scripts stand alone: neither runs gpuprobe, nor needs the
// bash-completion package (but `run` completes the command after "--" better where that is installed).
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "collector/cli/command_line.h"

namespace gpuprobe::cli {
namespace {

// "run --out|run -o)": a pattern of `case "$command $previous"`.
std::string Pattern(const CommandDescription& command, const OptionDescription& option) {
  std::vector<std::string> words;
  for (const std::string& name : option.names)
    words.push_back(absl::StrCat("\"", command.name, " ", name, "\""));
  return absl::StrJoin(words, "|") + ")";
}

std::string BashReply(const std::vector<std::string>& words) {
  return absl::StrCat("mapfile -t COMPREPLY < <(compgen -W \"", absl::StrJoin(words, " "),
                      "\" -- \"$word\")");
}

// Values of options: a fixed choice, files, or something that only the user knows.
std::string BashValues(const CommandDescription& command) {
  std::string out;
  for (const OptionDescription& option : command.options) {
    if (option.positional || option.value.empty() || option.value_may_be_absent) continue;
    absl::StrAppend(&out, "    ", Pattern(command, option), " ");
    if (!option.words.empty()) {
      absl::StrAppend(&out, BashReply(option.words), "; return ;;\n");
    } else {
      absl::StrAppend(&out, option.takes_text() ? "_gpuprobe_files; " : "", "return ;;\n");
    }
  }
  return out;
}

std::string BashWords(const CommandDescription& command) {
  std::vector<std::string> options;
  std::vector<std::string> words;
  for (const OptionDescription& option : command.options) {
    std::vector<std::string>& to = option.positional ? words : options;
    const std::vector<std::string>& from = option.positional ? option.words : option.names;
    to.insert(to.end(), from.begin(), from.end());
  }
  return absl::StrCat("    ", command.name, ") options=\"", absl::StrJoin(options, " "), "\" words=\"",
                      absl::StrJoin(words, " "), "\" ;;\n");
}

// Inside '...' of a zsh specification, where [, ] and : have a meaning.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}, {"\\", "\\\\"}, {"\n", " "}});
}

std::string ZshValues(const OptionDescription& option) {
  if (!option.words.empty()) return absl::StrCat("(", absl::StrJoin(option.words, " "), ")");
  return option.takes_text() ? "_files" : " ";
}

std::string ZshSpecification(const OptionDescription& option) {
  const std::string help = ZshText(option.help);
  if (option.positional)
    return absl::StrCat("      '::", ZshText(option.names.front()), ":", ZshValues(option), "' \\\n");
  std::string out;
  for (const std::string& name : option.names) {
    const bool is_long = absl::StartsWith(name, "--");
    absl::StrAppend(&out, "      '", name);
    if (!option.value.empty()) absl::StrAppend(&out, is_long ? "=" : "+");
    absl::StrAppend(&out, "[", help, "]");
    if (!option.value.empty()) {
      absl::StrAppend(&out, option.value_may_be_absent ? "::" : ":", ZshText(option.value), ":",
                      ZshValues(option));
    }
    absl::StrAppend(&out, "' \\\n");
  }
  return out;
}

}  // namespace

std::string BashCompletion() {
  std::vector<std::string> names;
  std::string values;
  std::string words;
  for (const CommandDescription& command : DescribeCommands()) {
    names.push_back(command.name);
    absl::StrAppend(&values, BashValues(command));
    absl::StrAppend(&words, BashWords(command));
  }
  return absl::StrCat(
      R"(# Completes gpuprobe in bash. Made by: gpuprobe help completion-bash
_gpuprobe_files() {
  mapfile -t COMPREPLY < <(compgen -f -- "$word")
  compopt -o filenames 2>/dev/null
}

_gpuprobe() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} options words i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    )",
      BashReply(names), R"(
    return
  fi
  # bash breaks --format=csv in three.
  [ "$word" != = ] || word=
  [ "$previous" != = ] || previous=${COMP_WORDS[COMP_CWORD - 2]}
  # After "--" comes somebody else's command.
  for ((i = 2; i < COMP_CWORD; i++)); do
    [ "${COMP_WORDS[i]}" = -- ] || continue
    if declare -F _command_offset >/dev/null; then
      _command_offset $((i + 1))
    elif [ "$COMP_CWORD" -eq $((i + 1)) ]; then
      mapfile -t COMPREPLY < <(compgen -c -- "$word")
    else
      _gpuprobe_files
    fi
    return
  done
  case "$command $previous" in
)",
      values, R"(  esac
  case $command in
)",
      words, R"(  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [ -n "$words" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  else
    _gpuprobe_files
  fi
}
complete -F _gpuprobe gpuprobe
)");
}

std::string ZshCompletion() {
  std::string summaries;
  std::string cases;
  for (const CommandDescription& command : DescribeCommands()) {
    absl::StrAppend(&summaries, "    '", command.name, ":", ZshText(command.summary), "'\n");
    absl::StrAppend(&cases, "  ", command.name, ")\n    _arguments -s \\\n");
    for (const OptionDescription& option : command.options) absl::StrAppend(&cases, ZshSpecification(option));
    absl::StrAppend(&cases, command.takes_command ? "      '*::command: _normal'\n" : "      \n", "    ;;\n");
  }
  return absl::StrCat(R"(#compdef gpuprobe
# Completes gpuprobe in zsh. Made by: gpuprobe help completion-zsh
_gpuprobe() {
  local -a subcommands=(
)",
                      summaries, R"(  )
  if (( CURRENT == 2 )); then
    _describe subcommand subcommands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
)",
                      cases, R"(  esac
}
_gpuprobe "$@"
)");
}

}  // namespace gpuprobe::cli
