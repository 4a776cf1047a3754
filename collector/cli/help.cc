#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "collector/analysis/finding_document.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/units.h"
#include "collector/cli/beside.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/command_line.h"
#include "collector/cli/help_text.h"
#include "collector/cli/output.h"
#include "collector/cli/shared_options.h"
#include "collector/cli/wrapped_help.h"
#include "collector/http/hub_metrics.h"
#include "collector/http/metrics.h"
#include "collector/recording/node_limits.h"
#include "collector/recording/recorder.h"
#include "collector/render/json_report.h"
#include "collector/report/field_tables.h"
#include "collector/report/types.h"
#include "proto/settings.h"

namespace gpuprobe::cli {
namespace {

std::string DefaultOf(const settings::Setting& s) {
  std::string text(s.default_text);
  if (!text.empty() && !s.unit.empty()) absl::StrAppend(&text, " ", std::string(s.unit));
  return text;
}

}  // namespace

std::string SettingValues(const settings::Setting& s) {
  if (s.kind == settings::Kind::kFlag) return "0 or 1";
  if (s.kind == settings::Kind::kText) return std::string(s.form);
  return absl::StrCat(s.minimum, " to ", s.maximum, s.unit.empty() ? "" : " ", std::string(s.unit));
}

std::string EnvironmentText() {
  std::string out = "Environment of the profiled program:\n";
  for (const settings::Setting& s : settings::kSettings) {
    absl::StrAppendFormat(&out, "  %-24s %s", std::string(s.name), std::string(s.help));
    if (!s.default_text.empty()) absl::StrAppend(&out, " [", DefaultOf(s), "]");
    out += "\n";
  }
  return out;
}

std::string EnvironmentMarkdown() {
  std::string out = "| variable | values | default | meaning |\n|---|---|---|---|\n";
  for (const settings::Setting& s : settings::kSettings) {
    absl::StrAppend(&out, "| `", std::string(s.name), "` | ", SettingValues(s), " | ",
                    s.default_text.empty() ? "" : absl::StrCat("`", DefaultOf(s), "`"), " | ",
                    absl::StrReplaceAll(std::string(s.help), {{"|", "\\|"}, {"<", "&lt;"}}), " |\n");
  }
  return out;
}

std::string ShortHelpText() {
  return "gpuprobe profiles distributed GPU training without changing the program.\n\n"
         "  gpuprobe run -- torchrun train.py    run a job, and say what is wrong with it at the end\n"
         "  gpuprobe top                         watch the job while it runs\n"
         "  gpuprobe report DIR                  show the report of a recorded job again\n\n"
         "gpuprobe --help lists everything else.\n";
}

std::string HelpText() {
  std::string out =
      "gpuprobe profiles distributed GPU training without changing the program.\n\n  gpuprobe run -- "
      "torchrun --nproc-per-node 8 train.py\n\nSubcommands (see gpuprobe SUBCOMMAND --help):\n";
  for (const Command& command : Commands())
    absl::StrAppendFormat(&out, "  %-10s %s\n", command.name, command.summary);
  absl::StrAppend(&out, "\nThe variables of a profiled program (GPUPROBE_*): gpuprobe help environment\n");
  return out;
}

std::string FindingsText() {
  std::string out = "Findings, and when each is reported:\n";
  std::optional<analysis::FindingTopic> topic;
  for (const analysis::FindingRule& rule : analysis::FindingRules()) {
    if (topic != rule.topic) absl::StrAppend(&out, "\n", TitleOf(rule.topic), ":\n");
    topic = rule.topic;
    absl::StrAppendFormat(&out, "  %-24s %s\n", rule.id, rule.holds_when);
  }
  return absl::StrCat(out, "\n", analysis::HoldsUpText(), "\n");
}

// The page's types: the report's, and the names of the pictures that findings have.
std::string ReportTypesText() {
  std::set<std::string> pictures;
  for (const analysis::FindingRule& rule : analysis::FindingRules()) {
    if (*rule.picture != '\0') pictures.insert(absl::StrCat("'", rule.picture, "'"));
  }
  return absl::StrCat(report::ReportTypes(), "export type PictureName = ", absl::StrJoin(pictures, " | "),
                      ";\n");
}

// The limits for one user of `collect --node`.
std::string LimitsMarkdown() {
  const auto mib = [](uint64_t bytes) { return analysis::Bytes(bytes); };
  const std::pair<std::string, std::string> rows[] = {
      {"before a client has identified itself, per connection",
       absl::StrCat(mib(recording::node::kHelloBytes), " and ", recording::node::kHelloWait.count(), " s")},
      {"concurrent connections", absl::StrCat(recording::node::kClientsOfUser)},
      {"one frame", mib(recording::node::kFrameBytes)},
      {"unfinished frames, all connections together", mib(recording::node::kUnfinishedBytesOfUser)},
      {"concurrent runs", absl::StrCat(recording::node::kRunsOfUser, ", then one more every ",
                                       recording::node::kRunEvery.count(), " s")},
      {"concurrent processes, all runs together", absl::StrCat(recording::node::kProcessesOfUser)},
      {"runs and files kept",
       absl::StrCat(recording::node::kKeptRunsOfUser, " and ", recording::node::kKeptFilesOfUser)},
      {"disk for kept runs (`--user-disk`)", mib(recording::node::kDefaultUserDisk)},
      {"disk for one run (`--keep`)",
       absl::StrCat(mib(KeepOption::kDefaultBytes), ", at most 1/", recording::node::kShareOfRun,
                    " of what is left, at least ", mib(recording::node::kSmallestRun))},
      {"memory (`--user-memory`)", mib(recording::node::kDefaultUserMemory)},
      {"concurrent users, on the node", absl::StrCat(recording::node::kUsers)},
  };
  std::string out = "| resource | limit per user |\n|---|---|\n";
  for (const auto& [what, much] : rows) absl::StrAppend(&out, "| ", what, " | ", much, " |\n");
  return out;
}

namespace {

// As a terminal shows it: without the picture and the marks that are for programs.
std::string DocumentText(std::string_view markdown) {
  std::string text;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(markdown.data(), markdown.size()), '\n')) {
    if (absl::StartsWith(line, "![") || absl::StartsWith(line, "<!--")) continue;
    if (line.empty() && absl::EndsWith(text, "\n\n")) continue;
    absl::StrAppend(&text, line, "\n");
  }
  return text.substr(0, text.find_last_not_of('\n') + 2);
}

using TextOf = std::string (*)();

struct Topic {
  const char* name;
  TextOf text;
  bool for_people = false;  // else programs read it, line by line
};

constexpr Topic kTopics[] = {
    {"environment", EnvironmentText, true},
    {"findings", FindingsText, true},
    {"limits", LimitsMarkdown},
    {"report-schema", render::ReportSchema},
    {"report-types", ReportTypesText},
    {"report-fields", report::FieldTables},
    {"metrics", http::MetricsMarkdown},
    {"hub-metrics", http::HubMetricsMarkdown},
    {"completion-bash", BashCompletion},
    {"completion-zsh", ZshCompletion},
};

constexpr char kLibraryPath[] = "library-path";

// For CUDA_INJECTION64_PATH and LD_PRELOAD.
int PrintLibraryPath() {
  const absl::StatusOr<std::string> path = FindLibrary();
  if (!path.ok()) return Fail("help", path.status(), kFailed);
  Print(absl::StrCat(*path, "\n"));
  return kDone;
}

// gpuprobe(1), or that of a subcommand.
int PrintManPage(const std::string& topic) {
  if (topic.empty()) {
    Print(ManPage());
    return kDone;
  }
  for (const CommandDescription& command : DescribeCommands()) {
    if (topic != command.name) continue;
    Print(ManPageOf(command));
    return kDone;
  }
  return Fail("help", "--man is for subcommands (see gpuprobe help --help)", kUsage);
}

}  // namespace

int HelpMain(const Arguments& arguments) {
  CLI::App app("Shows help", "gpuprobe help");
  std::vector<std::string> names;
  for (const Topic& topic : kTopics) names.emplace_back(topic.name);
  names.emplace_back(kLibraryPath);
  const std::string topics = absl::StrJoin(names, ", ");
  for (const Command& command : Commands()) names.emplace_back(command.name);
  std::string topic;
  bool markdown = false;
  bool man = false;
  for (const analysis::FindingRule& rule : analysis::FindingRules()) names.emplace_back(rule.id);
  app.add_option("TOPIC", topic, absl::StrCat("a subcommand, a finding's id, or one of ", topics))
      ->check(OneOf(names));
  app.add_flag("--markdown", markdown, "print the environment variables as a Markdown table");
  app.add_flag("--man", man, "print a subcommand's manual page, or that of gpuprobe itself, for man(1)")
      ->excludes("--markdown");
  if (const auto code = Parse(app, arguments)) return *code;
  if (man) return PrintManPage(topic);
  if (markdown && topic != "environment")
    return Fail("help", "--markdown is for help environment (see gpuprobe help --help)", kUsage);
  if (topic == kLibraryPath) return PrintLibraryPath();
  for (const Command& command : Commands()) {
    if (topic == command.name) return command.main({"--help"});
  }
  if (const std::string_view document = analysis::FindingDocument(topic); !document.empty()) {
    Print(DocumentText(document));
    return kDone;
  }
  for (const Topic& each : kTopics) {
    if (topic == each.name) {
      const std::string text = markdown ? EnvironmentMarkdown() : each.text();
      Print(each.for_people && !markdown ? WrappedFor(STDOUT_FILENO, text) : text);
      return kDone;
    }
  }
  Print(WrappedFor(STDOUT_FILENO, HelpText()));
  return kDone;
}

}  // namespace gpuprobe::cli
