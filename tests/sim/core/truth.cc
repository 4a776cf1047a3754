#include "tests/sim/core/truth.h"

#include <cuda.h>
#include <cupti.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <regex>

#include "tests/sim/core/knobs.h"

namespace gpusim {
namespace {

void AppendQuoted(const char* text, std::string* out) {
  out->push_back('"');
  for (const char* at = text; *at != '\0'; ++at) {
    const auto byte = static_cast<unsigned char>(*at);
    if (byte == '"' || byte == '\\') {
      out->push_back('\\');
      out->push_back(*at);
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
      *out += escaped;
    } else {
      out->push_back(*at);
    }
  }
  out->push_back('"');
}

// One line under construction.
class Line {
 public:
  Line(const char* kind, std::string* out) : out_(out) {
    *out_ += "{\"kind\":\"";
    *out_ += kind;
    *out_ += '"';
    Number("rank", ProcessRank());
    Number("pid", getpid());
  }
  ~Line() { *out_ += "}\n"; }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void Number(const char* key, int64_t value) {
    Key(key);
    *out_ += std::to_string(value);
  }
  void Unsigned(const char* key, uint64_t value) {
    Key(key);
    *out_ += std::to_string(value);
  }
  void Text(const char* key, const char* value) {
    Key(key);
    AppendQuoted(value, out_);
  }
  void Triple(const char* key, const uint32_t* value) {
    Key(key);
    *out_ += '[' + std::to_string(value[0]) + ',' + std::to_string(value[1]) + ',' +
             std::to_string(value[2]) + ']';
  }
  void True(const char* key) {
    Key(key);
    *out_ += "true";
  }
  void Work(const Activity& activity) {
    Unsigned("device", activity.device);
    Unsigned("stream", activity.stream_id);
    Unsigned("start_ns", activity.start_ns);
    Unsigned("end_ns", activity.end_ns);
    Unsigned("correlation", activity.correlation);
    Unsigned("tid", activity.tid);
  }
  // When the launch was made; for an NCCL call, AppendCall writes that time.
  void Launch(const Activity& activity) { Unsigned("issue_ns", activity.issue_ns); }

 private:
  void Key(const char* key) {
    *out_ += ",\"";
    *out_ += key;
    *out_ += "\":";
  }
  std::string* out_;
};

const char* MemoryName(int memory) {
  switch (memory) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
      return "pageable";
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
      return "pinned";
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
      return "managed";
    default:
      return "device";
  }
}

const char* DirectionName(const Activity& copy) {
  if (copy.kind == ActivityKind::kPeerCopy) return "p2p";
  switch (copy.copy_kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return "h2d";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return "d2h";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "h2h";
    default:
      return "d2d";
  }
}

const char* SyncName(int type) {
  switch (type) {
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE:
      return "event";
    case CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE:
      return "stream";
    default:
      return "device";
  }
}

int OpenTruth() {
  const std::string& dir = GetKnobs().truth_dir;
  mkdir(dir.c_str(), 0777);  // may exist; open says what is wrong
  const std::string path = dir + "/" + std::to_string(getpid()) + ".jsonl";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) std::fprintf(stderr, "gpusim: GPUSIM_TRUTH: %s: %s\n", path.c_str(), std::strerror(errno));
  return fd;
}

// The API's arguments, and the call's place among the communicator's.
void AppendCall(const CollectiveTruth& call, Line& line) {
  line.Text("op", call.op.c_str());
  line.Text("comm", call.comm.c_str());
  line.Unsigned("seq", call.seq);
  line.Number("comm_rank", call.comm_rank);
  line.Number("comm_ranks", call.comm_ranks);
  line.Unsigned("count", call.count);
  line.Text("datatype", call.datatype.c_str());
  line.Unsigned("bytes", call.bytes);
  if (!call.reduction.empty()) line.Text("reduction", call.reduction.c_str());
  line.Number("root", call.root);
  line.Number("peer", call.peer);
  line.Unsigned("issue_ns", call.issue_ns);
}

}  // namespace

bool TruthWanted() { return !GetKnobs().truth_dir.empty(); }

void AppendTruth(const Activity& activity, std::string* lines) {
  switch (activity.kind) {
    case ActivityKind::kKernel: {
      Line line("kernel", lines);
      line.Work(activity);
      line.Launch(activity);
      line.Text("name", activity.name);
      line.Unsigned("graph_node", activity.graph_node);
      line.Triple("grid", activity.grid);
      line.Triple("block", activity.block);
      break;
    }
    case ActivityKind::kMemcpy:
    case ActivityKind::kPeerCopy: {
      Line line("memcpy", lines);
      line.Work(activity);
      line.Launch(activity);
      line.Text("direction", DirectionName(activity));
      line.Unsigned("bytes", activity.bytes);
      line.Text("src_memory", MemoryName(activity.src_memory));
      line.Text("dst_memory", MemoryName(activity.dst_memory));
      if (activity.graph_node != 0) line.Unsigned("graph_node", activity.graph_node);
      if (activity.kind == ActivityKind::kPeerCopy)
        line.Unsigned("peer_device",
                      activity.device == activity.src_device ? activity.dst_device : activity.src_device);
      break;
    }
    case ActivityKind::kMemset: {
      Line line("memset", lines);
      line.Work(activity);
      line.Launch(activity);
      line.Unsigned("bytes", activity.bytes);
      break;
    }
    case ActivityKind::kSync: {
      Line line("sync", lines);
      line.Work(activity);
      line.Launch(activity);
      line.Text("what", SyncName(activity.sync_type));
      break;
    }
    case ActivityKind::kMemory:
    case ActivityKind::kMemoryPool:
      break;  // AppendMemoryTruth
  }
}

void AppendTruth(const Activity& kernel, const CollectiveTruth& call, std::string* lines) {
  Line line("collective", lines);
  line.Work(kernel);
  AppendCall(call, line);
  line.Unsigned("plan", call.plan);
  if (!call.algorithm.empty()) {
    line.Text("algorithm", call.algorithm.c_str());
    line.Text("protocol", call.protocol.c_str());
    line.Number("channels", call.channels);
  }
  if (call.replay != 0) line.Unsigned("replay", call.replay);
}

void LogCallWithoutKernel(const CollectiveTruth& call, int result) {
  if (!TruthWanted()) return;
  std::string lines;
  {
    Line line("collective", &lines);
    AppendCall(call, line);
    line.Unsigned("plan", 0);
    if (result != 0) line.Number("result", result);
  }
  WriteTruth(lines);
}

void LogCommunicator(const CommunicatorTruth& communicator) {
  if (!TruthWanted()) return;
  std::string lines;
  {
    Line line("communicator", &lines);
    line.Text("comm", communicator.comm.c_str());
    if (!communicator.parent.empty()) line.Text("parent", communicator.parent.c_str());
    if (!communicator.name.empty()) line.Text("comm_name", communicator.name.c_str());
    line.Number("comm_rank", communicator.comm_rank);
    line.Number("comm_ranks", communicator.comm_ranks);
    line.Number("device", communicator.device);
    line.Text("state", communicator.state);
    line.Unsigned("time_ns", NowNs());
  }
  WriteTruth(lines);
}

void LogOverhead(const char* what, uint64_t start_ns, uint64_t end_ns, uint32_t correlation) {
  if (!TruthWanted()) return;
  std::string lines;
  {
    Line line("overhead", &lines);
    line.Unsigned("start_ns", start_ns);
    line.Unsigned("end_ns", end_ns);
    line.Unsigned("correlation", correlation);
    line.Text("what", what);
  }
  WriteTruth(lines);
}

void AppendMemoryTruth(bool is_free, const char* memory, uint64_t bytes, uint64_t address, uint64_t time_ns,
                       uint32_t device, uint32_t correlation, bool failed, std::string* lines) {
  Line line(is_free ? "free" : "alloc", lines);
  line.Unsigned("device", device);
  line.Unsigned("correlation", correlation);
  line.Text("memory", memory);
  line.Unsigned("bytes", bytes);
  line.Unsigned("address", address);
  line.Unsigned("time_ns", time_ns);
  if (failed) line.True("failed");
}

void AppendPoolTruth(const char* event, int device, uint64_t pool, uint64_t used_bytes,
                     uint64_t reserved_bytes, uint64_t time_ns, std::string* lines) {
  Line line("pool", lines);
  line.Number("device", device);
  line.Text("event", event);
  line.Unsigned("pool", pool);
  line.Unsigned("used_bytes", used_bytes);
  line.Unsigned("reserved_bytes", reserved_bytes);
  line.Unsigned("time_ns", time_ns);
}

bool MayBeSlow(const char* function) {
  static const std::regex kSlow(
      "cu(Module(Load|Unload|GetFunction$)|Library(Load|Unload|GetModule$)|Link(Create|Add|Complete)|FuncLoad"
      "|Graph(Instantiate|Upload|ExecUpdate|ExecDestroy$)|(Ctx|Stream|Event)(Create|Destroy)"
      "|DevicePrimaryCtxRe|Mem(Alloc|Free|Host(Alloc|Register|Unregister)|Pool(Create|Destroy|TrimTo)"
      "|Address(Reserve|Free)|Create|Map$|SetAccess|Unmap|Release$|(Pool)?ImportFromShareableHandle)"
      "|Ipc(Open|Close)|Ctx(En|Dis)ablePeerAccess).*");
  return std::regex_match(function, kSlow);
}

void AppendDriverCallTruth(const DriverCallTruth& call, std::string* lines) {
  Line line("driver_call", lines);
  line.Unsigned("tid", static_cast<uint64_t>(gettid()));
  line.Text("function", call.function);
  line.Unsigned("began_ns", call.began_ns);
  line.Unsigned("start_ns", call.start_ns);
  line.Unsigned("end_ns", call.end_ns);
  line.Unsigned("left_ns", call.left_ns);
  if (call.result != 0) line.Number("result", call.result);
}

void AppendCallTruth(const char* name, std::string* lines) {
  Line line("call", lines);
  line.Text("name", name);
}

void WriteTruth(const std::string& lines) {
  if (lines.empty()) return;
  static const int kFile = OpenTruth();
  if (kFile < 0) return;
  static constinit std::mutex mutex;  // a write may be cut short; its rest must follow at once
  const std::lock_guard<std::mutex> lock(mutex);
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t written = write(kFile, lines.data() + done, lines.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      static bool said = false;
      if (!said) std::fprintf(stderr, "gpusim: GPUSIM_TRUTH: %s\n", std::strerror(errno));
      said = true;
      return;
    }
    done += static_cast<size_t>(written);
  }
}

}  // namespace gpusim
