// The events of a timeline, independent of the file format: slices on tracks, moments, flows between them,
// and counters.
//
// A process's records become events once (process_timeline.h); each format encodes events and knows nothing
// of records. Times are nanoseconds on the reference rank's clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace gpuprobe::timeline {

// One process of the job.
struct Process {
  uint32_t index = 0;  // in the job
  int rank = -1;       // -1: not known
  int world_size = 0;  // 0: not known
  uint32_t pid = 0;
  uint32_t shown_pid = 0;  // unique within the job: two hosts may use the same pid
  std::string host;
  std::string name;  // "rank 3" or "pid 4711"
  struct Device {
    uint32_t ordinal = 0;
    std::string name;
    uint64_t memory_bytes = 0;
    uint32_t multiprocessors = 0;
    uint32_t compute_major = 0;
    uint32_t compute_minor = 0;
  };
  std::vector<Device> devices;
};

enum class TrackKind : uint8_t {
  kSteps,
  kThread,  // what a host thread did: `id` is its thread id
  kWaits,   // the host waiting for the device, by any thread
  kHost,    // what samples found a host thread in: `id` is its thread id
  kRanges,  // ranges that may overlap (started and ended, or too long to wait for)
  kStream,  // `id` is the device's ordinal, `stream` the stream
};

struct TrackKey {
  TrackKind kind = TrackKind::kSteps;
  uint32_t id = 0;
  uint32_t stream = 0;
  uint32_t lane = 0;  // above 0: for slices that would overlap others
  friend bool operator<(const TrackKey& a, const TrackKey& b) {
    return std::tie(a.kind, a.id, a.stream, a.lane) < std::tie(b.kind, b.id, b.stream, b.lane);
  }
};

using Value = std::variant<uint64_t, int64_t, double, std::string_view>;

// `json` marks text that is JSON by itself: "[128, 1, 1]".
struct Arg {
  std::string_view key;
  Value value;
  bool json = false;
};

// An arrow between events, equal on both ends. A launch's flow is the launch's correlation id.
enum class FlowKind : uint8_t { kLaunch, kCall };
struct Flow {
  FlowKind kind = FlowKind::kLaunch;
  uint64_t id = 0;
};

enum class Category : uint8_t {
  kKernel,
  kCollectiveKernel,
  kCopy,
  kMemset,
  kGraph,
  kLaunch,
  kCall,
  kDriverCall,
  kHostSample,
  kRange,
  kMark,
  kWait,
  kStep,
};

// With end_ns == start_ns for launches and marks, which are moments.
struct Event {
  Category category = Category::kKernel;
  TrackKey track;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  std::string_view name;
  std::span<const Arg> args;
  std::span<const Flow> begins;  // flows that lead away from it
  std::span<const Flow> ends;    // flows that lead to it
};

inline bool IsMoment(Category category) {
  return category == Category::kLaunch || category == Category::kMark;
}

enum class CounterKind : uint8_t { kMemory, kPinnedMemory, kPytorch, kPool, kLaunchDelay, kOccupancy };
enum class Unit : uint8_t { kBytes, kNanoseconds, kPercent };

struct Counter {
  CounterKind kind = CounterKind::kMemory;
  uint32_t device = 0;
  uint32_t part = 0;  // the kind of memory, the pool, or which of a pair of levels
  friend bool operator<(const Counter& a, const Counter& b) {
    return std::tie(a.kind, a.device, a.part) < std::tie(b.kind, b.device, b.part);
  }
};

// Receives one process's events. Tracks and counters are described before their first event.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void DescribeTrack(const TrackKey& track, const std::string& name) = 0;
  virtual void DescribeCounter(const Counter& counter, const std::string& name, Unit unit) = 0;
  virtual void OnEvent(const Event& event) = 0;
  virtual void OnCounter(const Counter& counter, uint64_t time_ns, double value) = 0;
  // The file has reached its limit.
  virtual bool full() const = 0;
};

}  // namespace gpuprobe::timeline
