#include "collector/cli/rank_meeting.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/ingest/endpoint.h"

namespace gpuprobe::cli {
namespace {

// A rank that looks for the others, and a first rank that answers, take milliseconds.
constexpr int kPatienceS = 10;
constexpr int kMostWaitingRanks = 4096;
constexpr char kRanksSocket[] = "/ranks.sock";

absl::Status MeetingError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// The same in all processes of a job: FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

bool IsOurs(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

sockaddr_un AddressIn(const std::string& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder + kRanksSocket;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

// The folder in which jobs meet, held open.
struct MeetingFolder {
  std::string path;
  int fd = -1;
};

absl::StatusOr<MeetingFolder> OpenMeetingFolder() {
  std::vector<std::string> places;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // Slurm passes on the variable's value from the submitting host.
  if (runtime != nullptr && stat(runtime, &status) == 0 && status.st_uid == geteuid())
    places.push_back(absl::StrCat(runtime, "/gpuprobe"));
  places.push_back(absl::StrCat("/tmp/gpuprobe-", getuid()));
  for (const std::string& place : places) {
    const absl::StatusOr<int> fd = ingest::OpenSocketDirectory(place);
    // Room for job-<16>-<6>/collector.sock.lock.
    constexpr size_t kLongestInside = 48;
    if (fd.ok() && place.size() + kLongestInside < sizeof(sockaddr_un::sun_path))
      return MeetingFolder{.path = place, .fd = *fd};
    if (fd.ok()) close(*fd);
  }
  return absl::UnavailableError(absl::StrCat(places.back(), " is not this user's alone"));
}

bool Lock(int fd, int seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void RemoveFolder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Whether the folder's lock is free.
bool IsLeftBehind(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const bool left = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return left;
}

std::vector<std::string> JobFolders(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with("job-")) found.push_back(it->path().string());
  }
  return found;
}

// Null if the first rank of this folder is not of our job, does not record any more, or refuses us.
std::optional<JoinedCollector> Join(const std::string& folder, const LaunchedRank& self) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  RunChannel channel(fd);
  const timeval patience{.tv_sec = kPatienceS, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const sockaddr_un address = AddressIn(folder);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || !IsOurs(fd))
    return std::nullopt;
  channel.Send(RunMessageKind::kJoin, self.rank, self.job);
  RunMessage answer;
  if (!channel.Receive(answer, /*wait=*/true) || answer.kind != RunMessageKind::kReady) return std::nullopt;
  return JoinedCollector{.channel = std::move(channel), .pid = answer.value, .socket = answer.text};
}

absl::StatusOr<RankListener> BecomeFirst(std::string folder, const LaunchedRank& self) {
  if (mkdtemp(folder.data()) == nullptr) return MeetingError(folder);
  auto remove = absl::MakeCleanup([&] { RemoveFolder(folder); });
  const int lock = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = AddressIn(folder);
  if (lock < 0 || fd < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, kMostWaitingRanks) != 0) {
    const absl::Status why = MeetingError(folder);
    if (fd >= 0) close(fd);
    if (lock >= 0) close(lock);
    return why;
  }
  std::move(remove).Cancel();
  return RankListener(self, std::move(folder), lock, fd);
}

}  // namespace

RankListener::RankListener(RankListener&& other) noexcept
    : self_(std::move(other.self_)),
      folder_(std::move(other.folder_)),
      folder_lock_(std::exchange(other.folder_lock_, -1)),
      fd_(std::exchange(other.fd_, -1)),
      here_(std::move(other.here_)) {}

RankListener::~RankListener() {
  CloseCopy();
  if (folder_lock_ >= 0) close(folder_lock_);
}

std::optional<RunChannel> RankListener::Accept() const {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return std::nullopt;
  RunChannel channel(fd);
  if (!IsOurs(fd)) return std::nullopt;
  return channel;
}

bool RankListener::Admit(const RunMessage& join) {
  return join.kind == RunMessageKind::kJoin && join.text == self_.job && here_.insert(join.value).second;
}

void RankListener::End() {
  if (fd_ < 0) return;
  // In this order: who finds the name finds us.
  unlink((folder_ + kRanksSocket).c_str());
  CloseCopy();
}

void RankListener::CloseCopy() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::StatusOr<RankMeeting> MeetRanks(const LaunchedRank& self) {
  const absl::StatusOr<MeetingFolder> place = OpenMeetingFolder();
  if (!place.ok()) return place.status();
  const auto unlock = absl::MakeCleanup([&] { close(place->fd); });
  if (!Lock(place->fd, kPatienceS)) return MeetingError(place->path);
  const std::string ours = absl::StrFormat("%s/job-%016x-", place->path, HashOf(self.job));
  RankMeeting meeting;
  for (const std::string& folder : JobFolders(place->path)) {
    if (IsLeftBehind(folder)) {
      RemoveFolder(folder);
    } else if (folder.starts_with(ours)) {
      std::optional<JoinedCollector> joined = Join(folder, self);
      if (!joined.has_value()) continue;
      meeting.joined.emplace(*std::move(joined));
      return meeting;
    }
  }
  absl::StatusOr<RankListener> first = BecomeFirst(ours + "XXXXXX", self);
  if (!first.ok()) return first.status();
  meeting.first.emplace(*std::move(first));
  return meeting;
}

}  // namespace gpuprobe::cli
