#include "collector/timeline/chrome_trace.h"

#include <cmath>
#include <cstdio>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collector/timeline/json_text.h"

namespace gpuprobe::timeline {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
// Thread ids of tracks that are no threads: above those that Linux gives.
constexpr uint64_t kFirstOwnThread = uint64_t{1} << 23;

std::string Quoted(std::string_view text) {
  std::string out;
  AppendQuoted(out, text);
  return out;
}

void AppendNumber(std::string& out, double value) {
  if (std::isfinite(value)) {
    absl::StrAppendFormat(&out, "%.12g", value);
  } else {
    out += "null";
  }
}

void AppendValue(std::string& out, const Arg& arg) {
  if (const auto* u = std::get_if<uint64_t>(&arg.value)) absl::StrAppend(&out, *u);
  if (const auto* i = std::get_if<int64_t>(&arg.value)) absl::StrAppend(&out, *i);
  if (const auto* d = std::get_if<double>(&arg.value)) AppendNumber(out, *d);
  if (const auto* text = std::get_if<std::string_view>(&arg.value)) {
    if (arg.json) {
      out.append(*text);
    } else {
      AppendQuoted(out, *text);
    }
  }
}

const char* CategoryName(Category category) {
  switch (category) {
    case Category::kKernel:
    case Category::kCollectiveKernel:
    case Category::kGraph:
      return "kernel";
    case Category::kCopy:
      return "gpu_memcpy";
    case Category::kMemset:
      return "gpu_memset";
    case Category::kLaunch:
    case Category::kWait:
      return "cuda_runtime";
    case Category::kCall:
      return "cpu_op";
    case Category::kDriverCall:
      return "cuda_driver";
    case Category::kHostSample:
      return "host_sample";
    case Category::kRange:
    case Category::kMark:
    case Category::kStep:
      return "user_annotation";
  }
  return "";
}

}  // namespace

ChromeTrace::ChromeTrace(ByteSink& out, const Process& process, uint64_t base_ns, uint64_t limit_bytes)
    : out_(out), process_(process), base_ns_(base_ns), limit_bytes_(limit_bytes) {
  buffer_ = "{\n\"schemaVersion\": 1,\n";
  // Tools find the rank by this text; the space after the colon is part of it.
  if (process.rank >= 0)
    absl::StrAppend(&buffer_, "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": ", process.rank,
                    ", \"world_size\": ", process.world_size, "},\n");
  buffer_ += "\"deviceProperties\": [";
  for (const Process::Device& device : process.devices) {
    absl::StrAppend(
        &buffer_, &device == &process.devices.front() ? "\n" : ",\n", "  {\"id\": ", device.ordinal,
        ", \"name\": ", Quoted(device.name), ", \"totalGlobalMem\": ", device.memory_bytes,
        ", \"computeMajor\": ", device.compute_major, ", \"computeMinor\": ", device.compute_minor,
        ", \"numSms\": ", device.multiprocessors, "}");
  }
  absl::StrAppend(&buffer_, "],\n\"baseTimeNanoseconds\": ", base_ns, ",\n\"displayTimeUnit\": \"ms\",\n",
                  "\"traceEvents\": [\n");
  const Place host{.pid = process.pid, .tid = 0};
  Metadata("process_name", host, absl::StrCat("\"name\": ", Quoted(process.name)));
  Metadata("process_labels", host, absl::StrCat("\"labels\": ", Quoted(process.host)));
  for (const Process::Device& device : process.devices) {
    const Place place{.pid = device.ordinal, .tid = 0};
    Metadata("process_name", place, absl::StrCat("\"name\": ", Quoted(process.name)));
    Metadata("process_labels", place, absl::StrCat("\"labels\": \"GPU ", device.ordinal, "\""));
    Metadata("process_sort_index", place, absl::StrCat("\"sort_index\": ", kFirstOwnThread + device.ordinal));
  }
}

ChromeTrace::Place ChromeTrace::PlaceOf(const TrackKey& track) const {
  switch (track.kind) {
    case TrackKind::kStream:
      return {.pid = track.id, .tid = track.stream};
    case TrackKind::kThread:
      return {.pid = process_.pid, .tid = track.id};
    case TrackKind::kSteps:
      return {.pid = process_.pid, .tid = kFirstOwnThread};
    case TrackKind::kRanges:
      return {.pid = process_.pid, .tid = kFirstOwnThread + 1};
    case TrackKind::kHost:
      return {.pid = process_.pid, .tid = 2 * kFirstOwnThread + track.id};
    case TrackKind::kWaits:
      break;
  }
  return {.pid = process_.pid, .tid = kFirstOwnThread + 2};
}

void ChromeTrace::BeginEvent(const char* phase) {
  absl::StrAppend(&buffer_, first_ ? "" : ",\n", "{\"ph\": \"", phase, "\"");
  first_ = false;
}

void ChromeTrace::EndEvent() {
  buffer_.push_back('}');
  if (buffer_.size() < kBufferBytes) return;
  out_.Write(buffer_);
  buffer_.clear();
}

void ChromeTrace::Time(const char* key, uint64_t ns) {
  const uint64_t fraction = ns % 1000;
  absl::StrAppend(&buffer_, ", \"", key, "\": ", ns / 1000,
                  fraction < 10    ? ".00"
                  : fraction < 100 ? ".0"
                                   : ".",
                  fraction);
}

void ChromeTrace::Metadata(const char* name, Place place, const std::string& arg) {
  BeginEvent("M");
  absl::StrAppend(&buffer_, ", \"name\": \"", name, "\", \"pid\": ", place.pid, ", \"tid\": ", place.tid,
                  ", \"args\": {", arg, "}");
  EndEvent();
}

void ChromeTrace::DescribeTrack(const TrackKey& track, const std::string& name) {
  if (track.lane > 0) return;  // tools know streams and threads, and no lanes
  const Place place = PlaceOf(track);
  Metadata("thread_name", place, absl::StrCat("\"name\": ", Quoted(name)));
  Metadata("thread_sort_index", place, absl::StrCat("\"sort_index\": ", place.tid));
}

void ChromeTrace::DescribeCounter(const Counter& counter, const std::string& name, Unit unit) {
  const bool host = counter.kind == CounterKind::kPinnedMemory;
  counters_[counter] = {.name = Quoted(name),
                        .unit = unit == Unit::kBytes         ? "bytes"
                                : unit == Unit::kNanoseconds ? "ns"
                                                             : "%",
                        .pid = host ? process_.pid : counter.device};
}

void ChromeTrace::OnCounter(const Counter& counter, uint64_t time_ns, double value) {
  const CounterText& text = counters_.at(counter);
  BeginEvent("C");
  absl::StrAppend(&buffer_, ", \"name\": ", text.name, ", \"pid\": ", text.pid);
  Time("ts", time_ns - base_ns_);
  absl::StrAppend(&buffer_, ", \"args\": {\"", text.unit, "\": ");
  AppendNumber(buffer_, value);
  buffer_.push_back('}');
  EndEvent();
}

void ChromeTrace::OnFlow(const Flow& flow, bool begins, Place place, uint64_t time_ns) {
  const char* name = flow.kind == FlowKind::kLaunch ? "ac2g" : "nccl";
  BeginEvent(begins ? "s" : "f");
  absl::StrAppend(&buffer_, ", \"id\": ", flow.id, ", \"pid\": ", place.pid, ", \"tid\": ", place.tid);
  Time("ts", time_ns - base_ns_);
  absl::StrAppend(&buffer_, ", \"cat\": \"", name, "\", \"name\": \"", name,
                  begins ? "\"" : "\", \"bp\": \"e\"");
  EndEvent();
}

void ChromeTrace::OnEvent(const Event& e) {
  constexpr std::string_view kStep = "step ";
  const Place place = PlaceOf(e.track);
  BeginEvent(e.category == Category::kMark ? "i" : "X");
  absl::StrAppend(&buffer_, ", \"cat\": \"", CategoryName(e.category), "\", \"name\": ");
  if (e.category == Category::kStep) {
    AppendQuoted(buffer_, "ProfilerStep#" + std::string(e.name.substr(kStep.size())));
  } else {
    AppendQuoted(buffer_, e.name);
  }
  absl::StrAppend(&buffer_, ", \"pid\": ", place.pid, ", \"tid\": ", place.tid);
  Time("ts", e.start_ns - base_ns_);
  if (e.category == Category::kMark) {
    buffer_ += ", \"s\": \"t\"";
  } else {
    Time("dur", e.end_ns - e.start_ns);
  }
  if (!e.args.empty()) {
    buffer_ += ", \"args\": {";
    for (const Arg& arg : e.args) {
      if (&arg != &e.args.front()) buffer_ += ", ";
      AppendQuoted(buffer_, arg.key);
      buffer_ += ": ";
      AppendValue(buffer_, arg);
    }
    buffer_.push_back('}');
  }
  EndEvent();
  for (const Flow& flow : e.begins) OnFlow(flow, true, place, e.start_ns);
  for (const Flow& flow : e.ends) OnFlow(flow, false, place, e.start_ns);
}

void ChromeTrace::Finish() {
  buffer_ += "\n]\n}\n";
  out_.Write(buffer_);
  buffer_.clear();
}

}  // namespace gpuprobe::timeline
