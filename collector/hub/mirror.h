// Sends what this host records to the hub of its job, about once a second, in a thread of its own.
//
// The files of the run directory are the queue, so that a hub that is slow, away or begins again costs
// nothing but time: what it lacks is sent when it answers. What --keep has dropped meanwhile is lost to the
// hub.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collector/hub/secret.h"
#include "gpuprobe/v1/hub.pb.h"

namespace httplib {  // NOLINT(readability-identifier-naming): its own
class Client;
}

namespace gpuprobe::hub {

// Where a job's hub is, and which job it is.
struct Meeting {
  std::string host;  // name or number
  uint16_t first_port = 0;
  uint16_t ports = 1;
  std::string job;
  bool alone = false;  // the job is on one host, which sends it to a hub that somebody named

  // "n1:9461"
  std::string Text() const;
};

struct FoundHub {
  std::string url;          // of the server
  std::string fingerprint;  // of its certificate
  Secret secret;            // what both sign with
};

// Finds the hub: it proves that it knows the secret and has the job, and that the certificate is its own. Why
// there is none, if so.
absl::StatusOr<FoundHub> FindHub(const Meeting& meeting, const Secret& secret);

class Mirror {
 public:
  enum class Phase : uint8_t {
    kSearching,
    kSending,
    kShared,  // the hub reads this host's own files
  };
  struct State {
    Phase phase = Phase::kSearching;
    std::string hub_host;   // name of the hub's host; empty: none has answered yet
    std::string directory;  // of the job there
    std::string why;        // the last answer did not come, or refused; empty: it was well
    bool all_sent = false;
  };

  // `host`: this one's name.
  Mirror(Meeting meeting, Secret secret, std::string host);
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  // Starts the thread, so that nothing may be forked afterwards. `directory`: what this host records. `logs`:
  // where the logs for the hub are, there or in a folder of it.
  void Begin(const std::string& directory, const std::string& logs);
  bool begun() const { return thread_.joinable(); }
  State state() const;
  // What this host's processes do for a capture; what they have recorded until now is in the files. Goes with
  // the next post.
  void SetProcesses(std::vector<v1::CapturedProcess> processes);
  // What the hub orders of them, since the last call; an order may come again until it is answered.
  std::vector<v1::CaptureOrder> TakeOrders();
  // What came of captures that the hub began by itself, since the last call; each comes several times.
  std::vector<v1::DetailRaise> TakeRaises();
  // What is recorded is complete: sends the rest, for so long at most. The state then.
  State End(std::chrono::milliseconds patience);

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  std::chrono::milliseconds PauseAfter(bool well, bool ends, std::chrono::milliseconds pause) const;
  // Sends what the hub lacks: false, with the reason in the state, if that failed.
  bool Send(bool ended);
  absl::StatusOr<v1::HubAnswer> Post(const v1::HubPost& post);
  // What the hub is to have.
  std::vector<std::string> Files() const;
  v1::HubPost NextPost(bool ended, bool& more);
  void AddFiles(v1::HubPost& post, bool ended, bool& more);
  void TakeOrdersOf(const v1::HubAnswer& answer);
  // why_not_, unless the hub reads this host's own files: then the host is shown there, whatever its posts
  // do.
  void NoteFailed(Phase phase);
  void SetHub(std::shared_ptr<httplib::Client> hub);
  void Note(Phase phase, const std::string& why, bool all_sent);

  const Meeting meeting_;
  const Secret secret_;
  const std::string host_;
  const uint64_t instance_;
  std::string directory_;
  std::string logs_;
  // Of the thread.
  uint64_t sequence_ = 0;
  bool knows_sizes_ = false;
  std::map<std::string, uint64_t> have_;  // sizes that the hub has
  std::map<std::string, int64_t> sent_;   // files that are sent whole, by when they were written
  Secret key_;                            // what this hub and we sign with
  std::string hub_host_;
  std::string hub_directory_;
  bool shared_ = false;              // the hub reads this host's own files; posts are about processes only
  std::chrono::milliseconds again_;  // from post to post, as the hub wishes
  std::chrono::milliseconds come_again_{0};  // as the hub said, if it has too much to do for us
  absl::Status why_not_;  // what was sent last did not arrive; who refuses us and ends is still the reason

  std::thread thread_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex, as all that follows. The thread alone sets it, and End cuts its connection. Null: none
  // has been found.
  std::shared_ptr<httplib::Client> hub_;
  std::optional<Clock::time_point> end_;
  Clock::time_point ended_at_;
  State state_;
  std::vector<v1::CapturedProcess> processes_;
  std::vector<v1::CaptureOrder> orders_;
  std::vector<v1::DetailRaise> raises_;
};

}  // namespace gpuprobe::hub
