#include "injector/rows/frames.h"

#include <cstring>
#include <ctime>

#include "injector/base/losses.h"
#include "injector/core/identity.h"
#include "proto/limits.h"

namespace gpuprobe::injector {

namespace {

constexpr char kProbeVersion[] = GPUPROBE_VERSION;

uint64_t ClockNs(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

void EncodeIdentity(const Identity& identity, WireWriter& hello) noexcept {
  using Tag = wire::IdentityTag;
  WireWriter message(hello, Number(wire::HelloTag::kIdentity));
  message.add_int32(Number(Tag::kRank), identity.rank);
  message.add_int32(Number(Tag::kLocalRank), identity.local_rank);
  message.add_int32(Number(Tag::kWorldSize), identity.world_size);
  message.add_enum(Number(Tag::kRankSource), static_cast<int32_t>(identity.rank_source));
  message.add_bytes(Number(Tag::kJob), identity.job, std::strlen(identity.job));
  message.add_bytes(Number(Tag::kHost), identity.host, std::strlen(identity.host));
  message.add_uint32(Number(Tag::kPid), identity.pid);
  message.add_fixed64(Number(Tag::kProcessStartNs), identity.process_start_ns);
  message.add_bytes(Number(Tag::kExecutable), identity.executable, std::strlen(identity.executable));
  size_t offset = 0;
  while (offset < identity.command_line_bytes) {
    const char* argument = identity.command_line + offset;
    const size_t length = strnlen(argument, identity.command_line_bytes - offset);
    message.add_bytes(Number(Tag::kCommandLine), argument, length);
    offset += length + 1;
  }
  message.add_uint32(Number(Tag::kUid), identity.uid);
  message.add_bytes(Number(Tag::kRun), identity.run, std::strlen(identity.run));
}

// Encodes a small message behind its prefix. `encode(WireWriter&)` writes its fields.
template <typename Encode>
bool AppendFrame(wire::FrameTag tag, WireBuffer* out, Encode&& encode) noexcept {
  if (out->room() <= kFramePrefixBytes) return false;
  char* start = out->data + out->size;
  WireBuffer body{start + kFramePrefixBytes, out->room() - kFramePrefixBytes};
  {
    WireWriter message(body);
    encode(message);
  }
  if (body.overflowed) return false;
  const size_t prefix = WriteFramePrefix(start, tag, body.size);
  std::memmove(start, start + kFramePrefixBytes - prefix, prefix + body.size);
  out->size += prefix + body.size;
  return true;
}

}  // namespace

size_t WriteFramePrefix(char* start, wire::FrameTag tag, size_t body_bytes) noexcept {
  constexpr uint32_t kLengthDelimited = 2;
  char field[kFramePrefixBytes];
  size_t field_bytes =
      static_cast<size_t>(protozero::add_varint_to_buffer(field, (Number(tag) << 3) | kLengthDelimited));
  field_bytes += static_cast<size_t>(protozero::add_varint_to_buffer(field + field_bytes, body_bytes));
  char length[kFramePrefixBytes];
  const auto length_bytes =
      static_cast<size_t>(protozero::add_varint_to_buffer(length, field_bytes + body_bytes));
  const size_t total = length_bytes + field_bytes;
  char* out = start + kFramePrefixBytes - total;
  std::memcpy(out, length, length_bytes);
  std::memcpy(out + length_bytes, field, field_bytes);
  return total;
}

namespace {

struct Clocks {
  uint64_t realtime_ns;
  uint64_t monotonic_ns;
};

// Both at one time: a thread that is interrupted in between would seem to have had its clock set.
Clocks ReadClocks() noexcept {
  constexpr int kTries = 8;
  constexpr uint64_t kClose = 1'000;
  Clocks best{};
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < kTries && least_ns > kClose; ++i) {
    const uint64_t before_ns = ClockNs(CLOCK_MONOTONIC);
    const uint64_t realtime_ns = ClockNs(CLOCK_REALTIME);
    const uint64_t apart_ns = ClockNs(CLOCK_MONOTONIC) - before_ns;
    if (apart_ns >= least_ns) continue;
    least_ns = apart_ns;
    best = {realtime_ns, before_ns + apart_ns / 2};
  }
  return best;
}

}  // namespace

void EncodeClockPair(WireWriter& message, protozero::pbf_tag_type tag) noexcept {
  const Clocks clocks = ReadClocks();
  WireWriter pair(message, tag);
  pair.add_fixed64(Number(wire::ClockPairTag::kRealtimeNs), clocks.realtime_ns);
  pair.add_fixed64(Number(wire::ClockPairTag::kMonotonicNs), clocks.monotonic_ns);
}

bool EncodeHello(const Identity& identity, const HelloFacts& facts, WireBuffer* out) noexcept {
  using Tag = wire::HelloTag;
  return AppendFrame(wire::FrameTag::kHello, out, [&](WireWriter& hello) {
    hello.add_uint32(Number(Tag::kProtocolMajor), wire::kProtocolMajor);
    hello.add_uint32(Number(Tag::kProtocolMinor), wire::kProtocolMinor);
    hello.add_bytes(Number(Tag::kProbeVersion), kProbeVersion, sizeof(kProbeVersion) - 1);
    EncodeIdentity(identity, hello);
    EncodeClockPair(hello, Number(Tag::kClock));
    hello.add_enum(Number(Tag::kTimingSource),
                   static_cast<int32_t>(facts.has_gpu_times ? wire::TimingSource::kTimingSourceCuptiActivity
                                                            : wire::TimingSource::kTimingSourceNone));
    hello.add_enum(Number(Tag::kLoadedBy), static_cast<int32_t>(facts.loaded_by));
    hello.add_uint32(Number(Tag::kRecordingRanks), facts.recording_ranks);
    hello.add_fixed64(Number(Tag::kInstance), facts.instance);
    hello.add_uint64(Number(Tag::kFirstSequence), facts.first_sequence);
    hello.add_uint64(Number(Tag::kRecordsBefore), facts.records_before);
    hello.add_bytes(Number(Tag::kWantedDirectory), facts.wanted_directory.data(),
                    facts.wanted_directory.size());
    hello.add_uint32(Number(Tag::kResumes), facts.resumes ? 1 : 0);
    if (facts.steps.on_demand) {
      hello.add_enum(
          Number(Tag::kLevel),
          static_cast<int32_t>(facts.steps.traces_calls ? wire::RecordingLevel::kRecordingLevelCalls
                                                        : wire::RecordingLevel::kRecordingLevelIdle));
    }
    if (facts.steps.on_demand || facts.steps.marker == StepRule::Marker::kNone) return;
    using StepsTag = wire::RecordingStepsTag;
    WireWriter steps(hello, Number(Tag::kRecordingSteps));
    steps.add_bytes(Number(StepsTag::kMarker), facts.step_marker.data(), facts.step_marker.size());
    steps.add_uint64(Number(StepsTag::kStart), facts.steps.start);
    steps.add_uint64(Number(StepsTag::kStop), facts.steps.stop == UINT64_MAX ? 0 : facts.steps.stop);
    steps.add_uint64(Number(StepsTag::kEvery), facts.steps.every);
  });
}

void EncodeLosses(WireWriter& message, protozero::pbf_tag_type tag) noexcept {
  for (int reason = 0; reason < kLossReasons; ++reason) {
    const uint64_t records = LossCount(static_cast<wire::LossReason>(reason));
    if (records == 0) continue;
    WireWriter loss(message, tag);
    loss.add_enum(Number(wire::LossTag::kReason), reason);
    loss.add_uint64(Number(wire::LossTag::kRecords), records);
  }
}

bool EncodeBye(const ByeFacts& facts, WireBuffer* out) noexcept {
  using Tag = wire::ByeTag;
  return AppendFrame(wire::FrameTag::kBye, out, [&](WireWriter& bye) {
    bye.add_enum(Number(Tag::kReason), static_cast<int32_t>(facts.reason));
    EncodeClockPair(bye, Number(Tag::kClock));
    bye.add_uint64(Number(Tag::kBatches), facts.batches);
    bye.add_uint64(Number(Tag::kRecords), facts.records);
    if (facts.ends_collector) bye.add_uint32(Number(Tag::kEndsCollector), 1);
    EncodeLosses(bye, Number(Tag::kLosses));
  });
}

}  // namespace gpuprobe::injector
