#include "collector/timeline/perfetto_trace.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "collector/timeline/deflate.h"
#include "collector/timeline/perfetto_schema.h"
#include "protozero/pbf_writer.hpp"

namespace gpuprobe::timeline {
namespace {

using protozero::pbf_writer;

constexpr size_t kBlockBytes = size_t{256} << 10;
constexpr uint32_t kClockSequence = 1;  // of the packets that belong to no process
constexpr uint32_t kFirstProcessSequence = 2;

const char* NameOf(Category category) {
  switch (category) {
    case Category::kKernel:
      return "kernel";
    case Category::kCollectiveKernel:
      return "nccl_kernel";
    case Category::kCopy:
      return "memcpy";
    case Category::kMemset:
      return "memset";
    case Category::kGraph:
      return "graph";
    case Category::kLaunch:
      return "launch";
    case Category::kCall:
      return "nccl_call";
    case Category::kDriverCall:
      return "driver_call";
    case Category::kHostSample:
      return "host_sample";
    case Category::kRange:
      return "range";
    case Category::kMark:
      return "mark";
    case Category::kWait:
      return "wait";
    case Category::kStep:
      return "step";
  }
  return "";
}

// Where a track stands among its process's: steps first, then ranges, waits, samples of the host and streams,
// then counters.
int32_t OrderOf(const TrackKey& track) {
  constexpr int32_t kStreams = 100;
  switch (track.kind) {
    case TrackKind::kSteps:
      return 0;
    case TrackKind::kRanges:
      return 1;
    case TrackKind::kWaits:
      return 2;
    case TrackKind::kHost:
      return 3;
    default:
      return kStreams + static_cast<int32_t>(track.id);
  }
}

constexpr int32_t kCounterOrder = 1000;

}  // namespace

PerfettoTrace::PerfettoTrace(ByteSink& out, uint64_t begin_ns) : out_(out) {
  namespace clock = perfetto::clock_snapshot;
  std::string packet;
  pbf_writer writer(packet);
  writer.add_uint32(perfetto::packet::kTrustedPacketSequenceId, kClockSequence);
  {
    pbf_writer snapshot(writer, perfetto::packet::kClockSnapshot);
    for (const uint32_t id : {clock::kRealtime, clock::kBoottime}) {
      pbf_writer reading(snapshot, clock::kClocks);
      reading.add_uint32(clock::kClockId, id);
      reading.add_uint64(clock::kClockTimestamp, begin_ns);
    }
    snapshot.add_uint32(clock::kPrimaryTraceClock, clock::kRealtime);
  }
  Append(packet);
}

void PerfettoTrace::Append(const std::string& packet) {
  pbf_writer(block_).add_message(perfetto::trace::kPacket, packet);
  if (block_.size() >= kBlockBytes) FlushBlock();
}

void PerfettoTrace::FlushBlock() {
  if (block_.empty()) return;
  std::string packet;
  pbf_writer(packet).add_bytes(perfetto::packet::kCompressedPackets, Deflate(block_));
  std::string framed;
  pbf_writer(framed).add_message(perfetto::trace::kPacket, packet);
  out_.Write(framed);
  block_.clear();
}

PerfettoProcess::PerfettoProcess(PerfettoTrace& trace, const Process& process, uint64_t limit_bytes)
    : trace_(trace),
      process_(process),
      limit_bytes_(limit_bytes),
      process_uuid_(uint64_t{process.index + 1} << 32),
      next_uuid_(process_uuid_ + 1),
      categories_{perfetto::interned_data::kEventCategories, {}},
      names_{perfetto::interned_data::kEventNames, {}},
      arg_names_{perfetto::interned_data::kDebugAnnotationNames, {}},
      arg_texts_{perfetto::interned_data::kDebugAnnotationStringValues, {}} {
  BeginSequence();
  namespace track = perfetto::track_descriptor;
  namespace descriptor = perfetto::process_descriptor;
  BeginPacket(0);
  pbf_writer packet(packet_);
  {
    pbf_writer t(packet, perfetto::packet::kTrackDescriptor);
    t.add_uint64(track::kUuid, process_uuid_);
    t.add_int32(track::kChildOrdering, track::kExplicitOrder);
    pbf_writer p(t, track::kProcess);
    p.add_int32(descriptor::kPid, static_cast<int32_t>(process.shown_pid));
    p.add_string(descriptor::kProcessName, process.name);
    p.add_int32(descriptor::kLegacySortIndex,
                process.rank >= 0 ? process.rank : static_cast<int32_t>(process.index));
    p.add_string(descriptor::kProcessLabels, absl::StrCat(process.host, " pid ", process.pid));
  }
  EndPacket();
}

// Without text numbers, which the sequence's first packets define anew.
void PerfettoProcess::BeginSequence() {
  for (Interned* table : {&categories_, &names_, &arg_names_, &arg_texts_}) table->ids.clear();
  std::string packet;
  pbf_writer writer(packet);
  writer.add_uint32(perfetto::packet::kTrustedPacketSequenceId, kFirstProcessSequence + process_.index);
  writer.add_uint32(perfetto::packet::kSequenceFlags, perfetto::packet::kIncrementalStateCleared);
  writer.add_bool(perfetto::packet::kFirstPacketOnSequence, true);
  {
    pbf_writer defaults(writer, perfetto::packet::kTracePacketDefaults);
    defaults.add_uint32(perfetto::packet_defaults::kTimestampClockId, perfetto::clock_snapshot::kRealtime);
  }
  trace_.Append(packet);
}

uint64_t PerfettoProcess::Intern(Interned& table, std::string_view text) {
  const auto [it, added] =
      table.ids.try_emplace(absl::string_view(text.data(), text.size()), table.ids.size() + 1);
  if (added) {
    pbf_writer texts(new_texts_);
    pbf_writer entry(texts, table.field);
    entry.add_uint64(perfetto::interned_data::kIid, it->second);
    entry.add_string(perfetto::interned_data::kText, text.data(), text.size());
  }
  return it->second;
}

uint64_t PerfettoProcess::FlowId(const Flow& flow) const {
  // Unique within the trace: process, kind, number.
  return (uint64_t{process_.index + 1} << 44 | flow.id) << 1 | (flow.kind == FlowKind::kCall ? 1 : 0);
}

void PerfettoProcess::BeginPacket(uint64_t time_ns) {
  packet_.clear();
  event_.clear();
  new_texts_.clear();
  pbf_writer packet(packet_);
  if (time_ns != 0) packet.add_uint64(perfetto::packet::kTimestamp, time_ns);
  packet.add_uint32(perfetto::packet::kTrustedPacketSequenceId, kFirstProcessSequence + process_.index);
  packet.add_uint32(perfetto::packet::kSequenceFlags, perfetto::packet::kNeedsIncrementalState);
}

void PerfettoProcess::EndPacket() {
  pbf_writer packet(packet_);
  if (!new_texts_.empty()) packet.add_message(perfetto::packet::kInternedData, new_texts_);
  if (!event_.empty()) packet.add_message(perfetto::packet::kTrackEvent, event_);
  trace_.Append(packet_);
}

void PerfettoProcess::DescribeTrack(const TrackKey& key, const std::string& name) {
  namespace track = perfetto::track_descriptor;
  namespace descriptor = perfetto::thread_descriptor;
  const uint64_t uuid = tracks_[key] = next_uuid_++;
  BeginPacket(0);
  {
    pbf_writer packet(packet_);
    pbf_writer t(packet, perfetto::packet::kTrackDescriptor);
    t.add_uint64(track::kUuid, uuid);
    t.add_uint64(track::kParentUuid, process_uuid_);
    if (key.kind == TrackKind::kThread && key.lane == 0) {
      pbf_writer thread(t, track::kThread);
      thread.add_int32(descriptor::kPid, static_cast<int32_t>(process_.shown_pid));
      thread.add_int32(descriptor::kTid, static_cast<int32_t>(key.id));
      thread.add_string(descriptor::kThreadName, name);
    } else {
      t.add_string(track::kName, name);
      t.add_int32(track::kSiblingOrderRank, OrderOf(key));
    }
  }
  EndPacket();
}

void PerfettoProcess::DescribeCounter(const Counter& counter, const std::string& name, Unit unit) {
  namespace track = perfetto::track_descriptor;
  namespace descriptor = perfetto::counter_descriptor;
  const uint64_t uuid = counters_[counter] = next_uuid_++;
  BeginPacket(0);
  {
    pbf_writer packet(packet_);
    pbf_writer t(packet, perfetto::packet::kTrackDescriptor);
    t.add_uint64(track::kUuid, uuid);
    t.add_uint64(track::kParentUuid, process_uuid_);
    t.add_string(track::kName, name);
    t.add_int32(track::kSiblingOrderRank, kCounterOrder);
    pbf_writer c(t, track::kCounter);
    if (unit == Unit::kBytes) c.add_int32(descriptor::kUnit, descriptor::kSizeBytes);
    if (unit == Unit::kNanoseconds) c.add_int32(descriptor::kUnit, descriptor::kTimeNs);
    if (unit == Unit::kPercent) c.add_string(descriptor::kUnitName, "%");
  }
  EndPacket();
}

void PerfettoProcess::OnCounter(const Counter& counter, uint64_t time_ns, double value) {
  namespace tag = perfetto::track_event;
  BeginPacket(time_ns);
  pbf_writer event(event_);
  event.add_int32(tag::kType, tag::kCounter);
  event.add_uint64(tag::kTrackUuid, counters_.at(counter));
  if (value == std::floor(value)) {
    event.add_int64(tag::kCounterValue, static_cast<int64_t>(value));
  } else {
    event.add_double(tag::kDoubleCounterValue, value);
  }
  EndPacket();
}

void PerfettoProcess::OnEvent(const Event& e) {
  namespace tag = perfetto::track_event;
  namespace annotation = perfetto::debug_annotation;
  if (names_.ids.size() + arg_texts_.ids.size() > kMaxInterned) BeginSequence();
  const uint64_t uuid = tracks_.at(e.track);
  BeginPacket(e.start_ns);
  {
    pbf_writer event(event_);
    event.add_int32(tag::kType, IsMoment(e.category) ? tag::kInstant : tag::kSliceBegin);
    event.add_uint64(tag::kTrackUuid, uuid);
    event.add_uint64(tag::kCategoryIids, Intern(categories_, NameOf(e.category)));
    event.add_uint64(tag::kNameIid, Intern(names_, e.name));
    for (const Flow& flow : e.begins) event.add_fixed64(tag::kFlowIds, FlowId(flow));
    for (const Flow& flow : e.ends) event.add_fixed64(tag::kTerminatingFlowIds, FlowId(flow));
    for (const Arg& arg : e.args) {
      pbf_writer a(event, tag::kDebugAnnotations);
      a.add_uint64(annotation::kNameIid, Intern(arg_names_, arg.key));
      if (const auto* u = std::get_if<uint64_t>(&arg.value)) a.add_uint64(annotation::kUintValue, *u);
      if (const auto* i = std::get_if<int64_t>(&arg.value)) a.add_int64(annotation::kIntValue, *i);
      if (const auto* d = std::get_if<double>(&arg.value)) a.add_double(annotation::kDoubleValue, *d);
      if (const auto* text = std::get_if<std::string_view>(&arg.value))
        a.add_uint64(annotation::kStringValueIid, Intern(arg_texts_, *text));
    }
  }
  EndPacket();
  if (IsMoment(e.category)) return;
  BeginPacket(e.end_ns);
  pbf_writer event(event_);
  event.add_int32(tag::kType, tag::kSliceEnd);
  event.add_uint64(tag::kTrackUuid, uuid);
  EndPacket();
}

}  // namespace gpuprobe::timeline
