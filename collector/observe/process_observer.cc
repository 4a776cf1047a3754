#include "collector/observe/process_observer.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/observe/small_file.h"
#include "collector/observe/system_call.h"

namespace gpuprobe::observe {
namespace {

// From Linux 6.5 and 6.13; the headers that we build with may be older.
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD
struct PidfdInfo {
  uint64_t mask = 0;
  uint64_t cgroup = 0;
  uint32_t ids[11] = {};
  int32_t exit_code = 0;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr unsigned long kPidfdGetInfo = _IOWR(0xFF, 11, PidfdInfo);
constexpr uint64_t kPidfdInfoExit = 1U << 3;

uint64_t Difference(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// Whether /proc belongs to our pid namespace, in which the kernel gives us the pids of others.
bool ProcIsOurs() {
  char link[32];
  const ssize_t n = readlink("/proc/self", link, sizeof(link));
  return n > 0 && std::string(link, static_cast<size_t>(n)) == std::to_string(getpid());
}

}  // namespace

std::unique_ptr<ProcessObserver> ProcessObserver::OfPeer(int socket, uint32_t own_pid) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return nullptr;
  int pidfd = -1;
  size = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &size) != 0) pidfd = -1;
  return Open(peer.pid, pidfd, own_pid);
}

std::unique_ptr<ProcessObserver> ProcessObserver::Open(pid_t pid, uint32_t own_pid) {
  return Open(pid, -1, own_pid);
}

std::unique_ptr<ProcessObserver> ProcessObserver::Open(pid_t pid, int pidfd, uint32_t own_pid) {
  if (pidfd < 0) pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  const int folder =
      ProcIsOurs() ? open(absl::StrCat("/proc/", pid).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  std::unique_ptr<ProcessObserver> observer(new ProcessObserver(pid, folder, pidfd));
  if (folder < 0) return nullptr;
  const auto status = ParseStatus(ReadSmallFile(folder, "status").value_or(""));
  if (!status.has_value() || status->pids.back() != own_pid) return nullptr;
  return observer;
}

ProcessObserver::~ProcessObserver() {
  if (folder_ >= 0) close(folder_);
  if (pidfd_ >= 0) close(pidfd_);
}

bool ProcessObserver::HasEnded() const {
  if (pidfd_ >= 0) {
    pollfd event{.fd = pidfd_, .events = POLLIN, .revents = 0};
    return poll(&event, 1, 0) == 1;
  }
  const auto stat = ParseStat(ReadSmallFile(folder_, "stat").value_or(""));
  // A main thread may end before the others.
  return !stat.has_value() || stat->state == 'X' || (stat->state == 'Z' && stat->threads <= 1);
}

void ProcessObserver::AwaitEnd(int milliseconds) {
  if (pidfd_ < 0 || wait_status_.has_value()) return;
  pollfd event{.fd = pidfd_, .events = POLLIN, .revents = 0};
  if (poll(&event, 1, milliseconds) == 1) FindStatus(ParseStat(ReadSmallFile(folder_, "stat").value_or("")));
}

void ProcessObserver::NoteStatus(int wait_status) { wait_status_ = wait_status; }

void ProcessObserver::FindStatus(const std::optional<ProcStat>& stat) {
  if (wait_status_.has_value()) return;
  // Readable while the process is a zombie, and only with the right to inspect it; otherwise the kernel shows
  // 0.
  if (stat.has_value() && stat->state == 'Z' && stat->exit_code != 0) wait_status_ = stat->exit_code;
  PidfdInfo info;
  info.mask = kPidfdInfoExit;
  if (!wait_status_.has_value() && pidfd_ >= 0 && ioctl(pidfd_, kPidfdGetInfo, &info) == 0 &&
      (info.mask & kPidfdInfoExit) != 0)
    wait_status_ = info.exit_code;
}

std::optional<v1::ProcessObservation> ProcessObserver::LookAtEnd(v1::ProcessObservation observation,
                                                                 bool last) {
  FindStatus(ParseStat(ReadSmallFile(folder_, "stat").value_or("")));
  if (!wait_status_.has_value() && !last && ++end_looks_ < kEndLooks) return std::nullopt;
  said_end_ = true;
  v1::ProcessEnd& end = *observation.mutable_end();
  end.set_known(wait_status_.has_value());
  if (wait_status_.has_value() && WIFSIGNALED(*wait_status_)) {
    end.set_signal(static_cast<uint32_t>(WTERMSIG(*wait_status_)));
  } else if (wait_status_.has_value()) {
    end.set_exit_code(static_cast<uint32_t>(WEXITSTATUS(*wait_status_)));
  }
  end.set_out_of_memory(groups_.Read().oom_kills > reading_.oom_kills && looks_ > 0);
  return observation;
}

void ProcessObserver::ChooseThreads() {
  std::vector<std::pair<uint64_t, pid_t>> busiest;
  const int fd = openat(folder_, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* tasks = fd < 0 ? nullptr : fdopendir(fd);
  if (tasks == nullptr) {
    if (fd >= 0) close(fd);
    return;
  }
  std::map<pid_t, SchedStat> known;
  while (const dirent* entry = readdir(tasks)) {
    pid_t tid = 0;
    const auto [end, error] = std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), tid);
    if (error != std::errc() || *end != 0 || busiest.size() >= kMostTasks) continue;
    const auto stat =
        ParseSchedStat(ReadSmallFile(folder_, absl::StrCat("task/", tid, "/schedstat").c_str()).value_or(""));
    if (!stat.has_value()) continue;
    known[tid] = *stat;
    busiest.emplace_back(tid == pid_ ? UINT64_MAX : stat->run_ns + stat->delay_ns, tid);
  }
  closedir(tasks);
  std::sort(busiest.rbegin(), busiest.rend());
  busiest.resize(std::min(busiest.size(), kThreads));
  std::map<pid_t, SchedStat> chosen;
  for (const auto& [use, tid] : busiest) {
    const auto before = threads_.find(tid);
    chosen[tid] = before != threads_.end() ? before->second : known[tid];
  }
  threads_ = std::move(chosen);
}

void ProcessObserver::LookAtThreads(v1::ProcessObservation& observation) {
  if (looks_ % kChooseEvery == 0) ChooseThreads();
  uint64_t delay_ns = 0;
  main_run_ns_ = UINT64_MAX;
  for (auto& [tid, before] : threads_) {
    const auto stat =
        ParseSchedStat(ReadSmallFile(folder_, absl::StrCat("task/", tid, "/schedstat").c_str()).value_or(""));
    if (!stat.has_value()) continue;
    delay_ns = std::max(delay_ns, Difference(stat->delay_ns, before.delay_ns));
    if (tid == pid_) main_run_ns_ = Difference(stat->run_ns, before.run_ns);
    before = *stat;
  }
  observation.set_run_delay_ns(delay_ns);
}

void ProcessObserver::LookAtGroups(v1::ProcessObservation& observation) {
  const bool anew = looks_ % kChooseEvery == 0;
  if (anew) {
    Cgroups groups =
        Cgroups::Open(CgroupMounts(), ParseCgroups(ReadSmallFile(folder_, "cgroup").value_or("")));
    // The counters of other groups start from other values.
    if (!(groups == groups_)) {
      groups_ = std::move(groups);
      reading_ = groups_.Read();
    }
  }
  const CgroupReading now = groups_.Read();
  observation.set_frozen(now.frozen);
  observation.set_quota_millicpus(now.quota_millicpus);
  observation.set_quota_periods(Difference(now.quota_periods, reading_.quota_periods));
  observation.set_throttled_periods(Difference(now.throttled_periods, reading_.throttled_periods));
  observation.set_memory_stall_ns(
      1000 * Difference(now.memory_stall_us.value_or(0), reading_.memory_stall_us.value_or(0)));
  reading_ = now;
}

// Only for a main thread that sleeps all the time: a short sleep means nothing.
void ProcessObserver::LookAtWait(v1::ProcessObservation& observation) const {
  constexpr uint64_t kHardlyRanNs = 1'000'000;
  const auto state = static_cast<char>(observation.state());
  if ((state != 'S' && state != 'D') || main_run_ns_ > kHardlyRanNs) return;
  const std::string channel = ReadSmallFile(folder_, "wchan").value_or("");
  if (channel != "0") observation.set_wait_channel(channel);
  const std::string call = SystemCallOf(folder_, Calls::kOutside);
  if (!call.empty()) observation.set_waits_for(call);
}

void ProcessObserver::LookAtCounters(const ProcStat& stat, uint64_t monotonic_ns,
                                     v1::ProcessObservation& observation) {
  static const auto kTickNs = static_cast<uint64_t>(1'000'000'000 / sysconf(_SC_CLK_TCK));
  observation.set_cpu_ns(Difference(stat.cpu_ticks, cpu_ticks_) * kTickNs);
  observation.set_major_faults(Difference(stat.major_faults, major_faults_));
  LookAtThreads(observation);
  LookAtGroups(observation);
  if (last_ns_ == 0) {
    observation.clear_cpu_ns();
    observation.clear_major_faults();
    observation.clear_run_delay_ns();
    observation.clear_quota_periods();
    observation.clear_throttled_periods();
    observation.clear_memory_stall_ns();
  } else {
    observation.set_interval_ns(Difference(monotonic_ns, last_ns_));
  }
  last_ns_ = monotonic_ns;
  cpu_ticks_ = stat.cpu_ticks;
  major_faults_ = stat.major_faults;
}

void ProcessObserver::Begin(uint64_t monotonic_ns) {
  v1::ProcessObservation nobody_asked;
  const auto stat = ParseStat(ReadSmallFile(folder_, "stat").value_or(""));
  // The next look chooses threads again: most of them are still to come.
  if (stat.has_value()) LookAtCounters(*stat, monotonic_ns, nobody_asked);
}

std::optional<v1::ProcessObservation> ProcessObserver::Count(uint64_t realtime_ns, uint64_t monotonic_ns) {
  const auto stat = ParseStat(ReadSmallFile(folder_, "stat").value_or(""));
  if (said_end_ || last_ns_ == 0 || !stat.has_value()) return std::nullopt;
  v1::ProcessObservation observation;
  observation.mutable_clock()->set_realtime_ns(realtime_ns);
  observation.mutable_clock()->set_monotonic_ns(monotonic_ns);
  LookAtCounters(*stat, monotonic_ns, observation);
  return observation;
}

std::optional<v1::ProcessObservation> ProcessObserver::Look(uint64_t realtime_ns, uint64_t monotonic_ns,
                                                            bool last) {
  v1::ProcessObservation observation;
  observation.mutable_clock()->set_realtime_ns(realtime_ns);
  observation.mutable_clock()->set_monotonic_ns(monotonic_ns);
  if (said_end_) return std::nullopt;
  if (HasEnded()) return LookAtEnd(std::move(observation), last);
  const auto stat = ParseStat(ReadSmallFile(folder_, "stat").value_or(""));
  const auto status = ParseStatus(ReadSmallFile(folder_, "status").value_or(""));
  if (!stat.has_value() || !status.has_value()) return std::nullopt;  // it is ending, or hidden from us
  observation.set_state(static_cast<uint8_t>(stat->state));
  if (stat->state == 'T') observation.set_stop_signal(static_cast<uint32_t>(stat->exit_code & 0x7f));
  if (stat->state == 't' && status->tracer != 0) {
    std::string name = ReadSmallFile(absl::StrCat("/proc/", status->tracer, "/comm")).value_or("");
    if (name.ends_with('\n')) name.pop_back();
    observation.set_tracer(name);
  }
  observation.set_swapped_bytes(status->swapped_bytes);
  LookAtCounters(*stat, monotonic_ns, observation);
  LookAtWait(observation);
  main_stack_.Look(observation);
  ++looks_;
  return observation;
}

}  // namespace gpuprobe::observe
