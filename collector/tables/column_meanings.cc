#include "collector/tables/column_meanings.h"

#include <span>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collector/report/schema.h"
#include "nlohmann/json.hpp"

namespace gpuprobe::tables {
namespace {

using Json = nlohmann::ordered_json;

struct Meaning {
  std::string_view table;  // empty: any table
  std::string_view column;
  std::string_view text;
};

constexpr Meaning kMeanings[] = {
    {"", "failed", "1: the call failed"},
    {"call_time", "gpu_ns", "how long the collective was on the GPU, by the GPU's clock"},
    {"call_time", "number",
     "of the collectives of its communicator that NCCL timed, from 0; the same on all ranks"},
    {"call_time", "seen_ns", "when NCCL's thread saw its end"},
    {"collective", "correlation", "of its first kernel"},
    {"collective", "end_ns", "when its last kernel ended on the GPU"},
    {"collective", "seq", "number of the call on its communicator; the same on all ranks"},
    {"collective", "start_ns", "when its first kernel began on the GPU; it waits there for late ranks"},
    {"driver_call", "function", "of the CUDA driver"},
    {"driver_call", "result", "CUDA's error, if it failed"},
    {"graph_run", "end_ns", "when the last node of the CUDA graph ended"},
    {"graph_run", "graph", "CUPTI's number of the executable graph"},
    {"graph_run", "start_ns", "when the first node of the CUDA graph began"},
    {"host_sample", "about", "file or object of the system call"},
    {"host_sample", "call", "CUDA or NCCL function that the thread was in"},
    {"host_sample", "call_ns", "for how long it had been in it"},
    {"host_sample", "file", "of that function"},
    {"host_sample", "function", "innermost Python function"},
    {"host_sample", "in_gap", "1: the process launched nothing meanwhile"},
    {"host_sample", "line", "in that file"},
    {"host_sample", "own_file", "of that function"},
    {"host_sample", "own_function", "innermost function of the program itself, not of a library"},
    {"host_sample", "own_line", "in that file"},
    {"host_sample", "run_delay_ns", "since the sample before: ready to run, and no CPU"},
    {"host_sample", "since_ns", "the sample stands for the time from here to time_ns"},
    {"host_sample", "stack", "what is known of the Python stack"},
    {"host_sample", "state", "of the thread: running, waiting ..."},
    {"host_sample", "system_call", "that the thread was in"},
    {"host_sample", "time_ns", "when the thread was looked at"},
    {"launch", "fallback_range",
     "innermost range of the thread that had launched before, where this one has none: with PyTorch, of the "
     "main thread for backward"},
    {"launch", "range", "id of the innermost range open on its thread; 0: none"},
    {"launch", "time_ns", "when the host launched it"},
    {"memcpy", "dst_memory", "kind of the memory that was written"},
    {"memcpy", "peer_device", "the other GPU of a copy between two"},
    {"memcpy", "src_memory", "kind of the memory that was read"},
    {"pool", "destroyed", "1: it is gone"},
    {"pool", "peak_reserved_bytes", "the most it has held so far"},
    {"pool", "peak_used_bytes", "the most that was in use so far"},
    {"pool", "reserved_bytes", "what the pool holds"},
    {"pool", "used_bytes", "what of that is in use"},
    {"range", "id", "its number; launch.range and range.parent refer to it"},
    {"range", "parent", "id of the range around it; 0: none"},
    {"range", "range", "push_pop, start_end, or mark (a moment)"},
    {"range", "unclosed", "1: it was open at the end"},
    {"small_allocations", "change_bytes", "by how much the level changed"},
    {"small_allocations", "rise_bytes", "by how much it rose at most meanwhile"},
    {"step", "comm_ns", "NCCL's kernels ran"},
    {"step", "compute_ns", "kernels other than NCCL's, or memsets, ran"},
    {"step", "copy_ns", "copies that neither compute nor communication covers"},
    {"step", "end_ns", "when the last work launched in it had ended on the GPU"},
    {"step", "error_ns", "by how much its start or end may be off, because records were lost"},
    {"step", "exposed_comm_ns", "communication without compute at the same time"},
    {"step", "gpu", "of a process that drives several; else NULL"},
    {"step", "host_bound_ns", "idle: the host was launching, and came late"},
    {"step", "idle_ns", "nothing ran; the seven causes that follow add up to it"},
    {"step", "incomplete", "1: records were lost in it"},
    {"step", "input_wait_ns", "idle: the host waited for input"},
    {"step", "launch_gap_ns", "idle: launched, and not started yet"},
    {"step", "lost_operations", "how many of its operations have no record"},
    {"step", "memory_ns", "idle: the host was in calls that allocate or release memory"},
    {"step", "operations", "kernels, copies and memsets"},
    {"step", "pause_ns", "idle: the host launched nothing"},
    {"step", "start_ns", "when the last work launched before it had ended on the GPU"},
    {"step", "step", "its number, from 0; the same on all ranks"},
    {"step", "sync_ns", "idle: the host was in a synchronising call"},
    {"step", "total_ns", "end_ns - start_ns = compute + exposed_comm + copy + idle"},
    {"step", "unknown_ns", "idle: the launch of what ended it was not seen"},
    {"step", "warmup", "1: in no statistics of the report"},
    {"step", "world_size", "ranks of the job"},
    {"sync", "what", "stream, event, device, or a stream's wait for an event"},
    {"collective_waits", "caused_wait_ns",
     "of the rank that came last: how long the others waited for it, on average; else NULL"},
    {"collective_waits", "waited_ns", "longer than the rank that came last"},
    {"step_waits", "caused_wait_ns",
     "how long each other rank waited for this one in the step's collectives, without sends and receives"},
    {"step_waits", "waited_ns", "how long this rank waited in them"},
    {"traced_step", "begin_ns", "when the host began it"},
    {"traced_step", "index", "how many had begun before it"},
    {"", "address", "of the memory"},
    {"", "algorithm", "of NCCL: ring, tree ..."},
    {"", "allocations", "how many"},
    {"", "block", "threads of a block: [x,y,z]"},
    {"", "by_nccl", "1: NCCL did it, not the program"},
    {"", "bytes", "size"},
    {"", "calls", "how many"},
    {"", "captured", "1: captured into a CUDA graph; it ran as often as it has replays"},
    {"", "category", "NVTX category, as a number"},
    {"", "category_name", "NVTX category, if it has a name"},
    {"", "channels", "of NCCL: how many it used"},
    {"", "class", "kind of work by the kernel's name: gemm, attention, optimizer ..."},
    {"", "color", "that the program gave it"},
    {"", "comm", "communicator"},
    {"", "comm_name", "that the program gave it"},
    {"", "comm_rank", "rank within the communicator"},
    {"", "comm_ranks", "how many ranks the communicator has"},
    {"", "correlation", "joins work of the GPU with its launch, within a process"},
    {"", "count", "elements of the call"},
    {"", "datatype", "of the elements"},
    {"", "delay_ns", "from launch to start"},
    {"", "device", "GPU, as CUDA numbers it in the process"},
    {"", "device_name", "that the program gave it"},
    {"", "direction", "of a copy: host_to_device ..."},
    {"", "domain", "NVTX domain"},
    {"", "end_ns", "when it ended, since the Unix epoch"},
    {"", "fields", "of an extended payload, by name"},
    {"", "frees", "how many"},
    {"", "graph_node", "of the CUDA graph that it is a node of; 0: launched by itself"},
    {"", "grid", "blocks: [x,y,z]"},
    {"", "issue_ns", "when the host called it"},
    {"", "memory", "device, host, managed ..."},
    {"", "name", "as a person would write it"},
    {"", "op", "AllReduce, AllGather ..."},
    {"", "parent", "communicator that it was made from"},
    {"", "payload", "number that the program attached"},
    {"", "peer", "of a send or a receive: the other rank"},
    {"", "phase",
     "input, h2d, forward, backward, optimizer, communication or other, as in the report; NULL: in no step"},
    {"", "pid", "process"},
    {"", "plan", "calls that run as one piece of work have one number"},
    {"", "pool", "memory pool"},
    {"", "protocol", "of NCCL: LL, LL128, Simple"},
    {"", "rank", "of the job; -1: not known"},
    {"", "ranks", "how many"},
    {"", "reduction", "sum, prod, max, min, avg or custom"},
    {"", "replay", "of a captured call: which launch of its CUDA graph, from 1"},
    {"", "result", "NCCL's error, if the call failed"},
    {"", "return_ns", "when the call returned"},
    {"", "root", "rank that sends to, or receives from, all"},
    {"", "samples", "how often it was seen"},
    {"", "seq", "number of the call on its communicator; the same on all ranks"},
    {"", "source", "how the call is known"},
    {"", "start_ns", "when it began, since the Unix epoch"},
    {"", "state", "created, revoked, aborted or destroyed"},
    {"", "step", "step that it counts to, as in the report; NULL: none"},
    {"", "stream", "CUDA stream, by CUPTI's number"},
    {"", "stream_name", "that the program gave it"},
    {"", "symbol", "name as it was recorded, mangled"},
    {"", "thread", "its name"},
    {"", "what", "which kind of it"},
    {"", "tid", "thread, as the kernel numbers it"},
    {"", "time_ns", "when, since the Unix epoch"},
    {"", "transfer_ns", "of the rank that came last: the time that the transfer itself took"},
    {"", "longest_wait_ns", "of the rank that came first"},
    {"", "total_ns", "sum of durations"},
    {"", "mean_ns", "mean duration"},
    {"", "min_ns", "shortest"},
    {"", "max_ns", "longest"},
    {"", "copies", "how many"},
    {"", "gbytes_per_s", "10^9 bytes a second"},
    {"", "launch_ns", "when the host launched it"},
    {"", "share", "of the thread's samples, from 0 to 1"},
};

constexpr std::string_view kPhases[] = {"input_ns",     "h2d_ns",           "forward_ns", "backward_ns",
                                        "optimizer_ns", "communication_ns", "other_ns"};

const Json* Resolve(const Json& schema, const Json* type) {
  while (type != nullptr) {
    if (const auto ref = type->find("$ref"); ref != type->end()) {
      constexpr size_t kPrefix = sizeof("#/$defs/") - 1;
      type = &schema["$defs"][ref->get<std::string>().substr(kPrefix)];
    } else if (const auto items = type->find("items"); items != type->end()) {
      type = &*items;
    } else if (const auto any = type->find("anyOf"); any != type->end()) {
      type = &any->front();
    } else {
      return type;
    }
  }
  return nullptr;
}

// What the report says of the field at the path, whose names are joined by '_', as tables' names are.
std::string InReport(const Json& schema, const Json& object, std::string_view path) {
  if (const auto values = object.find("additionalProperties");
      values != object.end() && values->is_object()) {
    // A map, whose key is any word, and may have a '_' itself.
    if (values->contains("description")) return values->value("description", "");
    const Json* inner = Resolve(schema, &*values);
    for (size_t at = path.find('_'); inner != nullptr && at != std::string_view::npos;
         at = path.find('_', at + 1)) {
      if (std::string found = InReport(schema, *inner, path.substr(at + 1)); !found.empty()) return found;
    }
    return object.value("description", "");
  }
  const auto properties = object.find("properties");
  if (properties == object.end()) return "";
  for (const auto& [key, property] : properties->items()) {
    if (path == key) return property.value("description", "");
    if (!absl::StartsWith(absl::string_view(path.data(), path.size()), absl::StrCat(key, "_"))) continue;
    const Json* inner = Resolve(schema, &property);
    if (inner == nullptr) continue;
    if (std::string found = InReport(schema, *inner, path.substr(key.size() + 1)); !found.empty())
      return found;
    if (inner->contains("additionalProperties")) return property.value("description", "");
  }
  return "";
}

}  // namespace

std::string MeaningOf(std::string_view table, std::string_view column) {
  if (table == "report" || table.starts_with("report_")) {
    static const Json kSchema = report::ReportSchema();
    const std::string path =
        table == "report" ? std::string(column)
                          : std::string(table.substr(sizeof("report_") - 1)).append("_").append(column);
    // Lists within ranks have the rank besides.
    if (std::string found = InReport(kSchema, kSchema, path); !found.empty()) return found;
  }
  for (const bool any : {false, true}) {
    for (const Meaning& meaning : kMeanings) {
      if (meaning.column == column && meaning.table == (any ? std::string_view() : table))
        return std::string(meaning.text);
    }
  }
  for (const std::string_view phase : kPhases) {
    if (table == "step" && phase == column) return "part of total_ns in this phase; they add up to it";
  }
  return "";
}

}  // namespace gpuprobe::tables
