// `gpuprobe collect --node`: accepts the programs of all users of a node, and hands each connection to a
// process of its user (node_worker.h).
//
//   program of alice ──connect──► collector (root) ──descriptor──► process of alice ──► DIR/alice/<run>/
//   program of bob   ──connect──►        "         ──descriptor──► process of bob   ──► DIR/bob/<run>/
//
// The collector asks the system who connects, and reads no byte of what they send. A user's process is
// started when the user's first program connects and ends when the last run is reported. Used from one
// thread, and without others, because it forks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "collector/ingest/endpoint.h"
#include "collector/ingest/warnings.h"
#include "collector/recording/job_recorder.h"
#include "collector/recording/node_channel.h"
#include "collector/recording/node_worker.h"
#include "collector/recording/signals.h"

namespace gpuprobe::recording::node {

class Collector {
 public:
  struct Options {
    std::string socket;
    std::string directory;  // made if it is missing; only root may write it
    UserQuota quota;
    JobRecorder::Options recording;
  };
  using Say = std::function<void(const std::string& line)>;

  static absl::StatusOr<std::unique_ptr<Collector>> Start(const Options& options, Say say);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // Until SIGTERM, SIGINT or SIGHUP; then every run is reported.
  void Serve();
  // Whether any client has connected.
  bool served_anybody() const { return served_anybody_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    static constexpr double kLinesAtOnce = 50;
    Worker(User its_user, pid_t its_pid, Channel its_channel)
        : user(std::move(its_user)), pid(its_pid), channel(std::move(its_channel)) {}

    User user;
    pid_t pid;
    Channel channel;
    uint64_t passed = 0;
    Progress progress;
    bool leaving = false;              // nothing is passed to it any more
    double lines_left = kLinesAtOnce;  // that it may say now
    Clock::time_point lines_at = Clock::now();
    uint64_t lines_left_out = 0;
  };
  // Warnings about clients that were turned away.
  struct Refusals {
    ingest::Warnings warnings;
    Clock::time_point last;
  };

  Collector(Options options, Say say, ingest::Endpoint endpoint, SignalFd signals, int epoll_fd,
            int directory_fd);
  void Poll(std::chrono::milliseconds timeout);
  void Accept();
  void Pass(int connection, uid_t user, gid_t group);
  void Refuse(int connection, uid_t user, const std::string& why);
  Worker* FindWorker(uid_t user);
  absl::StatusOr<Worker*> StartWorker(uid_t user, gid_t group);
  absl::StatusOr<int> OpenHome(const User& user) const;
  void Listen(Worker& worker);
  void Print(Worker& worker, std::string_view line);
  void SendAway(Worker& worker);
  void Reap();
  void Pause();
  void End();

  Options options_;
  Say say_;
  ingest::Endpoint endpoint_;
  SignalFd signals_;
  int epoll_fd_;
  int directory_fd_;
  std::list<Worker> workers_;
  std::map<uid_t, Clock::time_point> died_;  // users whose process ended badly, and when
  std::map<uid_t, Refusals> refusals_;
  bool paused_ = false;
  Clock::time_point resume_at_;
  bool stop_ = false;
  bool served_anybody_ = false;
};

}  // namespace gpuprobe::recording::node
