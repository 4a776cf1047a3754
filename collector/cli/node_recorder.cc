#include "collector/cli/node_recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collector/cli/command.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::cli {
namespace {

constexpr char kRecording[] = ".recording";

absl::Status SystemError(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
}

struct User {
  std::string name;  // the number, if the system knows no name
  gid_t group;
};

User UserOf(uid_t id) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16384);
  if (getpwuid_r(id, &entry, text.data(), text.size(), &found) == 0 && found != nullptr &&
      !absl::StrContains(found->pw_name, '/') && !absl::StartsWith(found->pw_name, ".")) {
    return {found->pw_name, found->pw_gid};
  }
  return {absl::StrCat(id), static_cast<gid_t>(-1)};
}

// A directory of ours, with exactly this mode.
absl::Status MakeOwn(const std::string& path, mode_t mode) {
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return SystemError(path);
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return SystemError(path);
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not a directory of the collector's user; name another one with --out"));
  }
  if (chmod(path.c_str(), mode) != 0) return SystemError(path);
  return absl::OkStatus();
}

// Everything in the directory, and then itself, becomes the user's. Nobody else could write there before.
absl::Status GiveTo(uid_t id, gid_t group, int directory) {
  DIR* listing = fdopendir(dup(directory));
  if (listing == nullptr) return SystemError("fdopendir");
  const auto close_listing = absl::MakeCleanup([&] { closedir(listing); });
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (fchownat(directory, entry->d_name, id, group, AT_SYMLINK_NOFOLLOW) != 0) return SystemError("chown");
  }
  if (fchmod(directory, 0700) != 0 || fchown(directory, id, group) != 0) return SystemError("chown");
  return absl::OkStatus();
}

// Opens DIR/<user>, which only the user can read and write; made if it is not there.
absl::StatusOr<int> OpenHome(const std::string& path, uid_t id, gid_t group) {
  if (mkdir(path.c_str(), 0700) == 0) {
    if (lchown(path.c_str(), id, group) != 0) return SystemError(path);
  } else if (errno != EEXIST) {
    return SystemError(path);
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return SystemError(path);
  struct stat st {};
  if (fstat(fd, &st) != 0 || st.st_uid != id) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, " does not belong to uid ", id));
  }
  return fd;
}

// From .recording to the user's own directory. Returns where it is now.
absl::StatusOr<std::string> HandOver(const std::string& base, const std::string& name, uid_t id) {
  const User user = UserOf(id);
  const std::string from = absl::StrCat(base, "/", kRecording, "/", name);
  const int run = open(from.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (run < 0) return SystemError(from);
  const auto close_run = absl::MakeCleanup([&] { close(run); });
  const std::string home = absl::StrCat(base, "/", user.name);
  absl::StatusOr<int> to = OpenHome(home, id, user.group);
  if (!to.ok()) return to.status();
  const auto close_home = absl::MakeCleanup([&] { close(*to); });
  if (absl::Status s = GiveTo(id, user.group, run); !s.ok()) return s;
  constexpr int kAttempts = 1000;
  std::string target = name;
  for (int i = 2; i < kAttempts; ++i) {
    if (renameat2(AT_FDCWD, from.c_str(), *to, target.c_str(), RENAME_NOREPLACE) == 0)
      return absl::StrCat(home, "/", target);
    if (errno != EEXIST) break;
    target = absl::StrCat(name, "-", i);
  }
  return SystemError(absl::StrCat(home, "/", target));
}

}  // namespace

class NodeRecorder::Sink : public ingest::FrameSink {
 public:
  Sink(Run& run, std::unique_ptr<ingest::FrameSink> recording) : run_(run), recording_(std::move(recording)) {
    ++run_.clients;
  }
  absl::Status OnBatch(const v1::Batch& batch, std::string_view raw) override {
    return recording_->OnBatch(batch, raw);
  }
  void OnBye(const v1::Bye& bye, std::string_view raw) override { recording_->OnBye(bye, raw); }
  bool AsksForUnfinished() override { return recording_->AsksForUnfinished(); }
  std::optional<uint64_t> OnRecord() override { return recording_->OnRecord(); }
  void OnClosed(bool cut_off) override {
    recording_->OnClosed(cut_off);
    --run_.clients;
    run_.last_left = Clock::now();
  }

 private:
  Run& run_;
  std::unique_ptr<ingest::FrameSink> recording_;
};

absl::StatusOr<std::unique_ptr<NodeRecorder>> NodeRecorder::Create(const std::string& directory,
                                                                   const Options& options, Say say) {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::absolute(directory, error).parent_path();
  std::filesystem::create_directories(parent, error);
  if (absl::Status s = MakeOwn(directory, 0755); !s.ok()) return s;
  if (absl::Status s = MakeOwn(absl::StrCat(directory, "/", kRecording), 0700); !s.ok()) return s;
  return std::unique_ptr<NodeRecorder>(new NodeRecorder(directory, options, std::move(say)));
}

absl::StatusOr<NodeRecorder::Run*> NodeRecorder::Join(uid_t user, const v1::Hello& hello) {
  const Key key{user, hello.identity().job()};
  const auto found = runs_.find(key);
  if (found != runs_.end()) return &found->second;
  const auto of_user =
      std::count_if(runs_.begin(), runs_.end(), [&](const auto& entry) { return entry.first.first == user; });
  if (static_cast<size_t>(of_user) >= kMaxRunsOfUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat("user ", user, " has ", of_user, " runs on this node already"));
  }
  const std::string wanted =
      std::filesystem::path(store::DefaultRunDirectory(store::RunName(hello.identity()), NowNs())).filename();
  std::string name;
  std::string path;
  for (int i = 1; path.empty() || std::filesystem::exists(path); ++i) {
    name = i == 1 ? wanted : absl::StrCat(wanted, "-", i);
    path = absl::StrCat(directory_, "/", kRecording, "/", name);
  }
  absl::StatusOr<std::unique_ptr<Recorder>> recorder = Recorder::Create(path, options_.keep.bytes);
  if (!recorder.ok()) return recorder.status();
  Run& run = runs_[key];
  run.recorder = *std::move(recorder);
  run.recorder->SetStepMarker(options_.marker);
  run.recorder->WatchForHangs(options_.ranks,
                              [this, name_of_user = UserOf(user).name](const std::string& text) {
                                say_(absl::StrCat(name_of_user, ":\n", absl::StripSuffix(text, "\n")));
                              });
  run.name = name;
  run.last_left = Clock::now();
  return &run;
}

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> NodeRecorder::Open(uid_t user, const v1::Hello& hello,
                                                                      std::string_view raw) {
  const absl::StatusOr<Run*> run = Join(user, hello);
  if (!run.ok()) return run.status();
  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> sink = (*run)->recorder->Open(hello, raw);
  if (!sink.ok()) return sink.status();
  return std::make_unique<Sink>(**run, *std::move(sink));
}

void NodeRecorder::Conclude(const Key& key, Run& run) {
  if (!run.recorder->heard_anything()) {
    run.recorder->RemoveIfEmpty();
    return;
  }
  ++concluded_;
  const std::string user = UserOf(key.first).name;
  const analysis::Report report = run.recorder->Finish({});
  if (const absl::Status& written = run.recorder->report_written(); !written.ok()) {
    say_(absl::StrCat("a run of ", user, " has no report: ", std::string(written.message())));
    return;
  }
  const absl::StatusOr<std::string> place = HandOver(directory_, run.name, key.first);
  if (!place.ok()) {
    say_(absl::StrCat("a run of ", user, " stays in ", run.recorder->directory(), ": ",
                      std::string(place.status().message())));
    return;
  }
  say_(absl::StrCat(user, ": ", report.conditions.ranks_heard,
                    report.conditions.ranks_heard == 1 ? " rank, " : " ranks, ", *place));
}

void NodeRecorder::Tick() {
  const Clock::time_point now = Clock::now();
  for (auto it = runs_.begin(); it != runs_.end();) {
    it->second.recorder->Tick();
    if (it->second.clients > 0 || now - it->second.last_left < kGoneWait) {
      ++it;
      continue;
    }
    Conclude(it->first, it->second);
    it = runs_.erase(it);
  }
}

void NodeRecorder::Finish() {
  for (auto& [key, run] : runs_) Conclude(key, run);
  runs_.clear();
}

}  // namespace gpuprobe::cli
