#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "collector/cli/doctor/gather.h"
#include "collector/cli/doctor/thresholds.h"
#include "collector/http/access.h"
#include "collector/hub/secret.h"
#include "collector/ingest/endpoint.h"
#include "collector/observe/cgroups.h"
#include "collector/observe/patience.h"
#include "collector/observe/proc_text.h"
#include "collector/observe/process_start.h"
#include "collector/observe/small_file.h"
#include "collector/recording/rendezvous.h"
#include "collector/recording/several_hosts.h"
#include "collector/store/directory.h"
#include "collector/store/run_files.h"
#include "collector/store/safe_path.h"

namespace gpuprobe::cli::doctor {
namespace {

namespace fs = std::filesystem;
using observe::ReadSmallFile;

// The number behind "NAME:" in /proc/PID/status, or in another base than ten.
std::optional<uint64_t> StatusNumber(const std::string& text, const std::string& name, int base = 10) {
  const size_t at = text.find(absl::StrCat("\n", name, ":\t"));
  if (at == std::string::npos) return std::nullopt;
  return std::strtoull(text.c_str() + at + name.size() + 3, nullptr, base);
}

int ErrorOfOpening(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

// The control device and those of GPUs.
std::vector<DeviceFile> LookAtDevices() {
  std::vector<DeviceFile> devices;
  std::error_code error;
  for (fs::directory_iterator it("/dev", error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    constexpr std::string_view kPrefix = "nvidia";
    if (!name.starts_with(kPrefix)) continue;
    const std::string rest = name.substr(kPrefix.size());
    const bool number = !rest.empty() && rest.find_first_not_of("0123456789") == std::string::npos;
    if (number || rest == "ctl")
      devices.push_back({.path = it->path().string(), .error = ErrorOfOpening(it->path().string())});
  }
  std::sort(devices.begin(), devices.end(),
            [](const DeviceFile& a, const DeviceFile& b) { return a.path < b.path; });
  return devices;
}

uint64_t LimitOf(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

// Processes and threads that this user may still start. Root's are not limited.
std::optional<uint64_t> ProcessesLeft() {
  const uint64_t limit = LimitOf(RLIMIT_NPROC);
  if (geteuid() == 0 || limit == UINT64_MAX) return std::nullopt;
  uint64_t used = 0;
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    int pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    const std::string status = ReadSmallFile(it->path().string() + "/status").value_or("");
    if (StatusNumber(status, "Uid") == getuid()) used += StatusNumber(status, "Threads").value_or(1);
  }
  return limit - std::min(limit, used);
}

uint32_t AllowedCpus() {
  constexpr size_t kMostCpus = 16384;
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(kMostCpus),
                                                             [](cpu_set_t* s) { CPU_FREE(s); });
  const size_t size = CPU_ALLOC_SIZE(kMostCpus);
  if (set == nullptr || sched_getaffinity(0, size, set.get()) != 0) return 0;
  return static_cast<uint32_t>(CPU_COUNT_S(size, set.get()));
}

// Connects, to see who listens; says nothing.
void AskSocket(uid_t user, SocketPlace* place) {
  struct stat status {};
  if (lstat(place->path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    place->state = SocketPlace::State::kNoSocket;
    return;
  }
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, place->path.data(),
              std::min(place->path.size(), sizeof(address.sun_path) - 1));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    place->state = errno == EAGAIN         ? SocketPlace::State::kBusy
                   : errno == ECONNREFUSED ? SocketPlace::State::kStale
                                           : SocketPlace::State::kForbidden;
    return;
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  place->pid = peer.pid;
  place->user = peer.uid;
  place->state =
      peer.uid == user || peer.uid == 0 ? SocketPlace::State::kAnswers : SocketPlace::State::kForeign;
}

SocketPlace LookAtSocket(const std::string& path, uid_t user) {
  SocketPlace place;
  place.path = path;
  place.too_long = path.size() > kLongestSocketPath;
  const std::string directory = fs::path(path).parent_path().string();
  struct stat status {};
  place.has_directory = lstat(directory.empty() ? "." : directory.c_str(), &status) == 0;
  if (place.has_directory && S_ISLNK(status.st_mode) && !directory.starts_with("/tmp/gpuprobe-") &&
      stat(directory.c_str(), &status) != 0)
    status = {};
  place.is_directory = place.has_directory && S_ISDIR(status.st_mode);
  place.owner = status.st_uid;
  place.mode = status.st_mode & 0777;
  const std::string writes = place.has_directory ? directory : fs::path(directory).parent_path().string();
  place.writable = access(writes.empty() ? "." : writes.c_str(), W_OK) == 0;
  if (!place.too_long) AskSocket(user, &place);
  return place;
}

// Of statfs(2).
std::string NetworkOf(int64_t type) {
  switch (static_cast<uint32_t>(type)) {
    case 0x6969:
      return "NFS";
    case 0xff534d42:
    case 0xfe534d42:
      return "SMB";
    case 0x0bd00bd0:
      return "Lustre";
    case 0x00c36400:
      return "Ceph";
    case 0x47504653:
      return "GPFS";
    case 0x19830326:
      return "BeeGFS";
    case 0x01021997:
      return "9p";
    default:
      return "";
  }
}

RecordFacts LookAtRecordsNow(const std::string& path) {
  RecordFacts records;
  records.path = path;
  fs::path existing = path;
  std::error_code error;
  while (!existing.empty() && existing != existing.root_path() &&
         !fs::exists(fs::symlink_status(existing, error)))
    existing = existing.parent_path();
  records.existing = existing.string();
  const absl::StatusOr<int> fd = store::OpenFolder(records.existing);
  if (!fd.ok()) {
    records.refused = std::string(fd.status().message());
    return records;
  }
  const auto closing = absl::MakeCleanup([fd = *fd] { close(fd); });
  if (absl::Status s = store::CheckPlace(*fd, records.existing); !s.ok()) {
    records.refused = std::string(s.message());
    return records;
  }
  if (records.existing == path && store::ListRun(path, store::Dropped::kAllow).ok()) {
    records.refused = absl::StrCat(path, " holds a run already");
    return records;
  }
  struct statvfs room {};
  struct statfs system {};
  if (fstatvfs(*fd, &room) == 0) {
    records.read_only = (room.f_flag & ST_RDONLY) != 0;
    records.free_bytes = static_cast<uint64_t>(room.f_bavail) * room.f_frsize;
    if (room.f_files > 0) records.free_files = room.f_favail;
  }
  if (fstatfs(*fd, &system) == 0) records.network = NetworkOf(system.f_type);
  records.writable = faccessat(AT_FDCWD, records.existing.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  return records;
}

// Why no TCP connection is made to one of the addresses of `host`; empty: it is.
std::string WhyNoConnection(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::StrCat("its name has no address (", gai_strerror(error), ")");
  const auto freeing = absl::MakeCleanup([found] { freeaddrinfo(found); });
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return std::strerror(errno);
  const auto closing = absl::MakeCleanup([fd] { close(fd); });
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) return "";
  if (errno != EINPROGRESS) return std::strerror(errno);
  constexpr int kWaitMs = 1000;
  pollfd poll_fd{.fd = fd, .events = POLLOUT, .revents = 0};
  if (poll(&poll_fd, 1, kWaitMs) <= 0) return "no answer within 1 s";
  int failed = 0;
  socklen_t size = sizeof(failed);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size);
  return failed == 0 ? "" : std::strerror(failed);
}

void LookAtToken(HostFacts* hosts) {
  hosts->has_munge = hub::Munge::Open().ok();
  hosts->token_file = hub::Secret::File();
  struct stat status {};
  hosts->token_exists = !hosts->token_file.empty() && stat(hosts->token_file.c_str(), &status) == 0;
  if (!hosts->token_exists) return;
  hosts->token_owner = status.st_uid;
  if (const auto token = http::ReadToken(hosts->token_file); !token.ok())
    hosts->token_problem = std::string(token.status().message());
}

}  // namespace

GpuFacts LookAtGpus() {
  GpuFacts gpus;
  gpus.driver = observe::LookAtDriver(kPatience);
  gpus.devices = LookAtDevices();
  for (const observe::GpuNow& gpu : gpus.driver.gpus) {
    for (const pid_t pid : gpu.pids) {
      const std::vector<std::string> command = observe::CommandOf(pid);
      gpus.programs[pid] = command.empty() ? "" : fs::path(command.front()).filename().string();
    }
  }
  return gpus;
}

std::optional<Filters> FiltersOf(const std::string& process) {
  const std::string status = ReadSmallFile(process + "/status").value_or("");
  const std::optional<uint64_t> mode = StatusNumber(status, "Seccomp");
  if (!mode.has_value()) return std::nullopt;
  return Filters{.mode = *mode, .count = StatusNumber(status, "Seccomp_filters").value_or(0)};
}

SandboxFacts LookAtSandbox() {
  int adopts = 0;
  return {.own = FiltersOf("/proc/self"),
          .first = FiltersOf("/proc/1"),
          .is_first = getpid() == 1,
          .is_subreaper = prctl(PR_GET_CHILD_SUBREAPER, &adopts, 0, 0, 0) == 0 && adopts != 0};
}

LimitFacts LookAtLimits() {
  LimitFacts limits;
  if (const uint64_t bytes = std::min(LimitOf(RLIMIT_AS), LimitOf(RLIMIT_DATA)); bytes != UINT64_MAX)
    limits.memory_bytes = bytes;
  const uint64_t descriptors = LimitOf(RLIMIT_NOFILE);
  limits.descriptors = descriptors == UINT64_MAX ? 0 : descriptors;
  limits.processes_left = ProcessesLeft();
  limits.cpus = AllowedCpus();
  const observe::Cgroups groups = observe::Cgroups::Open(
      observe::CgroupMounts(), observe::ParseCgroups(ReadSmallFile("/proc/self/cgroup").value_or("")));
  limits.quota_millicpus = groups.Read().quota_millicpus;
  limits.memory = groups.ReadMemoryLimit();
  return limits;
}

std::vector<SocketPlace> LookAtSockets(const Variables& variables, uid_t user) {
  std::vector<SocketPlace> places;
  if (const auto given = variables.find("GPUPROBE_SOCKET");
      given != variables.end() && !given->second.empty()) {
    places.push_back(LookAtSocket(given->second, user));
    places.back().configured = true;
    return places;
  }
  // As the probe looks for them (injector/send/connection.h).
  std::vector<std::string> own;
  if (const auto runtime = variables.find("XDG_RUNTIME_DIR");
      runtime != variables.end() && runtime->second.starts_with('/'))
    own.push_back(runtime->second + "/gpuprobe/collector.sock");
  own.push_back(absl::StrCat("/tmp/gpuprobe-", user, "/collector.sock"));
  for (const std::string& path : own) {
    places.push_back(LookAtSocket(path, user));
    places.back().is_ours_by_name = true;
  }
  places.push_back(LookAtSocket(ingest::kNodeSocketPath, user));
  places.back().node_wide = true;
  return places;
}

RecordFacts LookAtRecords(const std::string& path) {
  std::error_code error;
  const fs::path given = path.empty() ? fs::path("gpuprobe-runs") : fs::path(path);
  std::string whole = fs::absolute(given, error).lexically_normal().string();
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  if (error) whole = given.string();
  std::optional<RecordFacts> records =
      observe::Within(kPatience, [whole] { return LookAtRecordsNow(whole); });
  if (records.has_value()) return *std::move(records);
  RecordFacts silent;
  silent.path = whole;
  silent.silent = true;
  return silent;
}

HostFacts LookAtHosts(const std::vector<std::string>& command, const Variables& variables) {
  const auto variable = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  HostFacts hosts;
  hosts.spans_hosts = recording::SpansHosts(command, variable);
  const char* hub = variable(recording::kHubVariable);
  hosts.wants_hub = hub != nullptr && *hub != '\0' && std::string_view(hub) != "off";
  if (!hosts.spans_hosts && !hosts.wants_hub) return hosts;
  const char* token = variable(hub::Secret::kVariable);
  hosts.has_variable = token != nullptr && *token != '\0';
  LookAtToken(&hosts);
  const auto meeting = recording::FindMeeting(command, variable, hosts.spans_hosts);
  // Without the variable the hub is the job's own, which does not run yet.
  if (!hosts.wants_hub || !meeting.ok() || !meeting->has_value()) return hosts;
  const std::string host = (*meeting)->host;
  const uint16_t port = (*meeting)->first_port;
  hosts.hub = absl::StrCat(host, ":", port);
  hosts.no_hub = observe::Within(kPatience, [host, port] {
                   return WhyNoConnection(host, port);
                 }).value_or("no answer within 2 s");
  return hosts;
}

ClockFacts LookAtClock() {
  timex clock{};
  const int state = adjtimex(&clock);
  return {.synchronised = state >= 0 && state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0};
}

StackFacts LookAtStacks() {
  constexpr uint64_t kPtrace = uint64_t{1} << 19;  // CAP_SYS_PTRACE
  StackFacts stacks;
  int scope = 0;
  const std::string text = ReadSmallFile("/proc/sys/kernel/yama/ptrace_scope").value_or("");
  if (absl::SimpleAtoi(text, &scope)) stacks.ptrace_scope = scope;
  const std::string status = ReadSmallFile("/proc/self/status").value_or("");
  stacks.capable = (StatusNumber(status, "CapEff", 16).value_or(0) & kPtrace) != 0;
  return stacks;
}

}  // namespace gpuprobe::cli::doctor
