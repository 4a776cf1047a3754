#include "collector/recording/node_collector.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "collector/ingest/session.h"
#include "collector/recording/node_limits.h"
#include "collector/recording/version.h"
#include "collector/store/safe_path.h"
#include "collector/text/characters.h"

namespace gpuprobe::recording::node {
namespace {

using std::chrono::milliseconds;

constexpr int kAcceptAtOnce = 256;
constexpr size_t kMessagesAtOnce = 64;
constexpr milliseconds kPause{200};
// Lines of one user's process, after the first kLinesAtOnce.
constexpr double kLinesPerSecond = 2;
constexpr size_t kRefusedUsers = 256;

absl::Status SystemError(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
}

User UserOf(uid_t id, gid_t group) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16384);
  if (getpwuid_r(id, &entry, text.data(), text.size(), &found) == 0 && found != nullptr &&
      !absl::StrContains(found->pw_name, '/') && !absl::StartsWith(found->pw_name, ".") &&
      *found->pw_name != '\0') {
    return {
        .id = id, .group = found->pw_gid, .name = found->pw_name, .has_name = true, .home = found->pw_dir};
  }
  return {.id = id, .group = group, .name = absl::StrCat(id), .has_name = false, .home = ""};
}

// A directory that only root can write, so that no user can place files under another user's name.
absl::StatusOr<int> OpenBase(const std::string& path) {
  const auto make = [](int parent, const std::string& name, const std::string& shown) {
    return mkdirat(parent, name.c_str(), 0755) == 0 || errno == EEXIST ? absl::OkStatus()
                                                                       : SystemError(shown);
  };
  const absl::StatusOr<store::PathPlace> place = store::FindPlace(path, store::LastLink::kKeep, make);
  if (!place.ok()) return place.status();
  if (mkdirat(place->parent, place->name.c_str(), 0755) != 0 && errno != EEXIST) return SystemError(path);
  const int fd = openat(place->parent, place->name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return SystemError(path);
  struct stat st {};
  if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && fchmod(fd, 0755) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a directory owned by the collector's user; choose another one with --out"));
}

absl::Status Add(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0) return absl::OkStatus();
  return SystemError("epoll_ctl");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collector>> Collector::Start(const Options& options, Say say) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  absl::StatusOr<int> directory = OpenBase(options.directory);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<ingest::Endpoint> endpoint = ingest::Endpoint::Open(options.socket, ingest::Audience::kNode);
  absl::StatusOr<SignalFd> signals = SignalFd::Open({SIGTERM, SIGINT, SIGHUP, SIGCHLD});
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (!endpoint.ok() || !signals.ok() || epoll_fd < 0) {
    close(*directory);
    if (epoll_fd >= 0) close(epoll_fd);
    if (!endpoint.ok()) return endpoint.status();
    return signals.ok() ? SystemError("epoll_create1") : signals.status();
  }
  const int listen_fd = endpoint->listen_fd();
  const int signal_fd = signals->fd();
  std::unique_ptr<Collector> collector(new Collector(options, std::move(say), *std::move(endpoint),
                                                     *std::move(signals), epoll_fd, *directory));
  for (const int fd : {listen_fd, signal_fd}) {
    if (absl::Status s = Add(epoll_fd, fd); !s.ok()) return s;
  }
  return collector;
}

Collector::Collector(Options options, Say say, ingest::Endpoint endpoint, SignalFd signals, int epoll_fd,
                     int directory_fd)
    : options_(std::move(options)),
      say_(std::move(say)),
      endpoint_(std::move(endpoint)),
      signals_(std::move(signals)),
      epoll_fd_(epoll_fd),
      directory_fd_(directory_fd) {}

Collector::~Collector() {
  close(epoll_fd_);
  close(directory_fd_);
}

void Collector::Serve() {
  while (!stop_) Poll(milliseconds(1000));
  End();
}

void Collector::Poll(milliseconds timeout) {
  if (paused_ && Clock::now() >= resume_at_) paused_ = !Add(epoll_fd_, endpoint_.listen_fd()).ok();
  epoll_event events[64];
  const int n = epoll_wait(epoll_fd_, events, 64, static_cast<int>((paused_ ? kPause : timeout).count()));
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (fd == endpoint_.listen_fd()) {
      Accept();
    } else if (fd == signals_.fd()) {
      signals_.ReadAll([&](const signalfd_siginfo& info) {
        if (info.ssi_signo != SIGCHLD) stop_ = true;
      });
      Reap();
    } else {
      const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                       [&](const Worker& w) { return w.channel.fd() == fd; });
      if (worker != workers_.end()) Listen(*worker);
    }
  }
}

void Collector::Accept() {
  for (int i = 0; i < kAcceptAtOnce; ++i) {
    const int fd = accept4(endpoint_.listen_fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) Pause();
      return;
    }
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) Pass(fd, peer.uid, peer.gid);
    close(fd);
  }
}

// Without descriptors no client can be accepted, and the listener would stay readable all the time.
void Collector::Pause() {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, endpoint_.listen_fd(), nullptr);
  paused_ = true;
  resume_at_ = Clock::now() + kPause;
}

void Collector::Pass(int connection, uid_t user, gid_t group) {
  served_anybody_ = true;
  Worker* worker = FindWorker(user);
  if (worker == nullptr) {
    const absl::StatusOr<Worker*> started = StartWorker(user, group);
    if (!started.ok()) return Refuse(connection, user, std::string(started.status().message()));
    worker = *started;
  }
  if (worker->passed - worker->progress.ended >= kClientsOfUser) Listen(*worker);
  if (worker->passed - std::min(worker->passed, worker->progress.ended) >= kClientsOfUser) {
    return Refuse(connection, user,
                  absl::StrCat("you have ", kClientsOfUser, " connections to this node's collector already"));
  }
  if (!worker->channel.PassConnection(connection))
    return Refuse(connection, user, "this node's collector is busy with your other programs");
  ++worker->passed;
}

void Collector::Refuse(int connection, uid_t user, const std::string& why) {
  std::string reply;
  ingest::AppendRefusal(why, reply);
  (void)send(connection, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (refusals_.size() >= kRefusedUsers && !refusals_.contains(user)) {
    refusals_.erase(std::min_element(refusals_.begin(), refusals_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  Refusals& refusals = refusals_[user];
  refusals.last = Clock::now();
  std::string text = absl::StrCat("a program of uid ", user, " was refused: ", why);
  if (refusals.warnings.Pass(text)) say_(text);
}

Collector::Worker* Collector::FindWorker(uid_t user) {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.user.id == user && !worker.leaving;
  });
  return found == workers_.end() ? nullptr : &*found;
}

// DIR/<user>, made if it is not there; it belongs to the user.
absl::StatusOr<int> Collector::OpenHome(const User& user) const {
  const std::string path = absl::StrCat(options_.directory, "/", user.name);
  if (mkdirat(directory_fd_, user.name.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(path);
  const int fd = openat(directory_fd_, user.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return SystemError(path);
  struct stat st {};
  const bool known = fstat(fd, &st) == 0;
  if (known && st.st_uid == user.id) return fd;
  // Only root makes entries here: we have just made this one, or a collector died right after it did.
  if (known && st.st_uid == geteuid() && fchown(fd, user.id, user.group) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(absl::StrCat(path, " does not belong to uid ", user.id));
}

absl::StatusOr<Collector::Worker*> Collector::StartWorker(uid_t user, gid_t group) {
  if (const auto died = died_.find(user); died != died_.end()) {
    if (Clock::now() - died->second < kRestartWait)
      return absl::UnavailableError("your collector process on this node just ended; try again in a second");
    died_.erase(died);
  }
  if (workers_.size() >= kUsers)
    return absl::ResourceExhaustedError(
        absl::StrCat("this node's collector serves ", kUsers, " users already"));
  User who = UserOf(user, group);
  const absl::StatusOr<int> home = OpenHome(who);
  if (!home.ok()) return home.status();
  const absl::Cleanup close_home = [&] { close(*home); };
  absl::StatusOr<std::pair<Channel, Channel>> ends = Channel::MakePair();
  if (!ends.ok()) return ends.status();
  const std::string path = absl::StrCat(options_.directory, "/", who.name);
  const pid_t pid = fork();
  if (pid < 0) return SystemError("fork");
  if (pid == 0)
    _exit(RunWorker(who, *home, path, std::move(ends->second), options_.quota, options_.recording));
  Worker& worker = workers_.emplace_back(std::move(who), pid, std::move(ends->first));
  if (absl::Status s = Add(epoll_fd_, worker.channel.fd()); !s.ok()) return s;
  return &worker;
}

void Collector::Listen(Worker& worker) {
  const bool there = worker.channel.Receive(
      kMessagesAtOnce, [&](const Progress& progress) { worker.progress = progress; },
      [&](std::string_view line) { Print(worker, line); });
  if (!there) epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, worker.channel.fd(), nullptr);  // it is reaped soon
  const bool has_all = worker.progress.taken == worker.passed;
  if (worker.progress.idle != 0 && has_all && !worker.leaving) SendAway(worker);
}

void Collector::SendAway(Worker& worker) {
  worker.leaving = true;
  worker.channel.EndPassing();
}

void Collector::Print(Worker& worker, std::string_view line) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - worker.lines_at).count();
  worker.lines_at = now;
  worker.lines_left = std::min(Worker::kLinesAtOnce, worker.lines_left + seconds * kLinesPerSecond);
  if (worker.lines_left < 1) {
    ++worker.lines_left_out;
    return;
  }
  worker.lines_left -= 1;
  if (line.ends_with('\n')) line.remove_suffix(1);
  const std::string text = text::PrintableLines(line);
  std::string said = absl::StrCat(worker.user.name, absl::StrContains(text, '\n') ? ":\n" : ": ", text);
  if (worker.lines_left_out > 0) absl::StrAppend(&said, " (", worker.lines_left_out, " more lines omitted)");
  worker.lines_left_out = 0;
  say_(said);
}

void Collector::Reap() {
  for (auto it = workers_.begin(); it != workers_.end();) {
    int status = 0;
    if (waitpid(it->pid, &status, WNOHANG) != it->pid) {
      ++it;
      continue;
    }
    Listen(*it);
    const bool well = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
    if (!well) {
      died_[it->user.id] = Clock::now();
      if (died_.size() > kUsers) died_.erase(died_.begin());
      const int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
      say_(absl::StrCat("the collector process for ", it->user.name, " ended with ",
                        WIFSIGNALED(status) ? "signal " : "status ", number, "; its data is in ",
                        options_.directory, "/", it->user.name));
    }
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, it->channel.fd(), nullptr);
    it = workers_.erase(it);
  }
}

void Collector::End() {
  Accept();
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, endpoint_.listen_fd(), nullptr);
  for (Worker& worker : workers_) SendAway(worker);
  const Clock::time_point limit = Clock::now() + kEndWait;
  paused_ = false;
  while (!workers_.empty() && Clock::now() < limit) Poll(milliseconds(100));
  for (const Worker& worker : workers_) kill(worker.pid, SIGKILL);
  for (const Worker& worker : workers_) waitpid(worker.pid, nullptr, 0);
}

}  // namespace gpuprobe::recording::node
