#include "collector/recording/node_worker.h"

#include <fcntl.h>
#include <grp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/units.h"
#include "collector/hub/secret.h"
#include "collector/ingest/server.h"
#include "collector/log/log.h"
#include "collector/recording/node_limits.h"
#include "collector/recording/signals.h"
#include "collector/recording/version.h"
#include "collector/store/run_directory.h"

namespace gpuprobe::recording::node {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kIdleWait{1000};
constexpr int kFirstFree = 3;  // after the standard streams: the channel and the home

void Limit(decltype(RLIMIT_CORE) what, uint64_t value) {
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  setrlimit(what, &limit);
}

// Closes everything but `channel` and `home`, which it moves to 3 and 4.
bool KeepOnly(int& channel, int& home) {
  const int high_channel = fcntl(channel, F_DUPFD_CLOEXEC, kFirstFree + 2);
  const int high_home = fcntl(home, F_DUPFD_CLOEXEC, kFirstFree + 2);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (high_channel < 0 || high_home < 0 || null < 0) return false;
  for (int fd = 0; fd < kFirstFree; ++fd) {
    if (dup2(null, fd) < 0) return false;
  }
  channel = kFirstFree;
  home = kFirstFree + 1;
  if (dup3(high_channel, channel, O_CLOEXEC) < 0 || dup3(high_home, home, O_CLOEXEC) < 0) return false;
  return close_range(kFirstFree + 2, ~0U, 0) == 0;
}

// Becomes the user for good: no way back to root, or to more rights than the user has.
bool Become(const User& user, const UserQuota& quota) {
  setsid();
  umask(0077);
  if (chdir("/") != 0) return false;
  Limit(RLIMIT_CORE, 0);
  // For each client a connection and a log, and a few more.
  Limit(RLIMIT_NOFILE, kClientsOfUser + kProcessesOfUser + 256);
  Limit(RLIMIT_DATA, quota.memory_bytes + quota.memory_bytes / 2);
  Limit(RLIMIT_FSIZE, std::max(quota.keep_bytes, uint64_t{256} << 20));
  std::signal(SIGXFSZ, SIG_IGN);
  const bool groups =
      user.has_name ? initgroups(user.name.c_str(), user.group) == 0 : setgroups(0, nullptr) == 0;
  if (!groups || setresgid(user.group, user.group, user.group) != 0 ||
      setresuid(user.id, user.id, user.id) != 0)
    return false;
  if (user.id != 0 && (setuid(0) == 0 || seteuid(0) == 0)) return false;
  // After the change of user, which clears the signal.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w"); file != nullptr) {
    std::fputs("500", file);  // killed before the programs that it serves
    std::fclose(file);
  }
  return true;
}

// The user's own, not those of who started the collector.
void LookForSecretsOf(const User& user) {
  for (const char* name : {"HOME", "XDG_CONFIG_HOME", hub::Secret::kVariable}) unsetenv(name);
  if (!user.home.empty()) setenv("HOME", user.home.c_str(), 1);
}

uint64_t ResidentBytes() {
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%lu %lu", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

struct Kept {
  size_t runs = 0;
  size_t files = 0;
  uint64_t bytes = 0;  // of runs that are over
};

class Worker {
 public:
  Worker(store::Directory home, Channel channel, const UserQuota& quota, const JobRecorder::Options& options)
      : home_(std::move(home)),
        channel_(std::move(channel)),
        quota_(quota),
        jobs_(
            options, [this](const v1::Hello& hello) { return FindPlace(hello); },
            [this](const std::string& text) { channel_.SendLine(text); }) {}

  absl::Status Serve();

 private:
  absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Open(const v1::Hello& hello, std::string_view raw);
  absl::StatusOr<JobRecorder::Place> FindPlace(const v1::Hello& hello);
  absl::Status TakeTurn();
  Kept LookAtKept() const;
  void HoldMemory();
  void TellProgress();

  store::Directory home_;
  Channel channel_;
  UserQuota quota_;
  JobRecorder jobs_;
  std::unique_ptr<ingest::Server> server_;
  uint64_t taken_ = 0;
  Progress told_;
  Clock::time_point next_tell_;
  Clock::time_point busy_at_ = Clock::now();
  Clock::time_point next_look_;
  double turns_ = kRunsOfUser;  // runs that may begin now
  Clock::time_point turns_at_ = Clock::now();
};

absl::StatusOr<std::unique_ptr<ingest::FrameSink>> Worker::Open(const v1::Hello& hello,
                                                                std::string_view raw) {
  if (jobs_.processes() >= kProcessesOfUser) {
    return absl::ResourceExhaustedError(absl::StrCat("your runs on this node have ", jobs_.processes(),
                                                     " processes already; end one of them"));
  }
  return jobs_.Open(hello, raw);
}

// A run may begin now, of the 64 and one more each second.
absl::Status Worker::TakeTurn() {
  const Clock::time_point now = Clock::now();
  turns_ = std::min<double>(kRunsOfUser, turns_ + std::chrono::duration<double>(now - turns_at_) / kRunEvery);
  turns_at_ = now;
  if (jobs_.runs() >= kRunsOfUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat("you have ", jobs_.runs(), " runs on this node already; end one of them"));
  }
  if (turns_ < 1) return absl::ResourceExhaustedError("your runs on this node start too fast; try again");
  turns_ -= 1;
  return absl::OkStatus();
}

Kept Worker::LookAtKept() const {
  constexpr uint64_t kBlock = 512;
  constexpr uint64_t kEntry = 4096;  // what a file or directory takes besides
  Kept kept;
  const absl::StatusOr<std::vector<std::string>> runs = home_.List();
  if (!runs.ok()) return kept;
  for (const std::string& name : *runs) {
    ++kept.runs;
    kept.bytes += kEntry;
    const int fd = openat(home_.fd(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    const store::Directory run = store::Directory::Adopt(fd, absl::StrCat(home_.path(), "/", name));
    const bool is_over = !jobs_.Records(run.path());
    const absl::StatusOr<std::vector<std::string>> files = run.List();
    for (const std::string& file : files.ok() ? *files : std::vector<std::string>()) {
      struct stat st {};
      ++kept.files;
      if (is_over && fstatat(fd, file.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
        kept.bytes += static_cast<uint64_t>(st.st_blocks) * kBlock + kEntry;
    }
    if (kept.files > kKeptFilesOfUser) break;
  }
  return kept;
}

absl::StatusOr<JobRecorder::Place> Worker::FindPlace(const v1::Hello& hello) {
  if (absl::Status s = TakeTurn(); !s.ok()) return s;
  const Kept kept = LookAtKept();
  if (kept.runs >= kKeptRunsOfUser || kept.files >= kKeptFilesOfUser) {
    return absl::ResourceExhaustedError(absl::StrCat(home_.path(), " already holds ", kept.runs,
                                                     " runs with ", kept.files,
                                                     " files; remove some of them"));
  }
  const uint64_t used = kept.bytes + jobs_.keep_bytes();
  const uint64_t left = quota_.disk_bytes - std::min(quota_.disk_bytes, used);
  if (left < kSmallestRun) {
    return absl::ResourceExhaustedError(
        absl::StrCat(home_.path(), " has reached this node's limit for one user (",
                     analysis::Bytes(quota_.disk_bytes), "); remove old runs"));
  }
  const std::string name =
      std::filesystem::path(store::DefaultRunDirectory(store::RunName(hello.identity()), NowNs())).filename();
  absl::StatusOr<store::Directory> directory = home_.MakeNewInside(name);
  if (!directory.ok()) return directory.status();
  const uint64_t keep =
      std::clamp(left / kShareOfRun, kSmallestRun, std::max(kSmallestRun, quota_.keep_bytes));
  if (absl::Status s = directory->Lock(); !s.ok()) return s;
  return JobRecorder::Place{*std::move(directory), keep, false};
}

// Over its memory limit the process reports its runs so far: if the system refused it more memory, there
// would be no report at all.
void Worker::HoldMemory() {
  if (Clock::now() < next_look_) return;
  next_look_ = Clock::now() + milliseconds(20);  // a client can send some megabytes in that time
  if (ResidentBytes() <= quota_.memory_bytes) return;
  server_->DropAll(absl::StrCat("your runs exceed this node's memory limit for one user (",
                                analysis::Bytes(quota_.memory_bytes),
                                "); they are reported up to this point"));
  jobs_.Finish();
  malloc_trim(0);
}

void Worker::TellProgress() {
  const Clock::time_point now = Clock::now();
  if (server_->clients() > 0 || jobs_.runs() > 0 || taken_ != told_.taken) busy_at_ = now;
  const Progress progress{.taken = taken_,
                          .ended = taken_ - server_->clients(),
                          .idle = now - busy_at_ >= kIdleWait ? uint64_t{1} : 0};
  const bool same = progress.ended == told_.ended && progress.idle == told_.idle;
  if (same && now < next_tell_) return;
  channel_.SendProgress(progress);
  told_ = progress;
  next_tell_ = now + milliseconds(1000);
}

absl::Status Worker::Serve() {
  absl::StatusOr<std::unique_ptr<ingest::Server>> server = ingest::Server::StartWithoutSocket(
      [this](const v1::Hello& hello, std::string_view raw) { return Open(hello, raw); },
      {.clients = kClientsOfUser,
       .hello_bytes = kHelloBytes,
       .hello_wait = kHelloWait,
       .frame_bytes = kFrameBytes,
       .unfinished_bytes = kUnfinishedBytesOfUser});
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  server_->AnswerRequests([this](const v1::CaptureRequest& request) { return jobs_.OpenCapture(request); });
  log::Redirect([this](std::string_view line) { channel_.SendLine(line); });
  bool stop = false;
  absl::StatusOr<SignalFd> signals = SignalFd::Open({SIGTERM, SIGINT, SIGHUP});
  if (!signals.ok()) return signals.status();
  absl::Status watched =
      server_->Watch(signals->fd(), [&] { signals->ReadAll([&](const signalfd_siginfo&) { stop = true; }); });
  if (!watched.ok()) return watched;
  const auto take = [&](int connection) {
    ++taken_;
    if (connection >= 0) server_->Take(connection);
  };
  watched = server_->Watch(channel_.fd(), [&] {
    if (!channel_.TakeConnections(take)) stop = true;
  });
  if (!watched.ok()) return watched;
  while (!stop) {
    server_->Poll(milliseconds(200));
    jobs_.Tick();
    HoldMemory();
    TellProgress();
  }
  for (uint64_t before = taken_ + 1; before != taken_;) {
    before = taken_;
    channel_.TakeConnections(take);
  }
  server_->Drain(milliseconds(300), milliseconds(3000));
  server_.reset();
  jobs_.Finish();
  return absl::OkStatus();
}

}  // namespace

int RunWorker(const User& user, int home, const std::string& path, Channel channel, const UserQuota& quota,
              const JobRecorder::Options& options) {
  int channel_fd = channel.Release();
  if (!KeepOnly(channel_fd, home)) return EXIT_FAILURE;
  Channel kept(channel_fd);
  if (!Become(user, quota)) {
    kept.SendLine("its process could not switch to the user; nothing is recorded");
    return EXIT_FAILURE;
  }
  LookForSecretsOf(user);
  Worker worker(store::Directory::Adopt(home, path), std::move(kept), quota, options);
  return worker.Serve().ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace gpuprobe::recording::node
