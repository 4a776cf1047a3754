#include "collector/store/shared_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace gpuprobe::store {
namespace {

constexpr char kSharedMemory[] = "/dev/shm";
constexpr char kNoRing[] = "it is no flight recorder's ring";

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

uint64_t ClockNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t StampNow() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc() | flight::kTicks;
#else
  return ClockNs(CLOCK_REALTIME);
#endif
}

template <size_t kBytes>
void FillText(char (&to)[kBytes], const std::string& text) {
  std::memcpy(to, text.data(), std::min(text.size(), kBytes - 1));
}

struct Carrier {
  int fd = -1;
  std::string path;
};

// All pages are there from here on, so that no store to them can fail.
absl::Status Provide(int fd) {
  const int error = posix_fallocate(fd, 0, flight::kRingBytes);
  return error == 0 ? absl::OkStatus() : absl::UnavailableError(std::strerror(error));
}

// This user's folder in /dev/shm; nobody else can truncate what is in it.
absl::StatusOr<std::string> PrivateFolder() {
  const std::string path = absl::StrCat(kSharedMemory, "/gpuprobe-", geteuid());
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return SystemError(path);
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return SystemError(path);
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    return absl::PermissionDeniedError(absl::StrCat(path, " is not this user's alone"));
  return path;
}

absl::StatusOr<Carrier> MakeFile(const std::string& log, uint32_t pid) {
  absl::StatusOr<std::string> folder = PrivateFolder();
  if (!folder.ok()) return folder.status();
  const std::string path =
      absl::StrCat(*folder, "/", log, "-", pid, "-", absl::Hex(ClockNs(CLOCK_REALTIME)), kRingSuffix);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError(path);
  if (absl::Status s = Provide(fd); !s.ok()) {
    close(fd);
    unlink(path.c_str());
    return s;
  }
  return Carrier{fd, path};
}

absl::StatusOr<Carrier> MakeUnnamed() {
  const int fd = memfd_create("gpuprobe-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return SystemError("memfd_create");
  absl::Status status = Provide(fd);
  if (status.ok() && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    status = SystemError("F_ADD_SEALS");
  if (status.ok()) return Carrier{fd, ""};
  close(fd);
  return status;
}

void FillOwner(flight::Owner& owner, const Directory& run, const std::string& name,
               const v1::Identity& identity, const std::string& attempt) {
  owner.magic = flight::kMagic;
  owner.version = flight::kVersion;
  owner.ring_bytes = flight::kRingBytes;
  owner.rank = identity.rank_source() == v1::RANK_SOURCE_NONE ? -1 : identity.rank();
  owner.local_rank = identity.local_rank();
  owner.world_size = identity.world_size();
  owner.pid = identity.pid();
  owner.process_start_ns = identity.process_start_ns();
  owner.stamp = StampNow();
  owner.realtime_ns = ClockNs(CLOCK_REALTIME);
  owner.monotonic_ns = ClockNs(CLOCK_MONOTONIC);
  FillText(owner.job, identity.job());
  FillText(owner.attempt, attempt);
  FillText(owner.host, identity.host());
  FillText(owner.program, identity.executable());
  std::error_code error;
  FillText(owner.run_directory, std::filesystem::absolute(run.path(), error).string());
  FillText(owner.name, name);
  flight::Seal(owner);
}

// What an earlier collector of this run left under the name.
void RemoveOld(const Directory& run, const std::string& name) {
  char target[PATH_MAX];
  const ssize_t size = readlinkat(run.fd(), name.c_str(), target, sizeof(target));
  const std::string path(target, size > 0 ? static_cast<size_t>(size) : 0);
  if (absl::StartsWith(path, absl::StrCat(kSharedMemory, "/gpuprobe-", geteuid(), "/")) &&
      !absl::StrContains(path, ".."))
    unlink(path.c_str());
  run.Remove(name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedRing>> SharedRing::Make(const Directory& run, const std::string& log,
                                                             const v1::Identity& identity,
                                                             const std::string& attempt) {
  rlimit limit{};
  // Beyond it, posix_fallocate would not fail but end us (SIGXFSZ).
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < flight::kRingBytes)
    return absl::ResourceExhaustedError("the limit of files' sizes (ulimit -f) is below 64 KiB");
  absl::StatusOr<Carrier> carrier = MakeFile(log, identity.pid());
  if (!carrier.ok()) carrier = MakeUnnamed();
  if (!carrier.ok()) return carrier.status();
  void* const memory = mmap(nullptr, flight::kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, carrier->fd, 0);
  if (memory == MAP_FAILED) {
    close(carrier->fd);
    if (!carrier->path.empty()) unlink(carrier->path.c_str());
    return absl::ResourceExhaustedError("no address space");
  }
  std::unique_ptr<SharedRing> ring(
      new SharedRing(log, carrier->path, carrier->fd, static_cast<flight::Ring*>(memory)));
  FillOwner(ring->ring_->owner, run, ring->name_, identity, attempt);
  RemoveOld(run, ring->name_);
  // Without the link the ring serves as long as we live.
  if (!ring->path_.empty()) (void)symlinkat(ring->path_.c_str(), run.fd(), ring->name_.c_str());
  return ring;
}

SharedRing::~SharedRing() {
  if (fd_ >= 0) close(fd_);
  munmap(ring_, flight::kRingBytes);
}

int SharedRing::TakeDescriptor() { return std::exchange(fd_, -1); }

absl::Status SharedRing::Keep(const Directory& run, flight::Ending ending, uint64_t now_ns) {
  ring_->end = {.realtime_ns = now_ns, .ending = static_cast<uint32_t>(ending), .reserved = 0, .check = 0};
  flight::Seal(ring_->end);
  absl::Status written = run.WriteFile(name_, {reinterpret_cast<const char*>(ring_), flight::kRingBytes});
  // Where the disk is full, it stays where it is.
  if (written.ok() && !path_.empty()) unlink(path_.c_str());
  return written;
}

void SharedRing::Drop(const Directory& run) {
  run.Remove(name_);
  if (!path_.empty()) unlink(path_.c_str());
}

void RemoveForsakenRings() {
  namespace fs = std::filesystem;
  constexpr time_t kADay = 86'400;
  const absl::StatusOr<std::string> folder = PrivateFolder();
  if (!folder.ok()) return;
  std::error_code error;
  for (fs::directory_iterator it(*folder, error), end; !error && it != end; it.increment(error)) {
    struct stat status {};
    const std::string path = it->path().string();
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_ctime > time(nullptr) - kADay)
      continue;
    const absl::StatusOr<std::unique_ptr<flight::Ring>> ring = ReadRing(path);
    if (!ring.ok() || flight::ConditionOf((*ring)->owner) != flight::Condition::kWhole) continue;
    const flight::Owner& owner = (*ring)->owner;
    std::error_code no_link;
    const fs::path named = fs::read_symlink(fs::path(owner.run_directory) / owner.name, no_link);
    const bool runs = kill(static_cast<pid_t>(owner.pid), 0) == 0 || errno == EPERM;
    if (!runs && (no_link || named != it->path())) unlink(path.c_str());
  }
}

absl::StatusOr<std::unique_ptr<flight::Ring>> ReadRing(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    const int why = errno;
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (why != ENOENT || error) return absl::NotFoundError(std::strerror(why));
    return absl::NotFoundError(
        absl::StrCat("it was kept in ", target.string(),
                     ", which is gone: the host was restarted, or this is another host"));
  }
  struct stat status {};
  auto ring = std::make_unique<flight::Ring>();
  const bool is_ring =
      fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == off_t{flight::kRingBytes};
  const ssize_t got = is_ring ? pread(fd, ring.get(), sizeof(*ring), 0) : 0;
  close(fd);
  if (got != ssize_t{sizeof(*ring)}) return absl::DataLossError(kNoRing);
  const flight::Condition owner = flight::ConditionOf(ring->owner);
  if (owner == flight::Condition::kEmpty) return absl::DataLossError(kNoRing);
  if (owner == flight::Condition::kWhole &&
      (ring->owner.magic != flight::kMagic || ring->owner.version != flight::kVersion))
    return absl::DataLossError("another release of gpuprobe wrote it; read it with that one");
  return ring;
}

std::vector<std::string> RingsIn(const std::string& directory) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  const auto look = [&](const fs::path& folder, const std::string& prefix) {
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (absl::EndsWith(name, kRingSuffix)) names.push_back(prefix + name);
    }
  };
  look(directory, "");
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code is_folder;
    if (it->is_directory(is_folder)) look(it->path(), it->path().filename().string() + "/");
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace gpuprobe::store
