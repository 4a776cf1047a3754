#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collector/analysis/finding_rules.h"
#include "collector/analysis/trust/clock_alignment.h"
#include "collector/analysis/units.h"
#include "collector/cli/checks.h"
#include "collector/cli/command.h"
#include "collector/cli/damage_line.h"
#include "collector/cli/given_run.h"
#include "collector/cli/hub_job.h"
#include "collector/cli/near_word.h"
#include "collector/cli/output.h"
#include "collector/cli/progress.h"
#include "collector/cli/rolled_up_line.h"
#include "collector/cli/shared_options.h"
#include "collector/recording/recorder.h"
#include "collector/recording/version.h"
#include "collector/report/report.h"
#include "collector/store/run_directory.h"
#include "collector/store/run_files.h"
#include "collector/store/safe_path.h"
#include "collector/text/characters.h"
#include "collector/timeline/chrome_trace.h"
#include "collector/timeline/deflate.h"
#include "collector/timeline/job_processes.h"
#include "collector/timeline/perfetto_trace.h"
#include "collector/timeline/process_timeline.h"
#include "collector/timeline/selection.h"
#include "collector/timeline/step_log.h"

namespace gpuprobe::cli {
namespace {

constexpr char kTrace[] = "trace";
constexpr uint64_t kDefaultMaxBytes = uint64_t{256} << 20;
constexpr uint64_t kSmallestMaxBytes = uint64_t{1} << 20;
// Left free of each file's limit for what compressors hold back.
constexpr uint64_t kReserveBytes = uint64_t{256} << 10;

struct TraceOptions {
  std::string given;
  std::string out;
  std::string format = "perfetto";
  std::string steps;
  std::string ranks;
  std::string around;
  uint64_t max_bytes = kDefaultMaxBytes;
  StepMarkerOption marker;

  bool chrome() const { return format == "chrome"; }
};

class FileSink : public timeline::ByteSink {
 public:
  explicit FileSink(std::string path) : path_(std::move(path)) {
    const absl::StatusOr<int> fd = store::OpenOutputFile(path_);
    if (!fd.ok()) {
      status_ = fd.status();
      return;
    }
    file_ = fdopen(*fd, "wb");
    if (file_ == nullptr) NoteError();
  }
  ~FileSink() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  void Write(std::string_view bytes) override {
    written_ += bytes.size();
    if (status_.ok() && std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) NoteError();
  }
  uint64_t written() const override { return written_; }
  absl::Status Close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0 && status_.ok()) NoteError();
    return status_;
  }

 private:
  void NoteError() { status_ = absl::UnavailableError(absl::StrCat(path_, ": ", std::strerror(errno))); }

  std::string path_;
  std::FILE* file_ = nullptr;
  uint64_t written_ = 0;
  absl::Status status_;
};

// A replayed run, and what its timeline needs besides the records.
struct TracedRun {
  model::JobModel job;
  store::Replayed replayed;
  store::RunFiles files;
  timeline::StepLog steps;
  std::vector<analysis::AlignedClock> clocks;  // by process
  std::vector<timeline::Process> processes;
  timeline::GroupRanks groups;
};

absl::Status ReplayRun(const TraceOptions& options, const std::string& directory, TracedRun& run) {
  run.job.SetStepMarker(options.marker.marker);
  absl::StatusOr<store::Replayed> replayed = store::Replay(
      directory, run.job,
      [&](const model::ProcessModel& process, const v1::Batch&) { run.steps.Watch(process); },
      [&] { run.steps = timeline::StepLog(); });
  if (!replayed.ok()) return replayed.status();
  run.replayed = *std::move(replayed);
  absl::StatusOr<store::RunFiles> files = store::ListRun(directory);
  if (!files.ok()) return files.status();
  run.files = *std::move(files);
  run.steps.Finish(run.job);
  run.clocks = analysis::AlignedClocksOf(run.job);
  run.processes = timeline::ProcessesOf(run.job);
  run.groups = timeline::GroupRanksOf(run.job);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ChosenProcesses(const TraceOptions& options, const TracedRun& run) {
  std::vector<uint32_t> chosen;
  if (options.ranks.empty()) {
    for (const timeline::Process& process : run.processes) chosen.push_back(process.index);
    return chosen;
  }
  const absl::StatusOr<std::vector<int>> ranks = timeline::ParseRanks(options.ranks);
  if (!ranks.ok()) return ranks.status();
  for (const int rank : *ranks) {
    const size_t before = chosen.size();
    for (const timeline::Process& process : run.processes) {
      if (process.rank == rank) chosen.push_back(process.index);
    }
    if (chosen.size() == before)
      return absl::NotFoundError(absl::StrCat("--ranks: no rank ", rank, " in this run"));
  }
  return chosen;
}

absl::StatusOr<timeline::Window> WindowOfFinding(const TraceOptions& options, const TracedRun& run,
                                                 const std::vector<timeline::AlignedStep>& steps) {
  analysis::ReportInput input;
  input.collector_version = recording::Version();
  const analysis::Report report = analysis::BuildReport(run.job, input);
  std::set<std::string> ids;
  for (const analysis::Finding& finding : report.findings) ids.insert(finding.id);
  if (!ids.contains(options.around)) {
    return absl::NotFoundError(absl::StrCat("--around: this run has no finding \"", options.around,
                                            "\"; it has: ", absl::StrJoin(ids, ", ")));
  }
  std::string what;
  const analysis::FindingRule& rule = analysis::RuleOf(options.around);
  absl::StatusOr<timeline::Window> window = timeline::WindowOfMoment(
      rule.moment != nullptr ? rule.moment(report) : analysis::Moment{}, steps, what);
  if (window.ok()) Print(text::Printable(absl::StrCat(options.around, ": ", what)) + "\n");
  return window;
}

absl::StatusOr<timeline::Window> ChosenWindow(const TraceOptions& options, TracedRun& run,
                                              const std::vector<uint32_t>& chosen) {
  if (options.steps.empty() && options.around.empty()) return timeline::Window{};
  std::vector<timeline::AlignedStep> steps;
  for (const uint32_t index : chosen) {
    const analysis::AlignedClock& clock = run.clocks[index];
    for (const model::StepRecord& step : run.steps.Of(run.job.FirstMember(index).number)) {
      steps.push_back({.index = step.index,
                       .start_ns = clock.Align(step.start_ns),
                       .end_ns = clock.Align(step.end_ns),
                       .warmup = step.warmup});
    }
  }
  if (!options.around.empty()) return WindowOfFinding(options, run, steps);
  const absl::StatusOr<timeline::StepSpan> span = timeline::ParseSteps(options.steps);
  if (!span.ok()) return span.status();
  absl::StatusOr<timeline::Window> window = timeline::WindowOfSteps(steps, *span);
  if (!window.ok()) return absl::NotFoundError(absl::StrCat("--steps: ", window.status().message()));
  return window;
}

// What was written, over all processes.
struct Written {
  uint64_t events = 0;
  uint64_t left_out = 0;
  uint64_t bytes = 0;
  uint64_t shortest_until_ns = UINT64_MAX;  // where a file was full first; UINT64_MAX: none was
};

// Reads a process's log and writes its events. Damage was reported when the run was replayed: what comes
// after it is not read.
void WriteProcess(TracedRun& run, uint32_t index, const timeline::Window& window, timeline::EventSink& sink,
                  Written& written) {
  timeline::ProcessTimeline events(run.processes[index], run.groups, run.clocks[index], window, sink);
  const std::string& log = run.replayed.logs[run.job.processes()[index].get()];
  for (const store::Segment& segment : run.files.segments) {
    if (segment.log != log) continue;
    const absl::StatusOr<std::unique_ptr<store::MappedFile>> file = store::MappedFile::Open(segment.path);
    if (!file.ok()) continue;
    store::RunLogReader reader(segment.name, **file);
    v1::Frame frame;
    std::string_view raw;
    while (!sink.full() && reader.Next(frame, raw)) {
      if (frame.has_batch() && !events.Add(frame.batch()).ok()) break;
    }
  }
  events.Finish(run.steps.Of(run.job.FirstMember(index).number));
  written.events += events.events();
  written.left_out += events.left_out();
  if (sink.full()) written.shortest_until_ns = std::min(written.shortest_until_ns, events.last_ns());
}

// Before anything in the timeline.
uint64_t BeginOf(TracedRun& run, const timeline::Window& window) {
  constexpr uint64_t kMarginNs = 1'000'000'000;
  uint64_t begin_ns = UINT64_MAX;
  for (const timeline::Process& process : run.processes) {
    const uint64_t first_ns = run.job.processes()[process.index]->totals().first_ns;
    if (first_ns != UINT64_MAX) begin_ns = std::min(begin_ns, run.clocks[process.index].Align(first_ns));
  }
  if (begin_ns == UINT64_MAX) return 0;
  return std::max(begin_ns, window.from_ns) - kMarginNs;
}

absl::StatusOr<Written> WritePerfetto(const TraceOptions& options, TracedRun& run,
                                      const std::vector<uint32_t>& chosen, const timeline::Window& window) {
  Written written;
  FileSink file(options.out);
  timeline::PerfettoTrace trace(file, BeginOf(run, window));
  for (size_t i = 0; i < chosen.size(); ++i) {
    // Each rank may use its share, and what the ones before it left.
    const uint64_t limit = (options.max_bytes - kReserveBytes) / chosen.size() * (i + 1);
    timeline::PerfettoProcess process(trace, run.processes[chosen[i]], limit);
    WriteProcess(run, chosen[i], window, process, written);
  }
  trace.Finish();
  written.bytes = file.written();
  if (absl::Status s = file.Close(); !s.ok()) return s;
  return written;
}

std::string FileNameOf(const timeline::Process& process, std::set<std::string>& taken) {
  std::string name =
      process.rank >= 0 ? absl::StrCat("rank-", process.rank) : absl::StrCat("pid-", process.pid);
  if (!taken.insert(name).second) absl::StrAppend(&name, "-", process.index);
  return name + ".json.gz";
}

absl::StatusOr<Written> WriteChrome(const TraceOptions& options, TracedRun& run,
                                    const std::vector<uint32_t>& chosen, const timeline::Window& window) {
  if (absl::Status s = store::MakeOutputFolder(options.out); !s.ok()) return s;
  Written written;
  std::set<std::string> taken;
  const uint64_t base_ns = BeginOf(run, window);
  for (size_t i = 0; i < chosen.size(); ++i) {
    const timeline::Process& process = run.processes[chosen[i]];
    const uint64_t share = (options.max_bytes - written.bytes) / (chosen.size() - i);
    FileSink file(absl::StrCat(options.out, "/", FileNameOf(process, taken)));
    timeline::GzipSink compressed(file);
    timeline::ChromeTrace trace(compressed, process, base_ns, share - std::min(share, kReserveBytes));
    WriteProcess(run, chosen[i], window, trace, written);
    trace.Finish();
    compressed.Finish();
    written.bytes += file.written();
    if (absl::Status s = file.Close(); !s.ok()) return s;
  }
  return written;
}

void Tell(const TraceOptions& options, TracedRun& run, const std::vector<uint32_t>& chosen,
          const Written& written) {
  const uint64_t begin_ns = run.job.processes()[chosen.front()]->totals().first_ns;
  if (written.shortest_until_ns != UINT64_MAX) {
    Fail(kTrace,
         absl::StrCat("the limit of ", analysis::Bytes(options.max_bytes),
                      " was reached: of some ranks only the first ",
                      analysis::Duration(static_cast<double>(written.shortest_until_ns - begin_ns)),
                      " are in it; choose --steps or --ranks, or a larger --max-size"),
         kDone);
  }
  if (written.left_out > 0)
    Fail(kTrace,
         absl::StrCat(analysis::Count(written.left_out), " records with impossible times were left out"),
         kDone);
  Print(absl::StrCat(text::Printable(options.out), ": ", analysis::Count(written.events), " events of ",
                     chosen.size(), chosen.size() == 1 ? " process, " : " processes, ",
                     analysis::Bytes(written.bytes),
                     options.chrome() ? "; one file per rank, for tools that read PyTorch traces\n"
                                      : "; open it at https://ui.perfetto.dev\n"));
}

int WriteTrace(const TraceOptions& options, const std::string& directory) {
  const Progress progress({directory});
  TracedRun run;
  if (absl::Status s = ReplayRun(options, directory, run); !s.ok()) return Fail(kTrace, s, kFailed);
  for (const store::Damage& damage : run.replayed.damages)
    Fail(kTrace, absl::StrCat(options.given, ": ", DamageLine(damage)), kFailed);
  if (const std::string line = RolledUpLine(run.job); !line.empty())
    SayError(absl::StrCat(kTrace, ": ", options.given, ": ", line));
  const absl::StatusOr<std::vector<uint32_t>> chosen = ChosenProcesses(options, run);
  if (!chosen.ok()) return Fail(kTrace, chosen.status(), kFailed);
  if (chosen->empty()) return Fail(kTrace, absl::StrCat(options.given, ": no process was recorded"), kFailed);
  const absl::StatusOr<timeline::Window> window = ChosenWindow(options, run, *chosen);
  if (!window.ok()) return Fail(kTrace, window.status(), kFailed);
  const absl::StatusOr<Written> written = options.chrome() ? WriteChrome(options, run, *chosen, *window)
                                                           : WritePerfetto(options, run, *chosen, *window);
  if (!written.ok()) return Fail(kTrace, written.status(), kFailed);
  Tell(options, run, *chosen, *written);
  return kDone;
}

CLI::Validator Parses(absl::Status (*parse)(const std::string& text)) {
  return CLI::Validator([parse](const std::string& text) { return std::string(parse(text).message()); }, "");
}

}  // namespace

int TraceMain(const Arguments& arguments) {
  CLI::App app("Writes a recorded run as a timeline, for Perfetto or for tools that read PyTorch traces",
               "gpuprobe trace");
  TraceOptions options;
  app.add_option("DIR", options.given, kGivenRun);
  app.add_option("-o,--out", options.out, "file to write; with --format chrome: a folder, one file per rank")
      ->required()
      ->check(NotEmpty());
  app.add_option("--format", options.format,
                 "perfetto: one trace of all ranks; chrome: JSON for PyTorch's tools [perfetto]")
      ->check(OneOf({"perfetto", "chrome"}));
  auto* steps =
      app.add_option("--steps", options.steps, "only these steps: 100:110 are 100 to 109")
          ->check(Parses([](const std::string& text) { return timeline::ParseSteps(text).status(); }));
  app.add_option("--ranks", options.ranks, "only these ranks: 0,3,8-11")
      ->check(Parses([](const std::string& text) { return timeline::ParseRanks(text).status(); }));
  std::vector<std::string> findings;
  for (const analysis::FindingRule& rule : analysis::FindingRules()) findings.emplace_back(rule.id);
  app.add_option("--around", options.around,
                 "only the steps that this finding is about (its id in the report)")
      ->check(Suggested(findings))
      ->excludes(steps);
  app.add_option("--max-size", options.max_bytes, "stop at this size, all files together [256MiB]")
      ->transform(Size(kSmallestMaxBytes, UINT64_MAX));
  HubOption hub;
  hub.AddTo(app);
  options.marker.AddTo(app);
  if (const auto code = Parse(app, arguments)) return *code;
  if (absl::Status s = hub.Resolve(options.given); !s.ok()) return Fail(kTrace, s, kFailed);
  const absl::StatusOr<GivenRun> run = GivenRun::Open(options.given);
  if (!run.ok()) return Fail(kTrace, run.status(), kFailed);
  options.marker.TakeFrom(run->directory());
  return WriteTrace(options, run->directory());
}

}  // namespace gpuprobe::cli
