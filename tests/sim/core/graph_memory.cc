#include "tests/sim/core/graph_memory.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/core/graph.h"
#include "tests/sim/core/memory.h"
#include "tests/sim/core/objects.h"
#include "tests/sim/core/trace.h"
#include "tests/sim/core/truth.h"

namespace gpusim {
namespace {

struct Part {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int device = 0;
};

// What a launch does, in the order of its nodes.
struct Step {
  Part part;
  bool release = false;  // of what somebody else allocated
};

struct Demand {
  std::vector<Part> own;  // for what the graph releases itself, by device
  std::vector<Step> steps;
};

struct Level {
  uint64_t used = 0;
  uint64_t used_high = 0;
  uint64_t reserved = 0;
  uint64_t reserved_high = 0;
};

// What a launch obtained, and the context in which it was.
struct Obtained {
  Part part;
  CUcontext context = nullptr;
};

struct GraphMemoryState {
  std::mutex mutex;
  std::map<int, Level> levels;
  std::map<uint64_t, Obtained> left;                 // what launches left, by address
  std::map<CUgraphExec, std::vector<Obtained>> own;  // of those that were launched
};

GraphMemoryState& GraphMemory() {
  static auto* state = new GraphMemoryState;
  return *state;
}

// Paths are walked again and again: graphs of tests are small.
bool IsAncestor(const CUgraphNode_st* wanted, const CUgraphNode_st* node) {
  return std::any_of(node->dependencies.begin(), node->dependencies.end(),
                     [&](const CUgraphNode_st* dependency) {
                       return dependency == wanted || IsAncestor(wanted, dependency);
                     });
}

bool IsAllocation(const CUgraphNode_st& node) { return node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
bool IsRelease(const CUgraphNode_st& node) { return node.type == CU_GRAPH_NODE_TYPE_MEM_FREE; }

// Releases of the address that the node comes after.
size_t ReleasesBefore(const CUgraph_st& graph, uint64_t address, const CUgraphNode_st& node) {
  return static_cast<size_t>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const auto& other) {
    return IsRelease(*other) && other->memory_address == address && IsAncestor(other.get(), &node);
  }));
}

// Intervals without overlap, by start.
using Intervals = std::map<uint64_t, uint64_t>;

void Include(Intervals& intervals, uint64_t begin, uint64_t end) {
  auto at = intervals.upper_bound(begin);
  if (at != intervals.begin() && std::prev(at)->second >= begin) --at;
  while (at != intervals.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = intervals.erase(at);
  }
  intervals[begin] = end;
}

void Exclude(Intervals& intervals, uint64_t begin, uint64_t end) {
  Intervals rest;
  for (const auto& [from, to] : intervals) {
    if (from < std::min(to, begin)) rest[from] = std::min(to, begin);
    if (std::max(from, end) < to) rest[std::max(from, end)] = to;
  }
  intervals = rest;
}

Demand DemandOfLocked(const CUgraph_st& graph) {
  Demand demand;
  std::map<int, Intervals> own;
  std::map<int, uint64_t> lowest;
  std::set<uint64_t> allocated;
  std::set<const CUgraphNode_st*> foreign;
  for (const auto& node : graph.nodes) {
    const Part part{node->memory_address, node->memory_bytes, node->memory_device};
    if (IsRelease(*node) && allocated.erase(part.address) == 0) foreign.insert(node.get());
    if (!IsAllocation(*node)) continue;
    allocated.insert(part.address);
    Include(own[part.device], part.address, part.address + part.bytes);
  }
  for (const auto& node : graph.nodes) {
    const Part part{node->memory_address, node->memory_bytes, node->memory_device};
    if (foreign.count(node.get()) != 0) demand.steps.push_back({part, true});
    if (!IsAllocation(*node)) continue;
    // The last one at an address that nobody released outlives the launch.
    const bool last = std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& other) {
      return IsAllocation(*other) && other->memory_address == part.address && other->id > node->id;
    });
    if (last && allocated.count(part.address) != 0) {
      demand.steps.push_back({part, false});
      Exclude(own[part.device], part.address, part.address + part.bytes);
    } else if (lowest[part.device] == 0 || part.address < lowest[part.device]) {
      lowest[part.device] = part.address;
    }
  }
  for (const auto& [device, intervals] : own) {
    uint64_t bytes = 0;
    for (const auto& [from, to] : intervals) bytes += to - from;
    if (bytes != 0) demand.own.push_back({lowest[device], bytes, device});
  }
  return demand;
}

void Tell(const Part& part, bool is_free, bool failed) {
  if (!TruthWanted()) return;
  std::string line;
  AppendMemoryTruth(is_free, "graph", part.bytes, failed ? 0 : part.address, NowNs(),
                    static_cast<uint32_t>(part.device), CurrentCorrelation(), failed, &line);
  WriteTruth(line);
}

bool UseLocked(int device, uint64_t bytes) {
  Level& level = GraphMemory().levels[device];
  const uint64_t needed = Granules(level.used + bytes);
  if (needed > level.reserved) {
    if (!ReserveDeviceMemory(device, needed - level.reserved)) return false;
    level.reserved = needed;
  }
  level.used += bytes;
  level.used_high = std::max(level.used_high, level.used);
  level.reserved_high = std::max(level.reserved_high, level.reserved);
  return true;
}

void ReturnLocked(const Part& part) {
  GraphMemory().levels[part.device].used -= part.bytes;
  Tell(part, true, false);
}

bool ReleaseLocked(uint64_t address) {
  const auto left = GraphMemory().left.find(address);
  if (left == GraphMemory().left.end()) return false;
  const Part part = left->second.part;
  GraphMemory().left.erase(left);
  ReturnLocked(part);
  return true;
}

}  // namespace

void PlaceGraphMemoryLocked(CUgraphNode node) {
  const CUgraph_st& graph = *node->graph;
  std::map<uint64_t, size_t> used;  // allocations at an address
  std::map<uint64_t, uint64_t> room;
  for (const auto& other : graph.nodes) {
    if (other.get() == node || !IsAllocation(*other)) continue;
    ++used[other->memory_address];
    room[other->memory_address] = std::max(room[other->memory_address], other->memory_bytes);
  }
  for (const auto& [address, times] : used) {
    if (room[address] < node->memory_bytes || ReleasesBefore(graph, address, *node) < times) continue;
    node->memory_address = address;
    return;
  }
  node->memory_address = MapGraphMemory(node->memory_device, node->memory_bytes);
}

CUresult ObtainGraphMemory(CUgraphExec exec) {
  Demand demand;
  bool frees_itself = false;
  {
    const Locked locked;
    if (!IsLive(exec)) return CUDA_ERROR_INVALID_VALUE;
    demand = DemandOfLocked(*exec->graph);
    frees_itself = (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  }
  if (demand.own.empty() && demand.steps.empty()) return CUDA_SUCCESS;
  GraphMemoryState& all = GraphMemory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Part asked;
  std::map<int, uint64_t> more;
  const bool first = all.own.count(exec) == 0;
  if (first) {
    for (const Part& part : demand.own) more[part.device] += part.bytes;
  }
  for (const Step& step : demand.steps) {
    if (step.release) continue;
    const bool there = all.left.count(step.part.address) != 0;
    if (there && !frees_itself) return CUDA_ERROR_INVALID_VALUE;
    if (!there) more[step.part.device] += step.part.bytes;
  }
  for (const auto& [device, bytes] : more) {
    asked.bytes += bytes;
    asked.device = device;
    if (UseLocked(device, bytes)) continue;
    Tell(asked, false, true);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUcontext context = CurrentContextOrNull();
  if (first) {
    for (const Part& part : demand.own) {
      Tell(part, false, false);
      all.own[exec].push_back({part, context});
    }
  }
  for (const Step& step : demand.steps) {
    if (step.release) {
      ReleaseLocked(step.part.address);
    } else if (all.left.emplace(step.part.address, Obtained{step.part, context}).second) {
      Tell(step.part, false, false);
    }
  }
  return CUDA_SUCCESS;
}

void ReturnGraphMemory(CUgraphExec exec) {
  GraphMemoryState& all = GraphMemory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto own = all.own.find(exec);
  if (own == all.own.end()) return;
  for (const Obtained& each : own->second) ReturnLocked(each.part);
  all.own.erase(own);
}

void ReturnGraphMemoryOfContext(CUcontext context) {
  GraphMemoryState& all = GraphMemory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (auto left = all.left.begin(); left != all.left.end();) {
    const bool ends = left->second.context == context;
    if (ends) ReturnLocked(left->second.part);
    left = ends ? all.left.erase(left) : std::next(left);
  }
  for (auto& [exec, own] : all.own) {
    const auto ends = [context](const Obtained& each) { return each.context == context; };
    for (const Obtained& each : own) {
      if (ends(each)) ReturnLocked(each.part);
    }
    own.erase(std::remove_if(own.begin(), own.end(), ends), own.end());
  }
}

bool ReleaseGraphAllocation(uint64_t address) {
  const std::lock_guard<std::mutex> lock(GraphMemory().mutex);
  return ReleaseLocked(address);
}

void TrimGraphMemory(int device) {
  const std::lock_guard<std::mutex> lock(GraphMemory().mutex);
  Level& level = GraphMemory().levels[device];
  const uint64_t needed = Granules(level.used);
  ReturnDeviceMemory(device, level.reserved - needed);
  level.reserved = needed;
}

CUresult GraphMemoryAttribute(int device, CUgraphMem_attribute attribute, uint64_t* value) {
  const std::lock_guard<std::mutex> lock(GraphMemory().mutex);
  const Level& level = GraphMemory().levels[device];
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *value = level.used;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *value = level.used_high;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *value = level.reserved;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *value = level.reserved_high;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult ResetGraphMemoryAttribute(int device, CUgraphMem_attribute attribute) {
  const std::lock_guard<std::mutex> lock(GraphMemory().mutex);
  Level& level = GraphMemory().levels[device];
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    level.used_high = level.used;
  } else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    level.reserved_high = level.reserved;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpusim
