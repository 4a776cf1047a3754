#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "collector/analysis/units.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/output.h"
#include "collector/cli/screen.h"
#include "collector/cli/shared_options.h"
#include "collector/http/fetch.h"
#include "collector/http/hub_html.h"
#include "collector/render/text_layout.h"
#include "collector/text/characters.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

using Json = nlohmann::json;

constexpr char kJobs[] = "jobs";
constexpr size_t kMostMembers = 40;  // GPUs, and hosts

std::string BeganText(uint64_t ns, const char* format = "%Y-%m-%d %H:%M") {
  return absl::FormatTime(format, absl::FromUnixNanos(static_cast<int64_t>(ns)), absl::UTCTimeZone());
}

std::vector<std::string> JobCells(const Json& job) {
  double lost = 0;
  const Json& findings = job.at("findings");
  for (const Json& finding : findings) lost = std::max(lost, finding.at("lost_gpu_seconds").get<double>());
  // Of a job that runs, nothing is judged yet.
  const bool is_over = !job.at("ended_ns").is_null();
  std::string finding;
  if (!findings.empty()) {
    finding = findings.front().at("id");
  } else if (!is_over) {
    finding = job.at("finding");
  }
  return {job.at("name"),
          absl::StrCat(job.at("attempt").get<uint64_t>()),
          job.at("state"),
          BeganText(job.at("begun_ns"), "%m-%d %H:%M"),
          absl::StrCat(job.at("ranks").get<uint64_t>()),
          job.at("step_ns").is_null() ? "-" : analysis::Duration(job.at("step_ns").get<double>()),
          job.at("step_change").is_null() ? "-" : http::ChangeText(job.at("step_change")),
          http::GpuTime(job.at("gpu_seconds")),
          http::GpuTime(lost),
          finding.empty() ? "-" : finding};
}

// Whether these are jobs of several users, whose names go before the jobs' then.
bool HasSeveralUsers(const Json& list) {
  const Json& jobs = list.at("jobs");
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](const Json& job) { return job.at("user") != jobs.front().at("user"); });
}

std::string NameIn(const Json& list, const Json& job) {
  const std::string name = job.at("name");
  return HasSeveralUsers(list) ? absl::StrCat(job.at("user").get<std::string>(), "/", name) : name;
}

// "train#3" for a shell, or the folder of a job whose name a shell may take for something else.
std::string ShellName(const std::string& name, const Json& job) {
  const std::string text = absl::StrCat(name, "#", job.at("attempt").get<uint64_t>());
  const bool is_plain = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-.:/#@ ").find(c) != std::string_view::npos;
  });
  return is_plain ? absl::StrCat("\"", text, "\"") : job.at("id").get<std::string>();
}

std::string HubWords(const std::string& url) {
  return url == kHubHere ? "--hub" : absl::StrCat("--hub ", url);
}

// How to read one of them, by the example of the latest.
std::string HowToRead(const Json& list, const std::string& url) {
  const Json& job = list.at("jobs").front();
  return absl::StrCat("\nReport of one: gpuprobe report ", ShellName(NameIn(list, job), job), " ",
                      HubWords(url), "\n");
}

std::string JobsText(const Json& list, const render::Screen& screen) {
  const render::Layout layout(screen);
  render::Table jobs{.id = "jobs",
                     .title = "",
                     .columns = {"job", "attempt", "state", "began (UTC)", "ranks", "step", "change",
                                 "GPU time", "lost", "first finding"},
                     .left = {true, false, true, true, false, false, false, false, false, true},
                     .rows = {},
                     .note = ""};
  for (const Json& job : list.at("jobs")) jobs.rows.push_back(JobCells(job));
  if (HasSeveralUsers(list)) {
    jobs.columns.insert(jobs.columns.begin(), "user");
    jobs.left.insert(jobs.left.begin(), true);
    for (size_t i = 0; i < jobs.rows.size(); ++i)
      jobs.rows[i].insert(jobs.rows[i].begin(), list.at("jobs")[i].at("user"));
  }
  std::string text = layout.Lay(jobs);
  render::Table offenders{.id = "offenders",
                          .title = "GPUs at fault in several jobs",
                          .columns = {"GPU", "host", "findings", "jobs", "GPU time lost"},
                          .left = {true, true, true, false, false},
                          .rows = {},
                          .note = ""};
  for (const Json& gpu : list.at("repeat_offenders")) {
    offenders.rows.push_back({gpu.at("gpu_uuid"), gpu.at("host"),
                              absl::StrJoin(gpu.at("findings").get<std::vector<std::string>>(), ", "),
                              absl::StrCat(gpu.at("jobs").get<uint64_t>()),
                              http::GpuTime(gpu.at("lost_gpu_seconds"))});
  }
  if (!offenders.rows.empty()) absl::StrAppend(&text, "\n", offenders.title, "\n", layout.Lay(offenders));
  render::Table lost{
      .id = "lost",
      .title = "GPU time lost, by cause",
      .columns = {"finding", "jobs", "GPU time", "of all"},
      .left = {true, false, false, false},
      .rows = {},
      .note =
          "Estimated: the cost per step, times the steps and GPUs. Causes overlap, so they do not add up."};
  const double all = list.at("gpu_seconds");
  for (const Json& cause : list.at("lost")) {
    const double seconds = cause.at("lost_gpu_seconds");
    lost.rows.push_back({cause.at("finding"), absl::StrCat(cause.at("jobs").get<uint64_t>()),
                         http::GpuTime(seconds),
                         all > 0 ? absl::StrFormat("%.1f %%", 100 * seconds / all) : "-"});
  }
  if (!lost.rows.empty()) absl::StrAppend(&text, "\n", lost.title, "\n", layout.Lay(lost));
  return text;
}

// "straggler-slow-gpu (4), gpu-error (1)"
std::string FindingsOf(const Json& member) {
  std::vector<std::string> texts;
  for (const Json& finding : member.at("findings"))
    texts.push_back(
        absl::StrCat(finding.at("id").get<std::string>(), " (", finding.at("jobs").get<uint64_t>(), ")"));
  return texts.empty() ? "-" : absl::StrJoin(texts, ", ");
}

// What the rows of GPUs and hosts have in common.
void AddRecord(const Json& member, bool in_use, std::vector<std::string>& cells) {
  cells.insert(
      cells.end(),
      {absl::StrCat(member.at("jobs_against").get<uint64_t>(), " of ", member.at("jobs").get<uint64_t>()),
       http::GpuTime(member.at("lost_gpu_seconds")), http::GpuTime(member.at("gpu_seconds")),
       in_use ? "in use" : BeganText(member.at("last_seen_ns")), FindingsOf(member)});
}

std::string HostsText(const Json& record, const render::Screen& screen) {
  const render::Layout layout(screen);
  const auto more = [](size_t all, const std::string& note) {
    return all > kMostMembers ? absl::StrCat(note, "; ", all - kMostMembers, " more with --json") : note;
  };
  const Json& all_gpus = record.at("gpus");
  render::Table gpus{
      .id = "gpus",
      .title = "",
      .columns = {"GPU", "host", "against", "lost", "GPU time", "last seen (UTC)", "findings (jobs)"},
      .left = {true, true, false, false, false, true, true},
      .rows = {},
      .note = more(all_gpus.size(),
                   "against: jobs with a finding that hardware can cause and that is about this GPU "
                   "alone; lost: GPU time of these jobs, estimated")};
  for (size_t i = 0; i < std::min(all_gpus.size(), kMostMembers); ++i) {
    std::vector<std::string> cells = {all_gpus[i].at("gpu_uuid"), all_gpus[i].at("host")};
    AddRecord(all_gpus[i], false, cells);
    gpus.rows.push_back(std::move(cells));
  }
  const Json& all_hosts = record.at("hosts");
  render::Table hosts{
      .id = "hosts",
      .title = "",
      .columns = {"host", "GPUs", "against", "lost", "GPU time", "last seen (UTC)", "findings (jobs)"},
      .left = {true, false, false, false, false, true, true},
      .rows = {},
      .note = more(all_hosts.size(), "against: the same, about ranks on this host alone")};
  for (size_t i = 0; i < std::min(all_hosts.size(), kMostMembers); ++i) {
    std::vector<std::string> cells = {all_hosts[i].at("host"),
                                      absl::StrCat(all_hosts[i].at("gpus").get<uint64_t>())};
    AddRecord(all_hosts[i], all_hosts[i].at("in_use"), cells);
    hosts.rows.push_back(std::move(cells));
  }
  if (hosts.rows.empty()) return "no job is over yet\n";
  return absl::StrCat(gpus.rows.empty() ? "" : absl::StrCat(layout.Lay(gpus), "\n"), layout.Lay(hosts));
}

// What the comparison of an attempt with the one before says.
std::string ComparedText(const Json& attempt, const render::Layout& layout) {
  const Json& compared = attempt.at("steps").at("compared");
  std::string text =
      absl::StrCat("\n", layout.Wrap(" ", " ",
                                     absl::StrCat("A is attempt ", compared.at("before").get<uint64_t>(),
                                                  ", B attempt ", attempt.at("attempt").get<uint64_t>(), ". ",
                                                  compared.at("verdict").get<std::string>())));
  for (const Json& change : compared.at("changes"))
    absl::StrAppend(&text, layout.Wrap(" -  ", "    ", change));
  render::Table parts{.id = "parts",
                      .title = "",
                      .columns = {"part of a step", "A", "B", "change", "95 % interval", ""},
                      .left = {true, false, false, false, false, true},
                      .rows = {},
                      .note = ""};
  for (const Json& part : compared.at("parts")) {
    const double before = part.at("before_ns");
    const double now = part.at("ns");
    const bool known = before > 0;
    parts.rows.push_back(
        {part.at("name"), analysis::Duration(before), analysis::Duration(now),
         known ? http::ChangeText(now / before - 1) : "-",
         known ? absl::StrCat(http::ChangeText(part.at("low_ns").get<double>() / before), " to ",
                              http::ChangeText(part.at("high_ns").get<double>() / before))
               : "-",
         part.at("significant").get<bool>() ? "more than chance" : ""});
  }
  return absl::StrCat(text, "\n", layout.Lay(parts));
}

std::vector<std::string> AttemptCells(const Json& attempt, size_t columns) {
  std::vector<std::string> cells = {absl::StrCat(attempt.at("attempt").get<uint64_t>()), attempt.at("state"),
                                    BeganText(attempt.at("begun_ns")),
                                    absl::StrCat(attempt.at("ranks").get<uint64_t>())};
  const Json& steps = attempt.at("steps");
  if (steps.is_null()) {
    const Json& step = attempt.at("step_ns");
    cells.emplace_back("-");
    cells.push_back(step.is_null() ? "-" : analysis::Duration(step.get<double>()));
    cells.resize(columns, "-");
    return cells;
  }
  cells.push_back(absl::StrCat(steps.at("count").get<uint64_t>()));
  for (const char* part : {"total_ns", "compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns"})
    cells.push_back(analysis::Duration(steps.at(part).get<double>()));
  const Json& change = attempt.at("step_change");
  cells.push_back(change.is_null() ? "-" : http::ChangeText(change));
  return cells;
}

std::string AttemptsText(const Json& list, const std::string& name, const std::string& url,
                         const render::Screen& screen) {
  const render::Layout layout(screen);
  render::Table attempts{.id = "attempts",
                         .title = "",
                         .columns = {"attempt", "state", "began (UTC)", "ranks", "steps", "step", "compute",
                                     "exposed comm", "copy", "idle", "change"},
                         .left = {false, true, true, false, false, false, false, false, false, false, false},
                         .rows = {},
                         .note =
                             "means per step and rank; change: of the step, against the attempt before, if "
                             "it is more than chance"};
  const Json* compared = nullptr;
  for (const Json& attempt : list.at("attempts")) {
    attempts.rows.push_back(AttemptCells(attempt, attempts.columns.size()));
    const Json& steps = attempt.at("steps");
    if (compared == nullptr && !steps.is_null() && !steps.at("compared").is_null()) compared = &attempt;
  }
  std::string text = absl::StrCat(layout.Wrap(" ", " ", name), "\n", layout.Lay(attempts));
  if (compared == nullptr) return text;
  const uint64_t number = compared->at("steps").at("compared").at("before");
  absl::StrAppend(&text, ComparedText(*compared, layout));
  for (const Json& before : list.at("attempts")) {
    if (before.at("attempt") == number)
      absl::StrAppend(&text, "\nWhich rank, kernel or collective: gpuprobe diff ", ShellName(name, before),
                      " ", ShellName(name, *compared), " ", HubWords(url), "\n");
  }
  return text;
}

}  // namespace

int JobsMain(const Arguments& arguments) {
  CLI::App app(
      "Lists a hub's jobs, which GPUs were at fault in several of them, and what each cause has cost",
      "gpuprobe jobs");
  std::string url = kHubHere;
  bool json = false;
  bool hosts = false;
  std::string attempts;
  ColorOption color;
  app.add_option("URL", url,
                 absl::StrCat("where the hub serves its page (gpuprobe hub --http) [", kHubHere, "]"))
      ->check(NotEmpty());
  app.add_flag("--hosts", hosts,
               "instead: each GPU and host, with its record over all jobs, repeat offenders first");
  app.add_option("--attempts", attempts,
                 "instead: the attempts of this job side by side, and how the latest differs from the one "
                 "before; named as for gpuprobe report --hub")
      ->check(NotEmpty())
      ->excludes("--hosts")
      ->option_text("JOB");
  app.add_flag("--json", json, "print JSON for tools (docs/http-api.md)");
  color.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (!http::IsUrl(url))
    return Fail(kJobs, absl::StrCat("'", url, "' is no URL, such as ", kHubHere), kUsage);
  std::string path = hosts ? "/api/hosts" : "/api/jobs";
  if (!attempts.empty()) {
    const absl::StatusOr<HubAttempts> found = FindAttempts(url, attempts);
    if (!found.ok()) return Fail(kJobs, found.status(), kFailed);
    path = found->path;
    attempts = found->name;
  }
  const absl::StatusOr<std::string> answer = http::Fetch(url, path);
  if (!answer.ok()) return Fail(kJobs, answer.status(), kFailed);
  if (json) {
    Print(text::PrintableLines(*answer));
    return kDone;
  }
  const Json list = Json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  try {
    const render::Screen screen = ScreenOf(STDOUT_FILENO, color.no_color);
    if (!attempts.empty()) {
      PrintForPeople(AttemptsText(list, attempts, url, screen));
    } else if (hosts) {
      PrintForPeople(HostsText(list, screen));
    } else if (list.at("jobs").empty()) {
      Print(absl::StrCat(
          "no job yet; on every host of a job: GPUPROBE_HUB=", list.at("hub").get<std::string>(), "\n"));
    } else {
      PrintForPeople(JobsText(list, screen) + HowToRead(list, url));
    }
  } catch (const Json::exception&) {
    return Fail(kJobs, absl::StrCat(url, " is not the page of a hub of this release"), kFailed);
  }
  return kDone;
}

}  // namespace gpuprobe::cli
