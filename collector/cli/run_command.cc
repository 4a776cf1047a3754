#include "collector/cli/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include "absl/strings/str_cat.h"
#include "collector/cli/command.h"
#include "collector/cli/group_witness.h"
#include "collector/cli/launch.h"
#include "collector/cli/process_stat.h"
#include "collector/recording/signals.h"

namespace gpuprobe::cli {
namespace {

constexpr char kRunCommand[] = "run";
constexpr int kLookEveryMs = 1000;
// Looks in a row that find the collector stopped although the command is over.
constexpr int kMostStoppedLooks = 3;

// Makes this process the kernel's first choice when memory runs out: the user cares about the command, not
// about it.
void OfferToOutOfMemoryKiller() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, "500", 3);
  close(fd);
}

bool StopsByDefault(int number) { return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU; }

int CollectHere(RunChannel channel, absl::FunctionRef<int(RunChannel channel)> collect) {
  // Signals to the whole group are the command's business, except those that stop it and continue it.
  // SIGXFSZ: a file that may not grow is a full disk.
  for (int number = 1; number <= SIGRTMAX; ++number)
    if (number != SIGCHLD && number != SIGCONT && !StopsByDefault(number)) std::signal(number, SIG_IGN);
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

class RunWaiter {
 public:
  // `is_child`: the collector is ours, not one that we have joined.
  RunWaiter(pid_t collector, bool is_child, RunChannel channel)
      : channel_(std::move(channel)), collector_(collector), is_child_(is_child) {}

  int channel_fd() const { return channel_.fd(); }
  // Waits until the collector can take records. False: it has ended.
  bool AwaitReady() {
    RunMessage message;
    return channel_.Receive(message, /*wait=*/true) && message.kind == RunMessageKind::kReady;
  }
  // The exit code for a collector that was never ready.
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
    RunMessage released;
    if (!is_child_) return (void)channel_.Receive(released, /*wait=*/true);
    while (waitpid(collector_, &collector_status_, 0) < 0 && errno == EINTR) {
    }
  }

  // Waits until the command has ended, and then until the collector has ended or released us. `early`:
  // signals that came before the command existed.
  CommandEnd Wait(pid_t command, const recording::SignalFd& signals, GroupWitness& witness,
                  const sigset_t& early) {
    command_ = command;
    witness_ = &witness;
    early_ = early;
    channel_.Send(RunMessageKind::kStarted, command);
    Reap();
    int stopped_looks = 0;
    while (!command_ended_ || !(collector_ended_ || abandoned_ || released_)) {
      pollfd fds[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                      {.fd = channel_.gone() ? -1 : channel_.fd(), .events = POLLIN, .revents = 0}};
      poll(fds, 2, command_ended_ ? kLookEveryMs : -1);
      witness.NextRound();
      signals.ReadAll([this](const signalfd_siginfo& info) { OnSignal(info); });
      ReadChannel();
      Reap();
      if (!command_ended_ || collector_ended_) continue;
      stopped_looks = IsStopped(collector_) ? stopped_looks + 1 : 0;
      if (stopped_looks >= kMostStoppedLooks) Abandon("is stopped");
    }
    const int end_signal = WIFSIGNALED(command_status_) ? WTERMSIG(command_status_) : 0;
    return {.exit_code = end_signal != 0 ? 128 + end_signal : WEXITSTATUS(command_status_),
            .end_signal = end_signal,
            .collector_goes_on = is_child_ && !collector_ended_ && !abandoned_};
  }

 private:
  // Also reaps processes that came to us as the first process of a container.
  void Reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (WIFSTOPPED(status)) {
        if (pid == command_) StopBesideCommand(WSTOPSIG(status));
      } else if (pid == witness_->pid()) {
        witness_->OnEnded();
      } else if (pid == command_) {
        command_ended_ = true;
        command_status_ = status;
        channel_.Send(RunMessageKind::kEnded, status);
      } else if (is_child_ && pid == collector_) {
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
      if (message.kind == RunMessageKind::kRelease) released_ = true;
    }
    if (!is_child_ && channel_.gone()) collector_ended_ = true;
  }

  void OnSignal(const signalfd_siginfo& info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD && info.ssi_code > 0) return;  // a child of ours: see Reap
    if (number == SIGCONT) ContinueCollector();
    const bool of_group = witness_->SawToo(info);
    if (!command_ended_) {
      const bool is_early = sigismember(&early_, number) == 1;
      sigdelset(&early_, number);
      const auto sender = static_cast<pid_t>(info.ssi_pid);
      if (IsUndone(number)) return;
      if (is_early || !(of_group || sender == witness_->pid() || IsOfCommand(sender))) PassOn(info);
    } else if (StopsByDefault(number)) {
      StopBy(number);
    } else if (number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT) {
      // The first one: wait for no other process of the command. The second one: not for the report either.
      if (hurried_) return Abandon("was interrupted");
      hurried_ = true;
      channel_.Send(RunMessageKind::kHurry);
    }
  }

  void PassOn(const signalfd_siginfo& info) const {
    const int number = static_cast<int>(info.ssi_signo);
    if (info.ssi_code == SI_QUEUE) {
      siginfo_t queued{};
      queued.si_signo = number;
      queued.si_code = SI_QUEUE;
      queued.si_pid = static_cast<pid_t>(info.ssi_pid);
      queued.si_uid = info.ssi_uid;
      queued.si_value.sival_ptr = std::bit_cast<void*>(info.ssi_ptr);
      if (syscall(SYS_rt_sigqueueinfo, command_, number, &queued) == 0) return;
    }
    kill(command_, number);
  }

  // SIGCONT and the signals that stop a process discard one another while they are pending, at the witness as
  // well as here. Whether a later, pending signal has undone this one.
  static bool IsUndone(int number) {
    sigset_t waiting;
    sigpending(&waiting);
    const bool continues = sigismember(&waiting, SIGCONT) == 1;
    const bool stops = sigismember(&waiting, SIGTSTP) == 1 || sigismember(&waiting, SIGTTIN) == 1 ||
                       sigismember(&waiting, SIGTTOU) == 1;
    return number == SIGCONT ? stops : continues && (number == SIGSTOP || StopsByDefault(number));
  }

  // A shell with job control waits for us to stop. If the command is continued by its pid, the witness
  // continues us; without a witness, we do not stop.
  void StopBesideCommand(int number) {
    if (IsUndone(number)) return;
    if (!IsStopped(command_) || !witness_->WatchCommand(command_)) return;
    StopBy(number);
    witness_->EndWatch();
  }

  // Returns when we are continued; at once if the signal does not stop us (an orphaned process group).
  static void StopBy(int number) {
    sigset_t only;
    sigset_t before;
    sigemptyset(&only);
    sigaddset(&only, number);
    const auto disposition = number == SIGSTOP ? SIG_DFL : std::signal(number, SIG_DFL);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &only, &before);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (number != SIGSTOP) std::signal(number, disposition);
  }

  // It was stopped with us; if only we are continued, it must go on, too.
  void ContinueCollector() const {
    if (!collector_ended_ && IsStopped(collector_)) kill(collector_, SIGCONT);
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
    // The collector has printed itself what it could not write.
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
  const bool is_child_;
  pid_t command_ = -1;
  GroupWitness* witness_ = nullptr;
  sigset_t early_{};
  bool command_ended_ = false;
  bool collector_ended_ = false;
  bool abandoned_ = false;  // the collector is not waited for any more
  bool released_ = false;   // by the collector: others wait for the report
  bool hurried_ = false;
  int command_status_ = 0;
  int collector_status_ = 0;
  char directory_[PATH_MAX] = "";
};

int NotExecuted(const std::vector<std::string>& command, int error) {
  Fail(kRunCommand, absl::StrCat(command.front(), ": ", std::strerror(error)), kFailed);
  return error == ENOENT || error == ENOTDIR ? kNotFound : kNotExecutable;
}

CommandEnd StartAndWait(RunWaiter& waiter, const std::vector<std::string>& command,
                        CommandEnvironment environment, bool ignores_children) {
  const absl::StatusOr<recording::SignalFd> signals = recording::SignalFd::OpenAll();
  if (!signals.ok()) {
    waiter.NoteNotStarted();
    return {.exit_code = Fail(kRunCommand, signals.status(), kOwnFailure)};
  }
  GroupWitness witness(waiter.channel_fd());
  const auto variables = environment();
  const Inherited inherited{
      .mask = signals->previous_mask(), .ignores_children = ignores_children, .timers = TakeTimers()};
  sigset_t early;
  sigpending(&early);
  const Launched launched = Launch(command, variables, inherited);
  if (launched.error != 0) {
    const int code = NotExecuted(command, launched.error);
    waiter.NoteNotStarted();
    return {.exit_code = code};
  }
  // Our lines may have no reader, or no room.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return waiter.Wait(launched.pid, *signals, witness, early);
}

}  // namespace

CommandEnd RunBesideCollector(const std::vector<std::string>& command, CommandEnvironment environment,
                              absl::FunctionRef<int(RunChannel channel)> collect, RankListener* ranks) {
  absl::StatusOr<RunChannel::Pair> ends = RunChannel::Open();
  if (!ends.ok()) return {.exit_code = Fail(kRunCommand, ends.status(), kOwnFailure)};
  // If our parent ignores SIGCHLD, we inherit that, and our children's statuses would be lost.
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
  if (ranks != nullptr) ranks->CloseCopy();
  RunWaiter waiter(collector, /*is_child=*/true, std::move(ends->waiting));
  if (!waiter.AwaitReady()) return {.exit_code = waiter.FailedStart()};
  return StartAndWait(waiter, command, environment, children == SIG_IGN);
}

CommandEnd RunJoined(const std::vector<std::string>& command, CommandEnvironment environment,
                     JoinedCollector collector) {
  const auto children = std::signal(SIGCHLD, SIG_DFL);
  RunWaiter waiter(collector.pid, /*is_child=*/false, std::move(collector.channel));
  return StartAndWait(waiter, command, environment, children == SIG_IGN);
}

}  // namespace gpuprobe::cli
