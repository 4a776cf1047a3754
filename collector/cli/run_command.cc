#include "collector/cli/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/launch.h"
#include "collector/cli/signals.h"

namespace gpuprobe::cli {
namespace {

constexpr char kRunCommand[] = "run";
constexpr int kLookEveryMs = 1000;
// Looks in a row that find the collector stopped although the command is over.
constexpr int kMostStoppedLooks = 3;

// The first that the kernel ends when memory runs short: it is not what the user wants to run.
void OfferToOutOfMemoryKiller() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, "500", 3);
  close(fd);
}

int CollectHere(RunChannel channel, absl::FunctionRef<int(RunChannel channel)> collect) {
  // The terminal's keys reach the whole group, and what they mean is the command's business.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE})
    std::signal(number, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is a full disk
  OfferToOutOfMemoryKiller();
  int code = kFailed;
  try {
    code = collect(std::move(channel));
  } catch (const std::bad_alloc&) {
    code = kOutOfMemory;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpuprobe: run: %s\n", error.what());
  }
  std::fflush(nullptr);
  return code;
}

struct ProcessStat {
  char state = '?';
  pid_t parent = 0;
};

// Of a process that has gone: state '?', parent 0.
ProcessStat StatOf(pid_t pid) {
  char name[64];
  std::snprintf(name, sizeof(name), "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[512];
  const ssize_t n = read(fd, text, sizeof(text) - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char* name_end = std::strrchr(text, ')');
  ProcessStat stat;
  if (name_end == nullptr || std::sscanf(name_end, ") %c %d", &stat.state, &stat.parent) != 2) return {};
  return stat;
}

bool IsStopped(pid_t pid) { return StatOf(pid).state == 'T'; }

class RunWaiter {
 public:
  RunWaiter(pid_t collector, RunChannel channel) : channel_(std::move(channel)), collector_(collector) {}

  // Waits until the collector can take records. False: it has ended.
  bool AwaitReady() {
    RunMessage message;
    return channel_.Receive(message, /*wait=*/true) && message.kind == RunMessageKind::kReady;
  }
  // Of a collector that never was ready.
  int FailedStart() {
    while (waitpid(collector_, &collector_status_, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(collector_status_) && WEXITSTATUS(collector_status_) == kOwnFailure) return kOwnFailure;
    char why[80];
    std::fprintf(stderr, "gpuprobe: run: the collector did not start: it %s\n", CollectorEnd(why));
    return kOwnFailure;
  }
  void NoteNotStarted() {
    channel_.Send(RunMessageKind::kNotStarted);
    while (waitpid(collector_, &collector_status_, 0) < 0 && errno == EINTR) {
    }
  }

  // Until the command and then the collector have ended.
  CommandEnd Wait(pid_t command, const SignalFd& signals) {
    command_ = command;
    channel_.Send(RunMessageKind::kStarted, command);
    Reap();
    int stopped_looks = 0;
    while (!command_ended_ || !(collector_ended_ || abandoned_)) {
      pollfd fds[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                      {.fd = channel_.gone() ? -1 : channel_.fd(), .events = POLLIN, .revents = 0}};
      poll(fds, 2, command_ended_ ? kLookEveryMs : -1);
      signals.ReadAll([this](const signalfd_siginfo& info) { OnSignal(info); });
      ReadChannel();
      Reap();
      if (!command_ended_ || collector_ended_) continue;
      stopped_looks = IsStopped(collector_) ? stopped_looks + 1 : 0;
      if (stopped_looks >= kMostStoppedLooks) Abandon("is stopped");
    }
    return WIFSIGNALED(command_status_) ? CommandEnd{.exit_code = 128 + WTERMSIG(command_status_),
                                                     .end_signal = WTERMSIG(command_status_)}
                                        : CommandEnd{.exit_code = WEXITSTATUS(command_status_)};
  }

 private:
  // Also reaps processes that came to us as the first process of a container.
  void Reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (!WIFEXITED(status) && !WIFSIGNALED(status)) continue;
      if (pid == command_) {
        command_ended_ = true;
        command_status_ = status;
        channel_.Send(RunMessageKind::kEnded, status);
      } else if (pid == collector_) {
        collector_ended_ = true;
        collector_status_ = status;
        ReadChannel();
        NoteCollectorEnd();
      }
    }
  }

  void ReadChannel() {
    RunMessage message;
    while (!channel_.gone() && channel_.Receive(message, /*wait=*/false)) {
      if (message.kind == RunMessageKind::kDirectory)
        std::memcpy(directory_, message.text, sizeof(directory_));
    }
  }

  void OnSignal(const signalfd_siginfo& info) {
    if (info.ssi_signo == SIGCHLD) return;
    if (!command_ended_) {
      // A signal that the terminal sent went to the whole foreground group, the command included; so did one
      // that a process of the command's sent to its own group.
      if (info.ssi_code != SI_KERNEL && !IsOfCommand(static_cast<pid_t>(info.ssi_pid)))
        kill(command_, static_cast<int>(info.ssi_signo));
      return;
    }
    if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2) return;
    // The first one: wait for no other process of the command. The second one: not for the report either.
    if (hurried_) return Abandon("was interrupted");
    hurried_ = true;
    channel_.Send(RunMessageKind::kHurry);
  }

  // Whether the process is the command or descends from it. False for one that has ended.
  bool IsOfCommand(pid_t pid) const {
    constexpr int kMostGenerations = 64;
    for (int generation = 0; generation < kMostGenerations && pid > 1; ++generation) {
      if (pid == command_) return true;
      pid = StatOf(pid).parent;
    }
    return false;
  }

  void NoteCollectorEnd() {
    if (abandoned_) return;
    const bool well = WIFEXITED(collector_status_) && WEXITSTATUS(collector_status_) == kDone;
    // It has said itself what it could not write.
    if (command_ended_ &&
        (well || (WIFEXITED(collector_status_) && WEXITSTATUS(collector_status_) == kFailed)))
      return;
    char why[80];
    std::fprintf(stderr, "gpuprobe: run: the collector %s; %s\n", CollectorEnd(why),
                 command_ended_ ? "there is no report" : "the command goes on, and the rest is not recorded");
    SayWhatIsThere();
  }

  void Abandon(const char* why) {
    if (abandoned_ || collector_ended_) return;
    abandoned_ = true;
    kill(collector_, SIGKILL);
    std::fprintf(stderr, "gpuprobe: run: the collector %s; there is no report\n", why);
    SayWhatIsThere();
  }

  void SayWhatIsThere() const {
    if (directory_[0] == '\0') return;
    std::fprintf(stderr, "  recorded until then: gpuprobe report %s\n", directory_);
  }

  const char* CollectorEnd(char (&why)[80]) const {
    if (WIFSIGNALED(collector_status_)) {
      std::snprintf(why, sizeof(why), "was killed by signal %d (%s)", WTERMSIG(collector_status_),
                    strsignal(WTERMSIG(collector_status_)));
    } else if (WEXITSTATUS(collector_status_) == kOutOfMemory) {
      std::snprintf(why, sizeof(why), "ran out of memory");
    } else {
      std::snprintf(why, sizeof(why), "ended with status %d", WEXITSTATUS(collector_status_));
    }
    return why;
  }

  RunChannel channel_;
  const pid_t collector_;
  pid_t command_ = -1;
  bool command_ended_ = false;
  bool collector_ended_ = false;
  bool abandoned_ = false;  // the collector is not waited for any more
  bool hurried_ = false;
  int command_status_ = 0;
  int collector_status_ = 0;
  char directory_[PATH_MAX] = "";
};

int NotExecuted(const std::vector<std::string>& command, int error) {
  Fail(kRunCommand, absl::StrCat(command.front(), ": ", std::strerror(error)), kFailed);
  return error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable;
}

}  // namespace

CommandEnd RunBesideCollector(
    const std::vector<std::string>& command,
    absl::FunctionRef<std::vector<std::pair<std::string, std::string>>()> environment,
    absl::FunctionRef<int(RunChannel channel)> collect) {
  absl::StatusOr<RunChannel::Pair> ends = RunChannel::Open();
  if (!ends.ok()) return {.exit_code = Fail(kRunCommand, ends.status(), kOwnFailure)};
  // Statuses of children would be lost if whoever started us ignores them.
  const auto children = std::signal(SIGCHLD, SIG_DFL);
  const pid_t collector = fork();
  if (collector < 0) {
    const std::string why = absl::StrCat("cannot start the collector: ", std::strerror(errno));
    return {.exit_code = Fail(kRunCommand, why, kOwnFailure)};
  }
  if (collector == 0) {
    ends->waiting.Close();
    _exit(CollectHere(std::move(ends->collector), collect));
  }
  ends->collector.Close();
  RunWaiter waiter(collector, std::move(ends->waiting));
  if (!waiter.AwaitReady()) return {.exit_code = waiter.FailedStart()};
  const absl::StatusOr<SignalFd> signals =
      SignalFd::Open({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
  if (!signals.ok()) {
    waiter.NoteNotStarted();
    return {.exit_code = Fail(kRunCommand, signals.status(), kOwnFailure)};
  }
  const Launched launched = Launch(command, environment(), signals->previous_mask(), children == SIG_IGN);
  if (launched.error != 0) {
    const int code = NotExecuted(command, launched.error);
    waiter.NoteNotStarted();
    return {.exit_code = code};
  }
  // Our lines may have no reader, or no room.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return waiter.Wait(launched.pid, *signals);
}

}  // namespace gpuprobe::cli
