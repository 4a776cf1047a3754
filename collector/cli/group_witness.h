// A child of `gpuprobe run` that answers a question the kernel does not: was a signal sent to our process
// alone, or to its whole process group?
//
// The command is in the group, too. It has already received a signal to the group (the terminal's keys,
// `kill %1`, `kill 0`), and forwarding it would deliver it twice. The witness blocks all signals and leaves
// them pending. When the waiting process gets a signal, it asks the witness which ones have arrived there:
//
//   kill -USR1 PID of `gpuprobe run`        the witness has none: forward it
//   kill -USR1 -PGID, or from the terminal  the witness has it, too: so has the command
//
// The witness has a second task while the waiting process is stopped beside its stopped command: when the
// command is continued, the witness continues the waiting process.
//
// Nothing here allocates. If the witness dies or does not answer, signals from the terminal count as sent to
// the group, and all others as sent to us; and we no longer stop with the command. The witness is killed when
// the waiting process ends, however that ends.
#pragma once

#include <sys/signalfd.h>
#include <sys/types.h>

#include <cstdint>

namespace gpuprobe::cli {

class GroupWitness {
 public:
  // Call it with all signals blocked; `unneeded` is a descriptor that the child must not keep open.
  explicit GroupWitness(int unneeded);
  ~GroupWitness();
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  pid_t pid() const { return pid_; }
  // Before we read all signals that wait for us.
  void NextRound();
  // Whether a signal that we got was sent to our group. Call it once for each signal.
  bool SawToo(const signalfd_siginfo& info);
  // Until EndWatch, the witness continues us whenever we are stopped and the command is not. False: it
  // cannot.
  bool WatchCommand(pid_t command);
  void EndWatch();
  // Call it when waitpid has returned the witness.
  void OnEnded();

 private:
  // A signal that the witness got and SawToo was not asked about yet.
  struct Seen {
    uint32_t number;
    int32_t code;
    uint32_t sender;
    uint32_t round;  // in which the witness reported it
  };
  static constexpr int kMostSeen = 256;
  struct Question;
  struct Answer;

  [[noreturn]] static void Witness(int fd);
  bool Send(const Question& question);
  bool Receive(Answer& answer);
  // Moves what has arrived at the witness to seen_, as far as there is room. False: it does not answer.
  bool Ask();
  // Removes this signal from seen_. False: it is not there.
  bool Take(const signalfd_siginfo& info);

  pid_t pid_ = -1;
  int fd_ = -1;
  uint32_t round_ = 0;
  int seen_count_ = 0;
  Seen seen_[kMostSeen];
};

}  // namespace gpuprobe::cli
