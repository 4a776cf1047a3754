// Where a capture of a job's steps meets the job's other hosts: what each host posted last about its
// processes, and the orders that these have not answered.
//
//   order    rank 8 on n2: record steps 188 to 192           waits here
//   answer   to n2's next post: the order                    lost: it is in the one after it, too
//   post     rank 8 is armed for 188                         the order is answered, and dropped
//
// What came of captures that the hub began by itself goes to all hosts, so that their logs say it. While
// somebody captures, hosts are asked to post four times a second. Safe from several threads; no call
// waits for a disk or a network.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpuprobe/v1/hub.pb.h"

namespace gpuprobe::hub {

class CaptureBoard {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kEveryOfCapture{250};  // from post to post, while there is one
  // Each is an encrypted connection of its own: hosts of a large job come less often.
  static constexpr size_t kMostPostsASecond = 400;
  static constexpr std::chrono::minutes kForgotten{15};  // hosts that have been silent for so long
  static constexpr std::chrono::seconds kForgetsEvery{1};
  static constexpr size_t kMostHosts = 4096;   // of a job
  static constexpr int kMostProcesses = 4096;  // of a host
  static constexpr std::chrono::seconds kNotedFor{30};

  struct Host {
    uint64_t instance = 0;
    std::string name;
    std::vector<v1::CapturedProcess> processes;
    int64_t clock_ahead_ns = 0;  // of ours; what the post took on its way is in it
    Clock::time_point posted_at;
  };

  // A post of the host `name`, and what its answer adds. `now_ns`: CLOCK_REALTIME.
  void Take(const v1::HubPost& post, const std::string& name, Clock::time_point now, uint64_t now_ns,
            v1::HubAnswer& answer);
  std::vector<Host> Hosts() const;
  // For a process of Hosts(), in place of the order before it.
  void Order(uint64_t instance, uint32_t number, const v1::Capture& order);
  // In all answers for kNotedFor.
  void Note(const v1::DetailRaise& raise, Clock::time_point now);
  // Whether somebody captures.
  void SetCapturing(bool capturing);

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, Host> hosts_;  // by instance; under the mutex, as all that follows
  std::map<std::pair<uint64_t, uint32_t>, v1::Capture> orders_;  // by instance and process
  std::vector<std::pair<Clock::time_point, v1::DetailRaise>> noted_;
  Clock::time_point forgot_at_;
  bool capturing_ = false;
};

}  // namespace gpuprobe::hub
