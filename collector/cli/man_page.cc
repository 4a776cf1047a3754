// Manual pages, in the roff that man(1) shows.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "collector/cli/command.h"
#include "collector/cli/command_line.h"
#include "collector/cli/examples.h"
#include "collector/recording/version.h"
#include "proto/settings.h"

namespace gpuprobe::cli {
namespace {

// A minus that can be copied, and no line that begins with a request.
std::string Roff(const std::string& text) {
  const std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", " "}});
  return absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'") ? "\\&" + escaped : escaped;
}

std::string Header(const std::string& name, const std::string& summary) {
  return absl::StrCat(".TH ", absl::AsciiStrToUpper(Roff(name)), " 1 \"\" \"gpuprobe ", recording::Version(),
                      "\" \"User Commands\"\n.ad l\n.SH NAME\n", Roff(name), " \\- ", Roff(summary), "\n");
}

std::string Item(const std::string& term, const std::string& text) {
  return absl::StrCat(".TP\n", term, "\n", Roff(text), "\n");
}

// "\fB\-o\fR, \fB\-\-out\fR \fITEXT\fR"
std::string Term(const OptionDescription& option) {
  if (option.positional) return absl::StrCat("\\fI", Roff(option.names.front()), "\\fR");
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(absl::StrCat("\\fB", Roff(name), "\\fR"));
  std::string term = absl::StrJoin(names, ", ");
  if (option.value.empty()) return term;
  return absl::StrCat(term, option.value_may_be_absent ? " [\\fI" : " \\fI", Roff(option.value),
                      option.value_may_be_absent ? "\\fR]" : "\\fR");
}

constexpr std::pair<const char*, const char*> kExitStatus[] = {
    {"0", "Done."},
    {"1", "It could not be done; one line on standard error says why."},
    {"2", "The command line was wrong; nothing was done."}};

std::string ExitStatus(bool of_command) {
  std::string out = ".SH EXIT STATUS\n";
  if (of_command) {
    return out +
           "That of COMMAND; if it was ended by a signal, gpuprobe ends itself by the same signal. 125: "
           "gpuprobe failed; 126: COMMAND could not be run; 127: COMMAND was not found; 2: the command line "
           "was wrong.\n";
  }
  for (const auto& [code, meaning] : kExitStatus) out += Item(code, meaning);
  return out;
}

std::string ExamplesSection(const std::string& command) {
  std::string out;
  for (const Example& example : ExamplesOf(command)) {
    absl::StrAppend(&out, out.empty() ? ".SH EXAMPLES\n" : "", Roff(example.meaning), ":\n.PP\n.nf\n    ",
                    Roff(example.line), "\n.fi\n.PP\n");
  }
  return out;
}

}  // namespace

std::string ManPageOf(const CommandDescription& command) {
  std::string out = Header("gpuprobe-" + command.name, command.summary);
  absl::StrAppend(&out, ".SH SYNOPSIS\n\\fBgpuprobe ", Roff(command.name), "\\fR [\\fIOPTIONS\\fR]");
  for (const OptionDescription& option : command.options) {
    if (option.positional) absl::StrAppend(&out, " ", Term(option));
  }
  if (command.takes_command) absl::StrAppend(&out, " \\-\\- \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]");
  absl::StrAppend(&out, "\n.SH DESCRIPTION\n", Roff(command.description), ".\n.SH OPTIONS\n");
  for (const OptionDescription& option : command.options) out += Item(Term(option), option.help);
  return absl::StrCat(out, ExamplesSection(command.name), ExitStatus(command.takes_command),
                      ".SH SEE ALSO\n.BR gpuprobe (1)\n");
}

std::string ManPage() {
  std::string out = Header("gpuprobe", "profile distributed GPU training without changing the program");
  absl::StrAppend(&out,
                  ".SH SYNOPSIS\n\\fBgpuprobe\\fR \\fISUBCOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n",
                  "Records every kernel, copy, collective and allocation of a job that it did not need to be "
                  "changed for, and says\nwhere each rank's time went, who is slow, what hangs, and what to "
                  "do about it.\n.PP\n.nf\n    gpuprobe run \\-\\- torchrun \\-\\-nproc\\-per\\-node 8 "
                  "train.py\n.fi\n.SH SUBCOMMANDS\n");
  std::vector<std::string> pages;
  for (const Command& command : Commands()) {
    out += Item(absl::StrCat("\\fB", command.name, "\\fR"), command.summary);
    pages.push_back(absl::StrCat(".BR gpuprobe\\-", command.name, " (1)"));
  }
  absl::StrAppend(&out, ".SH ENVIRONMENT\nOf the profiled program; the value in brackets is the default.\n");
  for (const settings::Setting& s : settings::kSettings) {
    std::string help(s.help);
    if (!s.default_text.empty())
      absl::StrAppend(&help, " [", std::string(s.default_text), s.unit.empty() ? "" : " ",
                      std::string(s.unit), "]");
    out += Item(absl::StrCat("\\fB", Roff(std::string(s.name)), "\\fR"), help);
  }
  return absl::StrCat(out, ExitStatus(/*of_command=*/false), ".SH SEE ALSO\n", absl::StrJoin(pages, ",\n"),
                      "\n");
}

}  // namespace gpuprobe::cli
