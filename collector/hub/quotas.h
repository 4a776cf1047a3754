// How much one host may send to a hub, so that a host that floods slows no other one and the hub's memory
// stays bounded.
//
// Example: 16 MiB a second with a burst of 128 MiB. A host that was cut off for a minute sends 128 MiB at
// once, and 16 MiB a second from then on. What is more is refused, with the time after which it fits, before
// a byte of it is read. A host is whoever has one network address, whatever it calls itself.
//
// Safe from several threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace gpuprobe::hub {

// Fills at a rate up to a burst, and may be overdrawn.
class Allowance {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Full at first. Both in units of whatever is allowed, `rate` a second.
  Allowance(double rate, double burst) : rate_(rate), burst_(burst), level_(burst) {}

  // False: nothing is left.
  bool Has(Time now);
  void Take(double amount) { level_ -= amount; }
  // Until something is left again; at least 1 s.
  std::chrono::seconds Wait() const;
  double overdrawn() const { return level_ < 0 ? -level_ : 0; }
  bool IsFull(Time now) const;

 private:
  double LevelAt(Time now) const;

  double rate_;
  double burst_;
  double level_;
  std::optional<Time> filled_at_;
};

class Quotas {
 public:
  // Twice what 500 ranks send that record 5,000 things a second each (docs/performance.md).
  static constexpr uint64_t kBytesPerS = uint64_t{16} << 20;
  static constexpr uint64_t kBurstSeconds = 8;
  // A post counts as so many bytes at least: it costs a handshake.
  static constexpr size_t kLeastBytes = size_t{32} << 10;
  // Of posts that are read or worked on: of one host, which is two large ones, and of all together.
  static constexpr size_t kOpenBytesOfHost = size_t{16} << 20;
  static constexpr size_t kOpenBytes = size_t{256} << 20;
  // Connections of one host at a time.
  static constexpr size_t kConnectionsOfHost = 16;

  explicit Quotas(uint64_t bytes_per_s = kBytesPerS)
      : bytes_per_s_(bytes_per_s), burst_bytes_(kBurstSeconds * bytes_per_s) {}

  struct Verdict {
    std::shared_ptr<void> lease;  // the post may be read, and is done when this is gone; null: it is refused
    std::chrono::seconds again{0};  // refused: when to come again
    // Refused: the host may send it all the same, to no effect, so that it gets to the answer. Not one that
    // comes again and again.
    bool may_pass = false;
  };
  Verdict Admit(const std::string& host, size_t bytes, Allowance::Time now);
  uint64_t bytes_per_s() const { return bytes_per_s_; }

 private:
  struct Host {
    Allowance bytes;
    size_t open_bytes = 0;
  };
  Host& HostOf(const std::string& name, Allowance::Time now);
  void Done(const std::string& host, size_t bytes);

  const uint64_t bytes_per_s_;
  const uint64_t burst_bytes_;
  std::mutex mutex_;
  size_t open_bytes_ = 0;              // under the mutex, as all that follows
  std::map<std::string, Host> hosts_;  // that sent lately
};

}  // namespace gpuprobe::hub
