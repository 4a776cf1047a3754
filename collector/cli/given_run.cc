#include "collector/cli/given_run.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"
#include "collector/cli/command.h"
#include "collector/cli/progress.h"
#include "collector/cli/recorded_runs.h"
#include "collector/http/fetch.h"
#include "collector/http/served_files.h"
#include "collector/store/run_files.h"
#include "collector/store/run_settings.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 100'000;
// A file whose answer stops is asked for again from where it stopped, as long as something comes.
constexpr int kTries = 3;

struct RemoteFile {
  std::string name;
  uint64_t bytes = 0;
};

struct RemoteRun {
  std::vector<RemoteFile> files;
  bool goes_on = false;
};

absl::StatusOr<RemoteRun> ListOf(const std::string& url) {
  const absl::StatusOr<std::string> text = http::Fetch(url, http::kFilesPath);
  if (!text.ok()) return text.status();
  const absl::Status garbage =
      absl::DataLossError(absl::StrCat(url, " answers with something else than a list of a run's files"));
  const nlohmann::json list = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_object() || !list.contains("files") || !list["files"].is_array()) return garbage;
  RemoteRun run{.files = {}, .goes_on = list.value("goes_on", nlohmann::json()) == true};
  for (const nlohmann::json& file : list["files"]) {
    if (!file.is_object() || !file.contains("name") || !file["name"].is_string() || !file.contains("bytes") ||
        !file["bytes"].is_number_unsigned())
      return garbage;
    run.files.push_back({.name = file["name"], .bytes = file["bytes"]});
    if (run.files.size() > kMostFiles || !http::IsServedName(run.files.back().name)) return garbage;
  }
  return run;
}

absl::Status ErrorOf(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

// Copies one file of a served run.
class FileCopy {
 public:
  FileCopy(const RemoteFile& file, int fd, Progress& progress) : file_(file), fd_(fd), progress_(progress) {}

  // As much as was listed, so that all files are of one moment, and a server cannot send more than it said.
  // Continues where an answer stopped, as long as something comes.
  absl::Status Fetch(const std::string& url) {
    for (int tries = 0;;) {
      const uint64_t before = have_;
      absl::Status status =
          http::FetchInPieces(url, absl::StrCat(http::kFilesPath, "/", file_.name, "?from=", have_),
                              [&](std::string_view piece) { return Take(piece); });
      if (!written_.ok()) return written_;
      if (have_ == file_.bytes) return absl::OkStatus();
      tries = have_ > before ? 0 : tries + 1;
      // What has become shorter is as complete as it gets.
      if (status.ok() || !absl::IsUnavailable(status) || tries == kTries) return status;
    }
  }

 private:
  bool Take(std::string_view piece) {
    piece = piece.substr(0, file_.bytes - have_);
    while (!piece.empty()) {
      const ssize_t n = write(fd_, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        written_ = ErrorOf(file_.name);
        return false;
      }
      piece.remove_prefix(static_cast<size_t>(n));
      have_ += static_cast<uint64_t>(n);
      progress_.Note(static_cast<uint64_t>(n));
    }
    return have_ < file_.bytes;
  }

  const RemoteFile& file_;
  const int fd_;
  Progress& progress_;
  uint64_t have_ = 0;
  absl::Status written_;
};

absl::Status FetchFile(const std::string& url, const RemoteFile& file, const std::string& path,
                       Progress& progress) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return ErrorOf(path);
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  return file.bytes == 0 ? absl::OkStatus() : FileCopy(file, fd, progress).Fetch(url);
}

absl::Status CheckRoom(const std::string& url, const std::string& folder, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("a copy of ", url, " needs ", analysis::Bytes(bytes), ", and ",
                   fs::path(folder).parent_path().parent_path().string(), " has room for ",
                   analysis::Bytes(space.available), ": set TMPDIR to another directory"));
}

}  // namespace

// The program's copies, in a directory that is removed at the end, however that comes, short of SIGKILL.
class GivenRun::Copies {
 public:
  // Those that there are, or new ones.
  static absl::StatusOr<std::shared_ptr<Copies>> Get() {
    static std::weak_ptr<Copies> those;
    std::shared_ptr<Copies> copies = those.lock();
    if (copies != nullptr) return copies;
    std::error_code error;
    std::string path = absl::StrCat(fs::temp_directory_path(error).string(), "/gpuprobe-copy-XXXXXX");
    if (error) return absl::UnavailableError(absl::StrCat("a directory for the copy: ", error.message()));
    if (mkdtemp(path.data()) == nullptr) return ErrorOf(path);
    copies = std::make_shared<Copies>(std::move(path));
    those = copies;
    return copies;
  }

  explicit Copies(std::string path) : path_(std::move(path)) {
    sigemptyset(&ending_);
    sigaddset(&ending_, SIGUSR2);  // the watch's own end
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      // What the program ignores does not end it.
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL)
        sigaddset(&ending_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &ending_, &before_);
    watch_ = std::thread([this] { AwaitSignal(); });
  }
  ~Copies() {
    pthread_kill(watch_.native_handle(), SIGUSR2);
    watch_.join();
    Remove();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  absl::StatusOr<std::string> NewFolder() {
    const std::string path = absl::StrCat(path_, "/", ++folders_);
    std::error_code error;
    if (!fs::create_directory(path, error))
      return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
    return path;
  }

 private:
  void AwaitSignal() const {
    int signal = 0;
    if (sigwait(&ending_, &signal) != 0 || signal == SIGUSR2) return;
    Progress::Hide();
    Remove();
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(signal);
  }
  void Remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  const std::string path_;
  int folders_ = 0;
  sigset_t ending_{};
  sigset_t before_{};
  std::thread watch_;
};

absl::StatusOr<GivenRun> GivenRun::Open(const std::string& given) {
  if (given.empty()) {
    absl::StatusOr<std::string> newest = NewestRun();
    if (!newest.ok()) return newest.status();
    SayError(absl::StrCat("the newest run: ", *newest));
    return GivenRun(*newest, *newest);
  }
  if (!http::IsUrl(given)) return GivenRun(given, given);
  const absl::StatusOr<RemoteRun> remote = ListOf(given);
  if (!remote.ok()) return remote.status();
  const std::vector<RemoteFile>& files = remote->files;
  absl::StatusOr<std::shared_ptr<Copies>> copies = Copies::Get();
  if (!copies.ok()) return copies.status();
  const absl::StatusOr<std::string> folder = (*copies)->NewFolder();
  if (!folder.ok()) return folder.status();
  uint64_t total = 0;
  for (const RemoteFile& file : files) total += std::min(file.bytes, UINT64_MAX - total);
  if (absl::Status s = CheckRoom(given, *folder, total); !s.ok()) return s;
  Progress progress("copying", given, total);
  for (const RemoteFile& file : files) {
    const std::string path = absl::StrCat(*folder, "/", file.name);
    std::error_code error;
    fs::create_directory(fs::path(path).parent_path(), error);
    if (absl::Status s = FetchFile(given, file, path, progress); !s.ok()) {
      // Detail is dropped while the run is recorded.
      if (!absl::IsNotFound(s)) return s;
      fs::remove(path, error);
    }
  }
  return GivenRun(given, *folder, *std::move(copies), remote->goes_on);
}

}  // namespace gpuprobe::cli
