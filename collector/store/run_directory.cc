#include "collector/store/run_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "collector/store/detail.h"
#include "collector/store/run_files.h"
#include "collector/store/run_source.h"
#include "collector/store/safe_path.h"

namespace gpuprobe::store {
namespace {

namespace fs = std::filesystem;

constexpr char kDefaultParent[] = "gpuprobe-runs";

std::string Sanitize(const std::string& name) {
  constexpr size_t kMaxName = 48;
  std::string out;
  for (const char c : name.substr(0, kMaxName)) {
    const bool plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '_' || c == '.' || c == '-';
    out.push_back(plain ? c : '_');
  }
  while (!out.empty() && out.front() == '.') out.erase(out.begin());
  return out.empty() ? "run" : out;
}

bool HoldsLogs(const Directory& directory) {
  const absl::StatusOr<std::vector<std::string>> names = directory.List();
  return names.ok() && std::any_of(names->begin(), names->end(),
                                   [](const std::string& name) { return absl::EndsWith(name, kLogSuffix); });
}

// For a log whose records are in the totals already: only checks that it can be read.
void ReadOnly(RunSource& source, const model::JobModel& job, Replayed& replayed) {
  v1::Frame frame;
  std::string_view raw;
  while (source.reader->Next(frame, raw)) {
    if (!frame.has_hello()) continue;
    if (const model::ProcessModel* process = job.Find(frame.hello()); process != nullptr)
      replayed.logs[process] = source.log;
  }
  if (source.reader->damage().has_value()) replayed.damages.push_back(*source.reader->damage());
}

constexpr auto kWatchNothing = [](const model::ProcessModel&, const v1::Batch&) {};

absl::Status LoadTotals(const std::string& path, model::JobModel& job) {
  const absl::StatusOr<std::string> state = ReadTotals(path);
  return state.ok() ? job.LoadState(*state) : state.status();
}

absl::StatusOr<Replayed> ReplayWatched(const RunFiles& files, model::JobModel& job, BatchWatcher watch) {
  Replayed replayed;
  const uint32_t first = files.FirstGeneration();
  uint32_t from = 0;
  for (auto it = files.totals.rbegin(); it != files.totals.rend() && from == 0; ++it) {
    const absl::Status loaded = LoadTotals(it->second, job);
    if (loaded.ok()) {
      from = it->first;
    } else {
      replayed.damages.push_back({.file = fs::path(it->second).filename().string(),
                                  .what = std::string(loaded.message()),
                                  .totals_whole = first == 1});
    }
  }
  replayed.from_start = from == 0 && first == 1;
  std::map<uint32_t, std::vector<RunSource>> generations;
  for (const Segment& segment : files.segments) {
    absl::StatusOr<RunSource> source = OpenSource(segment);
    if (!source.ok()) return source.status();
    generations[segment.generation].push_back(*std::move(source));
  }
  for (auto& [generation, sources] : generations) {
    const size_t before = replayed.damages.size();
    if (generation < from) {
      for (RunSource& source : sources) ReadOnly(source, job, replayed);
    } else {
      std::vector<RunSource*> all;
      for (RunSource& source : sources) all.push_back(&source);
      Interleave(all, job, replayed, watch, [](size_t) { return false; });
    }
    for (size_t i = before; i < replayed.damages.size(); ++i)
      replayed.damages[i].totals_whole = generation < from;
    for (const RunSource& source : sources) {
      const uint64_t began_ns = source.reader->created_ns();
      uint64_t& first_ns = replayed.began_ns[generation];
      if (began_ns != 0 && (first_ns == 0 || began_ns < first_ns)) first_ns = began_ns;
    }
    if (generation == first && first != 1) replayed.detail_since_ns = replayed.began_ns[generation];
  }
  return replayed;
}

}  // namespace

std::string DefaultRunDirectory(const std::string& name, uint64_t now_ns) {
  const absl::Time now = absl::FromUnixNanos(static_cast<int64_t>(now_ns));
  return absl::StrCat(kDefaultParent, "/", absl::FormatTime("%Y%m%dT%H%M%SZ", now, absl::UTCTimeZone()), "-",
                      Sanitize(name));
}

std::string RunName(const v1::Identity& identity) {
  std::string name = fs::path(identity.executable()).filename();
  const bool interpreter = absl::StartsWith(name, "python");
  if (interpreter) {
    for (int i = 1; i < identity.command_line_size(); ++i) {
      const std::string& argument = identity.command_line(i);
      if (!absl::StartsWith(argument, "-")) return fs::path(argument).stem();
      if (argument == "-m" && i + 1 < identity.command_line_size()) return identity.command_line(i + 1);
    }
  }
  return name;
}

absl::StatusOr<Directory> PrepareRunDirectory(const std::string& path, bool* unfinished) {
  absl::StatusOr<Directory> directory = Directory::Make(path);
  if (!directory.ok()) return directory;
  const bool holds_logs = HoldsLogs(*directory);
  const bool may_go_on = unfinished != nullptr && !directory->Exists("report.json");
  if (unfinished != nullptr) *unfinished = holds_logs && may_go_on;
  if (holds_logs && !may_go_on) {
    return absl::AlreadyExistsError(absl::StrCat(path, " already holds a run; choose another directory"));
  }
  return directory;
}

absl::Status CheckDefaultRunDirectory() {
  std::error_code error;
  const std::string here = fs::current_path(error).string();
  for (const char* place : {kDefaultParent, "."}) {
    const absl::StatusOr<int> fd = OpenFolder(place);
    if (absl::IsNotFound(fd.status())) continue;
    if (!fd.ok()) return fd.status();
    const absl::Cleanup close_fd = [&] { close(*fd); };
    if (faccessat(*fd, ".", W_OK | X_OK, AT_EACCESS) != 0) {
      return absl::PermissionDeniedError(absl::StrCat(here, "/", kDefaultParent,
                                                      " cannot be written: ", std::strerror(errno),
                                                      "; choose a directory with --out"));
    }
    return CheckPlace(*fd, place == kDefaultParent ? absl::StrCat(here, "/", kDefaultParent) : here);
  }
  return absl::OkStatus();
}

std::string LogName(const Directory& directory, const v1::Identity& identity,
                    const std::set<std::string>& taken) {
  const auto used = [&](const std::string& name) {
    return taken.contains(name) || directory.Exists(SegmentName(name, 1));
  };
  std::string name;
  if (identity.rank() >= 0 && identity.rank_source() != v1::RANK_SOURCE_NONE) {
    name = absl::StrCat("rank-", identity.rank());
    if (used(name)) absl::StrAppend(&name, "-", identity.pid());
  } else {
    name = absl::StrCat("pid-", identity.pid());
  }
  std::string unique = name;
  for (int i = 2; used(unique); ++i) unique = absl::StrCat(name, "-", i);
  return unique;
}

absl::StatusOr<Replayed> Replay(const std::string& path, model::JobModel& job) {
  return Replay(path, job, kWatchNothing, [] {});
}

absl::StatusOr<Replayed> Replay(const std::string& path, model::JobModel& job, BatchWatcher watch,
                                absl::FunctionRef<void()> forget) {
  const absl::StatusOr<RunFiles> files = ListRun(path);
  if (!files.ok()) return files.status();
  return Replay(*files, job, watch, forget);
}

absl::StatusOr<Replayed> Replay(const RunFiles& files, model::JobModel& job) {
  return Replay(files, job, kWatchNothing, [] {});
}

absl::StatusOr<Replayed> Replay(const RunFiles& files, model::JobModel& job, BatchWatcher watch,
                                absl::FunctionRef<void()> forget) {
  absl::StatusOr<Replayed> replayed = ReplayWatched(files, job, watch);
  if (!replayed.ok()) return replayed;
  LoadDetail(files, job);
  job.Finish();
  for (int again = 0; again < model::JobModel::kReplays; ++again) {
    if (!replayed->from_start || !job.LearnedOfSteps()) break;
    job.BeginAgain();
    forget();
    replayed = ReplayWatched(files, job, watch);
    if (!replayed.ok()) break;
    LoadDetail(files, job);
    job.Finish();
  }
  return replayed;
}

absl::StatusOr<Replayed> ReplaySoFar(const std::string& path, model::JobModel& job) {
  const absl::StatusOr<RunFiles> files = ListRun(path);
  if (!files.ok()) return files.status();
  absl::StatusOr<Replayed> replayed = ReplayWatched(*files, job, kWatchNothing);
  if (replayed.ok()) LoadDetail(*files, job);
  return replayed;
}

}  // namespace gpuprobe::store
