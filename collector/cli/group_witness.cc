#include "collector/cli/group_witness.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "collector/cli/process_stat.h"

namespace gpuprobe::cli {
namespace {

constexpr int kLookAtStoppedMs = 100;
constexpr int kAnswerWithinS = 2;
// A signal that the witness got, and we did not get within so many rounds, was merged with another one of
// ours.
constexpr uint32_t kForgetAfterRounds = 2;

bool IsFromTerminal(uint32_t number) {
  return number == SIGINT || number == SIGQUIT || number == SIGTSTP || number == SIGTTIN ||
         number == SIGTTOU || number == SIGHUP || number == SIGCONT || number == SIGWINCH;
}

}  // namespace

struct GroupWitness::Question {
  enum class Kind : int32_t { kWhatCame, kWatch, kEndWatch };
  Kind kind = Kind::kWhatCame;
  pid_t command = 0;  // of kWatch
};

struct GroupWitness::Answer {
  static constexpr int kMost = 32;  // if there are so many, more may be waiting
  int32_t count = 0;
  Seen seen[kMost];
};

GroupWitness::GroupWitness(int unneeded) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) return;
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    close(fds[0]);
    close(unneeded);
    Witness(fds[1]);
  }
  close(fds[1]);
  fd_ = fds[0];
  if (pid_ < 0) OnEnded();
  if (fd_ < 0) return;
  const timeval limit{.tv_sec = kAnswerWithinS, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

GroupWitness::~GroupWitness() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  OnEnded();
}

void GroupWitness::OnEnded() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  pid_ = -1;
}

void GroupWitness::Witness(int fd) {
  sigset_t all;
  sigfillset(&all);
  const int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
  pid_t watched = -1;
  for (;;) {
    pollfd asked{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&asked, 1, watched > 0 ? kLookAtStoppedMs : -1) == 0) {
      if (!IsStopped(watched) && IsStopped(getppid())) kill(getppid(), SIGCONT);
      continue;
    }
    Question question;
    if (recv(fd, &question, sizeof(question), 0) != sizeof(question)) _exit(0);
    if (question.kind != Question::Kind::kWhatCame) {
      watched = question.kind == Question::Kind::kWatch ? question.command : -1;
      continue;
    }
    Answer answer;
    signalfd_siginfo info{};
    while (answer.count < Answer::kMost &&
           read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      answer.seen[answer.count++] = {
          .number = info.ssi_signo, .code = info.ssi_code, .sender = info.ssi_pid, .round = 0};
    }
    if (send(fd, &answer, sizeof(answer), MSG_NOSIGNAL) < 0) _exit(0);
  }
}

bool GroupWitness::Send(const Question& question) {
  if (fd_ < 0) return false;
  // It was stopped by itself, or with the whole group, of which only we were continued.
  if (IsStopped(pid_)) kill(pid_, SIGCONT);
  return send(fd_, &question, sizeof(question), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(question);
}

bool GroupWitness::Receive(Answer& answer) {
  ssize_t n = 0;
  do {
    n = recv(fd_, &answer, sizeof(answer), 0);
  } while (n < 0 && errno == EINTR);  // we were stopped and continued
  return n == sizeof(answer);
}

bool GroupWitness::Ask() {
  for (bool more = true; more && seen_count_ + Answer::kMost <= kMostSeen;) {
    Answer answer;
    if (!Send({}) || !Receive(answer)) {
      // A late answer would be mistaken for the answer to the next question.
      if (fd_ >= 0) close(fd_);
      fd_ = -1;
      return false;
    }
    for (int i = 0; i < answer.count; ++i) {
      seen_[seen_count_] = answer.seen[i];
      seen_[seen_count_++].round = round_;
    }
    more = answer.count == Answer::kMost;
  }
  return fd_ >= 0;
}

void GroupWitness::NextRound() {
  ++round_;
  Seen* const kept = std::remove_if(seen_, seen_ + seen_count_, [this](const Seen& seen) {
    return round_ - seen.round > kForgetAfterRounds;
  });
  seen_count_ = static_cast<int>(kept - seen_);
}

bool GroupWitness::Take(const signalfd_siginfo& info) {
  Seen* const end = seen_ + seen_count_;
  Seen* const found = std::find_if(seen_, end, [&](const Seen& seen) {
    return seen.number == info.ssi_signo && seen.code == info.ssi_code && seen.sender == info.ssi_pid;
  });
  if (found == end) return false;
  std::move(found + 1, end, found);
  --seen_count_;
  return true;
}

bool GroupWitness::SawToo(const signalfd_siginfo& info) {
  if (Take(info)) return true;
  return Ask() ? Take(info) : info.ssi_code == SI_KERNEL && IsFromTerminal(info.ssi_signo);
}

bool GroupWitness::WatchCommand(pid_t command) {
  return Send({.kind = Question::Kind::kWatch, .command = command});
}

void GroupWitness::EndWatch() { (void)Send({.kind = Question::Kind::kEndWatch}); }

}  // namespace gpuprobe::cli
