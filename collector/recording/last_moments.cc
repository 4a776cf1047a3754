#include "collector/recording/last_moments.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/store/shared_ring.h"

namespace gpuprobe::recording {
namespace {

using analysis::LastCall;
using analysis::LastMoments;
using analysis::LastThread;
using flight::Condition;

template <size_t kBytes>
std::string TextOf(const char (&text)[kBytes]) {
  return {text, strnlen(text, kBytes)};
}

// Stamps as nanoseconds of CLOCK_REALTIME.
class RingClock {
 public:
  explicit RingClock(const flight::Ring& ring) {
    if (flight::ConditionOf(ring.owner) == Condition::kWhole)
      Add({ring.owner.stamp, ring.owner.realtime_ns, ring.owner.monotonic_ns});
    for (const flight::Reading& reading : ring.process.readings) {
      if (flight::ConditionOf(reading) == Condition::kWhole)
        Add({reading.stamp, reading.realtime_ns, reading.monotonic_ns});
    }
  }

  // 0: it cannot be converted.
  uint64_t Realtime(uint64_t stamp) const {
    if ((stamp & flight::kTicks) == 0) return stamp;
    if (newest_.monotonic_ns <= oldest_.monotonic_ns || newest_.stamp <= oldest_.stamp) return 0;
    const double ns_per_tick = static_cast<double>(newest_.monotonic_ns - oldest_.monotonic_ns) /
                               static_cast<double>(newest_.stamp - oldest_.stamp);
    const auto ticks = static_cast<double>(static_cast<int64_t>(stamp - newest_.stamp));
    constexpr double kYear = 365 * 24 * 3600e9;  // further away it is damage
    return newest_.realtime_ns +
           static_cast<uint64_t>(static_cast<int64_t>(std::clamp(ticks * ns_per_tick, -kYear, kYear)));
  }

 private:
  struct Clocks {
    uint64_t stamp = 0;
    uint64_t realtime_ns = 0;
    uint64_t monotonic_ns = 0;
  };

  void Add(const Clocks& clocks) {
    if ((clocks.stamp & flight::kTicks) == 0) return;
    if (oldest_.stamp == 0 || clocks.stamp < oldest_.stamp) oldest_ = clocks;
    if (clocks.stamp > newest_.stamp) newest_ = clocks;
  }

  Clocks oldest_;
  Clocks newest_;
};

class Reader {
 public:
  Reader(const flight::Ring& ring, const std::string& name) : ring_(ring), clock_(ring) { out_.ring = name; }

  LastMoments Read() {
    ReadOwner();
    for (const flight::Reading& reading : ring_.process.readings) {
      if (!IsWhole(reading)) continue;
      See(reading.realtime_ns);
      out_.threads_left_out =
          std::max(out_.threads_left_out, reading.threads - std::min(reading.threads, flight::kThreads));
      out_.communicators_left_out = std::max(out_.communicators_left_out, reading.displaced);
    }
    for (const flight::ThreadPlace& place : ring_.process.threads) ReadThread(place);
    for (const flight::CommunicatorPlace& place : ring_.process.communicators) ReadCommunicator(place);
    ReadFailures();
    ReadStack();
    std::stable_sort(out_.threads.begin(), out_.threads.end(),
                     [](const LastThread& a, const LastThread& b) { return a.main > b.main; });
    std::stable_sort(out_.calls.begin(), out_.calls.end(), [](const LastCall& a, const LastCall& b) {
      return std::max(a.entered_ns, a.left_ns) > std::max(b.entered_ns, b.left_ns);
    });
    return std::move(out_);
  }

 private:
  // Counts a torn one.
  template <typename Record>
  bool IsWhole(const Record& record) {
    const Condition condition = flight::ConditionOf(record);
    if (condition == Condition::kTorn) ++out_.torn;
    return condition == Condition::kWhole;
  }

  void See(uint64_t time_ns) { out_.seen_ns = std::max(out_.seen_ns, time_ns); }
  uint64_t TimeOf(uint64_t stamp) {
    const uint64_t time_ns = clock_.Realtime(stamp);
    See(time_ns);
    return time_ns;
  }

  void ReadOwner() {
    const flight::Owner& owner = ring_.owner;
    if (IsWhole(owner)) {
      out_.job = TextOf(owner.job);
      out_.attempt = TextOf(owner.attempt);
      out_.host = TextOf(owner.host);
      if (owner.rank >= 0) out_.rank = owner.rank;
      out_.pid = owner.pid;
      out_.process_start_ns = owner.process_start_ns;
      See(owner.realtime_ns);
    }
    if (!IsWhole(ring_.end)) return;
    out_.collector_ended = ring_.end.ending == static_cast<uint32_t>(flight::Ending::kCollectorEnded);
    out_.ended_ns = ring_.end.realtime_ns;
  }

  void ReadThread(const flight::ThreadPlace& place) {
    const flight::Thread& thread = place.thread;
    if (!IsWhole(thread)) return;
    LastThread out{.tid = static_cast<uint32_t>(thread.tid),
                   .main = thread.tid == out_.pid,
                   .ranges = {},
                   .launches = thread.launches};
    if (thread.launched != 0) out.launched_ns = TimeOf(thread.launched);
    if (thread.changed != 0) TimeOf(thread.changed);
    // Outwards, as far as they are known.
    for (uint64_t level = thread.depth; level > 0 && thread.depth - level < flight::kRanges; --level) {
      const flight::Range& range = place.ranges[(level - 1) % flight::kRanges];
      if (!IsWhole(range) || range.level != level) {
        out.ranges.emplace_back("?");
        continue;
      }
      std::string name(range.name, std::min(range.name_bytes, uint64_t{sizeof(range.name)}));
      if (range.name_bytes > sizeof(range.name)) name += "...";
      out.ranges.push_back(std::move(name));
    }
    std::reverse(out.ranges.begin(), out.ranges.end());
    const auto known = std::count_if(out.ranges.begin(), out.ranges.end(),
                                     [](const std::string& name) { return name != "?"; });
    out.ranges_not_known = static_cast<uint32_t>(thread.depth - static_cast<uint64_t>(known));
    if (out.launches > 0 || thread.depth > 0) out_.threads.push_back(std::move(out));
  }

  void ReadCommunicator(const flight::CommunicatorPlace& place) {
    const bool known = IsWhole(place.communicator);
    const flight::Call* newest = nullptr;
    for (const flight::Call& call : place.last) {
      if (!IsWhole(call)) continue;
      if (newest == nullptr || call.number > newest->number) newest = &call;
    }
    if (newest == nullptr) return;
    LastCall out;
    if (known && place.communicator.id == newest->communicator) {
      const std::string name = analysis::TellingName(TextOf(place.communicator.name));
      out.communicator = !name.empty()                  ? name
                         : place.communicator.hash == 0 ? "unknown"
                                                        : analysis::CommName(place.communicator.hash);
      out.ranks = std::max(place.communicator.ranks, 0);
    } else {
      out.communicator = "unknown";
    }
    out.operation = TextOf(newest->operation);
    out.sequence = newest->sequence;
    if (newest->peer >= 0) out.peer = static_cast<int>(newest->peer);
    out.bytes = newest->count * newest->element_bytes;
    out.entered_ns = TimeOf(newest->entered);
    if (newest->left != 0) out.left_ns = std::max(TimeOf(newest->left), out.entered_ns);
    out.result = static_cast<int>(newest->result);
    out.calls = newest->number;
    out_.calls.push_back(std::move(out));
  }

  void ReadFailures() {
    std::vector<const flight::Failure*> whole;
    for (const flight::Failure& failure : ring_.process.failures) {
      if (IsWhole(failure)) whole.push_back(&failure);
    }
    std::sort(whole.begin(), whole.end(), [](const auto* a, const auto* b) { return a->number > b->number; });
    for (const flight::Failure* failure : whole) {
      const auto kind = static_cast<flight::FailureKind>(failure->kind);
      out_.failures.push_back({.kind = kind == flight::FailureKind::kAllocation ? "allocation"
                                       : kind == flight::FailureKind::kLaunch   ? "launch"
                                                                                : "nccl",
                               .call = TextOf(failure->call),
                               .code = failure->code,
                               .bytes = failure->bytes,
                               .at_ns = TimeOf(failure->stamp)});
    }
  }

  void ReadStack() {
    const flight::Stack* newest = nullptr;
    for (const flight::Stack& stack : ring_.process.stacks) {
      if (!IsWhole(stack)) continue;
      if (newest == nullptr || stack.number > newest->number) newest = &stack;
    }
    if (newest == nullptr || newest->frames == 0) return;
    analysis::LastStack& out = out_.stack.emplace();
    out.at_ns = newest->realtime_ns;
    out.tid = newest->tid;
    out.call = TextOf(newest->call);
    for (uint32_t i = 0; i < std::min(newest->frames, flight::kFrames); ++i) {
      const flight::Frame& frame = newest->frame[i];
      out.python.push_back(
          {.function = TextOf(frame.function), .file = TextOf(frame.file), .line = frame.line});
    }
    See(out.at_ns);
  }

  const flight::Ring& ring_;
  const RingClock clock_;
  LastMoments out_;
};

}  // namespace

LastMoments MomentsOf(const flight::Ring& ring, const std::string& name) { return Reader(ring, name).Read(); }

std::vector<LastMoments> LastMomentsIn(const std::string& directory, Missing missing) {
  constexpr int kReadings = 5;  // of a ring that is being written
  std::vector<LastMoments> all;
  for (const std::string& name : store::RingsIn(directory)) {
    LastMoments best;
    for (int i = 0; i < kReadings; ++i) {
      const auto ring = store::ReadRing(absl::StrCat(directory, "/", name));
      if (!ring.ok()) {
        best = {.ring = name, .unreadable = std::string(ring.status().message())};
        break;
      }
      LastMoments read = MomentsOf(**ring, name);
      if (i == 0 || read.torn < best.torn) best = std::move(read);
      if (best.torn == 0) break;
    }
    if (missing == Missing::kName || best.unreadable.empty()) all.push_back(std::move(best));
  }
  return all;
}

}  // namespace gpuprobe::recording
