// Rows out of a Batch's columns: plain records with absolute times, one visitor per record kind.
//
// Separate from the aggregates because the export and the model must read columns the same way. Every visitor
// first checks that the columns of its message agree in length (a column may be left out: all zero) and
// returns InvalidArgument otherwise, before it has visited anything. Arithmetic on hostile deltas wraps;
// records whose end lies before their start are the visitor's business.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gpuprobe/v1/wire.pb.h"

namespace gpuprobe::model {

struct KernelRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  uint32_t site;
  uint64_t correlation;
  uint64_t graph_node;
};

struct CopyRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t bytes;
  v1::CopyDirection direction;
  v1::MemoryKind src_memory;
  v1::MemoryKind dst_memory;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint64_t correlation;
  uint64_t graph_node;
  bool asynchronous;
  int32_t peer_device;  // -1: none
};

struct MemsetRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t bytes;
  uint32_t value;
  v1::MemoryKind memory;
  uint32_t device;
  uint32_t context;
  uint32_t stream;
  uint64_t correlation;
  uint64_t graph_node;
};

struct SyncRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  v1::SyncKind what;
  uint32_t context;
  uint32_t stream;
  uint32_t event;
  uint64_t correlation;
};

struct LaunchRecord {
  uint32_t thread;
  uint64_t time_ns;
  uint64_t correlation;
  uint64_t range;
  uint64_t fallback_range;
  uint32_t graph;               // as Launches.graph
  bool may_lack_record = true;  // as Launches.may_lack_record
};

// Which launch carried a plan; for a captured one, which node of a CUDA graph does.
struct PlanRecord {
  uint64_t plan;
  uint64_t correlation;       // 0: captured
  uint64_t graph_node;        // 0: launched at once
  uint32_t graph;             // as Plans.graph
  uint64_t from_correlation;  // as Plans.from_correlation
  uint32_t copy;              // as Plans.copy
};

struct RangeRecord {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t id;
  uint64_t parent;
  uint32_t name;
  uint32_t domain;
  uint32_t thread;
  v1::RangeKind kind;
  bool unclosed;
  uint32_t category;
  uint32_t color;  // ARGB, 0 if none
  v1::PayloadKind payload_kind;
  uint64_t payload;
};

struct AllocationRecord {
  uint64_t time_ns;
  v1::AllocationOp op;
  v1::MemoryKind memory;
  uint64_t address;
  uint64_t bytes;
  uint32_t device;
  bool failed;
  uint32_t thread;
  uint64_t range;
  uint64_t duration_ns;  // since it can have happened at the earliest
  bool by_nccl;          // made inside a call into NCCL
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

// A run of allocations and releases that have no records of their own.
struct SmallAllocationsRecord {
  uint64_t highest_ns;  // when the level was highest
  uint64_t end_ns;
  v1::MemoryKind memory;
  uint32_t device;
  uint64_t allocations;
  uint64_t frees;
  uint64_t rise_bytes;
  int64_t change_bytes;
  uint64_t range;
  // Calls that began before another one ended.
  struct Overlap {
    uint64_t bytes;         // the most at one time
    uint64_t before_bytes;  // of those that began before the run
    uint64_t since_ns;      // when the first of these began
  };
  Overlap obtained;
  Overlap released;
};

struct PoolLevelRecord {
  uint64_t time_ns;
  uint32_t pool;
  uint32_t device;
  uint64_t used_bytes;
  uint64_t reserved_bytes;
  uint64_t peak_used_bytes;
  uint64_t peak_used_at_ns;
  uint64_t peak_reserved_bytes;
  uint64_t peak_reserved_at_ns;
  uint64_t release_threshold_bytes;
  uint64_t trims;
  v1::PoolState state;
};

struct AllocatorLevelRecord {
  uint64_t time_ns;
  uint32_t device;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t peak_allocated_bytes;
  uint64_t peak_reserved_bytes;
};

// Memory that PyTorch's allocator hands out or, `release`, takes back.
struct TensorRecord {
  uint64_t time_ns;
  uint64_t address;
  uint64_t bytes;
  bool release;
  uint32_t device;
  uint64_t range;
};

struct AllocatorRefusalRecord {
  uint64_t time_ns;
  uint32_t device;
  uint64_t asked_bytes;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t range;
  template <typename Archive>
  void Visit(Archive& archive);  // state_members.h
};

struct CollectiveRecord {
  uint64_t issue_ns;
  uint64_t return_ns;
  uint32_t op;  // StringDef
  uint32_t comm;
  uint64_t seq;
  uint64_t count;
  uint32_t datatype;  // StringDef
  uint32_t element_bytes;
  int32_t root;
  int32_t peer;
  uint64_t plan;
  uint32_t thread;
  uint64_t range;
  v1::CallSource source;
  int32_t result;
  uint32_t algorithm;  // StringDef
  uint32_t protocol;   // StringDef
  uint32_t channels;
};

// A process's identity according to its communicators, where its launcher gave none.
inline void AdoptNcclIdentity(const v1::NcclIdentity& from, v1::Identity& identity) {
  const bool open =
      identity.rank_source() == v1::RANK_SOURCE_NONE || identity.rank_source() == v1::RANK_SOURCE_NCCL;
  if (!open || from.rank() < 0 || from.world_size() <= 0) return;
  identity.set_rank(from.rank());
  identity.set_world_size(from.world_size());
  identity.set_rank_source(v1::RANK_SOURCE_NCCL);
}

namespace internal {

// One column; absent means zero.
template <typename T>
struct Column {
  const T* data;
  template <typename Field>
  explicit Column(const Field& field) : data(field.empty() ? nullptr : field.data()) {}
  T operator[](int row) const { return data != nullptr ? data[row] : T{}; }
};
template <typename Field>
Column(const Field&) -> Column<typename Field::value_type>;

// The number of rows that all columns agree on, or -1.
template <typename... Fields>
int Rows(const Fields&... fields) {
  int rows = 0;
  bool agree = true;
  const auto look = [&](int size) {
    if (size == 0) return;
    if (rows == 0) rows = size;
    agree = agree && rows == size;
  };
  (look(fields.size()), ...);
  return agree ? rows : -1;
}

inline absl::Status Ragged(const char* message) {
  return absl::InvalidArgumentError(absl::StrCat("columns of ", message, " differ in length"));
}

inline uint64_t Step(uint64_t& value, int64_t delta) { return value += static_cast<uint64_t>(delta); }

}  // namespace internal

template <typename Visitor>
absl::Status ForEachKernel(const v1::Batch& batch, Visitor&& visit) {
  const v1::Kernels& m = batch.kernels();
  const int rows =
      internal::Rows(m.start_delta(), m.duration(), m.site(), m.correlation_delta(), m.graph_node_delta());
  if (rows < 0) return internal::Ragged("Kernels");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column site(m.site());
  const internal::Column correlation(m.correlation_delta());
  const internal::Column node(m.graph_node_delta());
  KernelRecord r{.start_ns = 0, .end_ns = batch.base_ns(), .site = 0, .correlation = 0, .graph_node = 0};
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns + static_cast<uint64_t>(start[i]);
    r.end_ns = r.start_ns + duration[i];
    r.site = site[i];
    internal::Step(r.correlation, correlation[i]);
    internal::Step(r.graph_node, node[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachCopy(const v1::Batch& batch, Visitor&& visit) {
  const v1::Copies& m = batch.copies();
  const int rows = internal::Rows(m.start_delta(), m.duration(), m.bytes(), m.direction(), m.src_memory(),
                                  m.dst_memory(), m.device(), m.context(), m.stream(), m.correlation_delta(),
                                  m.graph_node_delta(), m.asynchronous(), m.peer_device());
  if (rows < 0) return internal::Ragged("Copies");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column bytes(m.bytes());
  const internal::Column direction(m.direction());
  const internal::Column src(m.src_memory());
  const internal::Column dst(m.dst_memory());
  const internal::Column device(m.device());
  const internal::Column context(m.context());
  const internal::Column stream(m.stream());
  const internal::Column correlation(m.correlation_delta());
  const internal::Column node(m.graph_node_delta());
  const internal::Column asynchronous(m.asynchronous());
  const internal::Column peer(m.peer_device());
  CopyRecord r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns + static_cast<uint64_t>(start[i]);
    r.end_ns = r.start_ns + duration[i];
    r.bytes = bytes[i];
    r.direction = static_cast<v1::CopyDirection>(direction[i]);
    r.src_memory = static_cast<v1::MemoryKind>(src[i]);
    r.dst_memory = static_cast<v1::MemoryKind>(dst[i]);
    r.device = device[i];
    r.context = context[i];
    r.stream = stream[i];
    internal::Step(r.correlation, correlation[i]);
    internal::Step(r.graph_node, node[i]);
    r.asynchronous = asynchronous[i] != 0;
    r.peer_device = static_cast<int32_t>(static_cast<uint32_t>(peer[i]) - 1);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachMemset(const v1::Batch& batch, Visitor&& visit) {
  const v1::Memsets& m = batch.memsets();
  const int rows = internal::Rows(m.start_delta(), m.duration(), m.bytes(), m.value(), m.memory(), m.device(),
                                  m.context(), m.stream(), m.correlation_delta(), m.graph_node_delta());
  if (rows < 0) return internal::Ragged("Memsets");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column bytes(m.bytes());
  const internal::Column value(m.value());
  const internal::Column memory(m.memory());
  const internal::Column device(m.device());
  const internal::Column context(m.context());
  const internal::Column stream(m.stream());
  const internal::Column correlation(m.correlation_delta());
  const internal::Column node(m.graph_node_delta());
  MemsetRecord r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns + static_cast<uint64_t>(start[i]);
    r.end_ns = r.start_ns + duration[i];
    r.bytes = bytes[i];
    r.value = value[i];
    r.memory = static_cast<v1::MemoryKind>(memory[i]);
    r.device = device[i];
    r.context = context[i];
    r.stream = stream[i];
    internal::Step(r.correlation, correlation[i]);
    internal::Step(r.graph_node, node[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachSync(const v1::Batch& batch, Visitor&& visit) {
  const v1::Syncs& m = batch.syncs();
  const int rows = internal::Rows(m.start_delta(), m.duration(), m.what(), m.context(), m.stream(), m.event(),
                                  m.correlation_delta());
  if (rows < 0) return internal::Ragged("Syncs");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column what(m.what());
  const internal::Column context(m.context());
  const internal::Column stream(m.stream());
  const internal::Column event(m.event());
  const internal::Column correlation(m.correlation_delta());
  SyncRecord r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns + static_cast<uint64_t>(start[i]);
    r.end_ns = r.start_ns + duration[i];
    r.what = static_cast<v1::SyncKind>(what[i]);
    r.context = context[i];
    r.stream = stream[i];
    r.event = event[i];
    internal::Step(r.correlation, correlation[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachLaunch(const v1::Batch& batch, Visitor&& visit) {
  for (const v1::Launches& m : batch.launches()) {
    if (internal::Rows(m.time_delta(), m.correlation_delta(), m.range_delta(), m.fallback_range_delta(),
                       m.graph(), m.may_lack_record()) < 0) {
      return internal::Ragged("Launches");
    }
  }
  for (const v1::Launches& m : batch.launches()) {
    const int rows = internal::Rows(m.time_delta(), m.correlation_delta(), m.range_delta(),
                                    m.fallback_range_delta(), m.graph(), m.may_lack_record());
    const internal::Column time(m.time_delta());
    const internal::Column correlation(m.correlation_delta());
    const internal::Column range(m.range_delta());
    const internal::Column fallback(m.fallback_range_delta());
    const internal::Column graph(m.graph());
    const internal::Column may_lack_record(m.may_lack_record());
    LaunchRecord r{.thread = m.thread(),
                   .time_ns = batch.base_ns(),
                   .correlation = 0,
                   .range = 0,
                   .fallback_range = 0,
                   .graph = 0,
                   .may_lack_record = false};
    for (int i = 0; i < rows; ++i) {
      internal::Step(r.time_ns, time[i]);
      internal::Step(r.correlation, correlation[i]);
      internal::Step(r.range, range[i]);
      internal::Step(r.fallback_range, fallback[i]);
      r.graph = graph[i];
      r.may_lack_record = may_lack_record[i] != 0;
      visit(r);
    }
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachRange(const v1::Batch& batch, Visitor&& visit) {
  const v1::Ranges& m = batch.ranges();
  const int rows = internal::Rows(m.start_delta(), m.duration(), m.id_delta(), m.parent_delta(), m.name(),
                                  m.domain(), m.thread(), m.kind(), m.unclosed(), m.category(), m.color(),
                                  m.payload(), m.payload_kind());
  if (rows < 0) return internal::Ragged("Ranges");
  const internal::Column start(m.start_delta());
  const internal::Column duration(m.duration());
  const internal::Column id(m.id_delta());
  const internal::Column parent(m.parent_delta());
  const internal::Column name(m.name());
  const internal::Column domain(m.domain());
  const internal::Column thread(m.thread());
  const internal::Column kind(m.kind());
  const internal::Column unclosed(m.unclosed());
  const internal::Column category(m.category());
  const internal::Column color(m.color());
  const internal::Column payload(m.payload());
  const internal::Column payload_kind(m.payload_kind());
  RangeRecord r{};
  r.end_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    r.start_ns = r.end_ns + static_cast<uint64_t>(start[i]);
    r.end_ns = r.start_ns + duration[i];
    internal::Step(r.id, id[i]);
    internal::Step(r.parent, parent[i]);
    r.name = name[i];
    r.domain = domain[i];
    r.thread = thread[i];
    r.kind = static_cast<v1::RangeKind>(kind[i]);
    r.unclosed = unclosed[i] != 0;
    r.category = category[i];
    r.color = color[i];
    r.payload = payload[i];
    r.payload_kind = static_cast<v1::PayloadKind>(payload_kind[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachAllocatorLevel(const v1::Batch& batch, Visitor&& visit) {
  const v1::AllocatorLevels& m = batch.allocator_levels();
  const int rows = internal::Rows(m.time_delta(), m.device(), m.allocated(), m.reserved(), m.peak_allocated(),
                                  m.peak_reserved());
  if (rows < 0) return internal::Ragged("AllocatorLevels");
  const internal::Column time(m.time_delta());
  const internal::Column device(m.device());
  const internal::Column allocated(m.allocated());
  const internal::Column reserved(m.reserved());
  const internal::Column peak_allocated(m.peak_allocated());
  const internal::Column peak_reserved(m.peak_reserved());
  AllocatorLevelRecord r{};
  r.time_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.time_ns, time[i]);
    r.device = device[i];
    r.allocated_bytes = allocated[i];
    r.reserved_bytes = reserved[i];
    r.peak_allocated_bytes = peak_allocated[i];
    r.peak_reserved_bytes = peak_reserved[i];
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachTensor(const v1::Batch& batch, Visitor&& visit) {
  const v1::Tensors& m = batch.tensors();
  const int rows = internal::Rows(m.time_delta(), m.address_delta(), m.bytes(), m.device(), m.range_delta());
  if (rows < 0) return internal::Ragged("Tensors");
  const internal::Column time(m.time_delta());
  const internal::Column address(m.address_delta());
  const internal::Column bytes(m.bytes());
  const internal::Column device(m.device());
  const internal::Column range(m.range_delta());
  TensorRecord r{};
  r.time_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.time_ns, time[i]);
    internal::Step(r.address, address[i]);
    const int64_t change = bytes[i];
    r.release = change < 0;
    r.bytes = r.release ? 0 - static_cast<uint64_t>(change) : static_cast<uint64_t>(change);
    r.device = device[i];
    internal::Step(r.range, range[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachAllocatorRefusal(const v1::Batch& batch, Visitor&& visit) {
  const v1::AllocatorRefusals& m = batch.allocator_refusals();
  const int rows =
      internal::Rows(m.time_delta(), m.device(), m.asked(), m.allocated(), m.reserved(), m.range_delta());
  if (rows < 0) return internal::Ragged("AllocatorRefusals");
  const internal::Column time(m.time_delta());
  const internal::Column device(m.device());
  const internal::Column asked(m.asked());
  const internal::Column allocated(m.allocated());
  const internal::Column reserved(m.reserved());
  const internal::Column range(m.range_delta());
  AllocatorRefusalRecord r{};
  r.time_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.time_ns, time[i]);
    r.device = device[i];
    r.asked_bytes = asked[i];
    r.allocated_bytes = allocated[i];
    r.reserved_bytes = reserved[i];
    internal::Step(r.range, range[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachAllocation(const v1::Batch& batch, Visitor&& visit) {
  const v1::Allocations& m = batch.allocations();
  const int rows =
      internal::Rows(m.time_delta(), m.op(), m.memory(), m.address_delta(), m.bytes(), m.device(), m.failed(),
                     m.thread(), m.range_delta(), m.duration(), m.by_nccl());
  if (rows < 0) return internal::Ragged("Allocations");
  const internal::Column time(m.time_delta());
  const internal::Column op(m.op());
  const internal::Column memory(m.memory());
  const internal::Column address(m.address_delta());
  const internal::Column bytes(m.bytes());
  const internal::Column device(m.device());
  const internal::Column failed(m.failed());
  const internal::Column thread(m.thread());
  const internal::Column range(m.range_delta());
  const internal::Column duration(m.duration());
  const internal::Column by_nccl(m.by_nccl());
  AllocationRecord r{};
  r.time_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.time_ns, time[i]);
    r.op = static_cast<v1::AllocationOp>(op[i]);
    r.memory = static_cast<v1::MemoryKind>(memory[i]);
    internal::Step(r.address, address[i]);
    r.bytes = bytes[i];
    r.device = device[i];
    r.failed = failed[i] != 0;
    r.thread = thread[i];
    internal::Step(r.range, range[i]);
    r.duration_ns = duration[i];
    r.by_nccl = by_nccl[i] != 0;
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachSmallAllocations(const v1::Batch& batch, Visitor&& visit) {
  const v1::SmallAllocations& m = batch.small_allocations();
  const int rows = internal::Rows(m.time_delta(), m.duration(), m.memory(), m.device(), m.allocations(),
                                  m.frees(), m.rise(), m.change(), m.range_delta(), m.overlapping(),
                                  m.overlapping_before(), m.overlapping_since(), m.overlapping_freed(),
                                  m.overlapping_freed_before(), m.overlapping_freed_since());
  if (rows < 0) return internal::Ragged("SmallAllocations");
  const internal::Column time(m.time_delta());
  const internal::Column duration(m.duration());
  const internal::Column memory(m.memory());
  const internal::Column device(m.device());
  const internal::Column allocations(m.allocations());
  const internal::Column frees(m.frees());
  const internal::Column rise(m.rise());
  const internal::Column change(m.change());
  const internal::Column range(m.range_delta());
  const internal::Column overlapping(m.overlapping());
  const internal::Column overlapping_before(m.overlapping_before());
  const internal::Column overlapping_since(m.overlapping_since());
  const internal::Column overlapping_freed(m.overlapping_freed());
  const internal::Column overlapping_freed_before(m.overlapping_freed_before());
  const internal::Column overlapping_freed_since(m.overlapping_freed_since());
  SmallAllocationsRecord r{};
  r.highest_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.highest_ns, time[i]);
    r.end_ns = r.highest_ns + duration[i];
    r.memory = static_cast<v1::MemoryKind>(memory[i]);
    r.device = device[i];
    r.allocations = allocations[i];
    r.frees = frees[i];
    r.rise_bytes = rise[i];
    r.change_bytes = change[i];
    internal::Step(r.range, range[i]);
    r.obtained = {overlapping[i], overlapping_before[i], r.end_ns - overlapping_since[i]};
    r.released = {overlapping_freed[i], overlapping_freed_before[i], r.end_ns - overlapping_freed_since[i]};
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachPoolLevel(const v1::Batch& batch, Visitor&& visit) {
  const v1::PoolLevels& m = batch.pool_levels();
  const int rows = internal::Rows(m.time_delta(), m.pool(), m.device(), m.used(), m.reserved(), m.peak_used(),
                                  m.peak_used_delta(), m.peak_reserved(), m.peak_reserved_delta(),
                                  m.release_threshold(), m.trims(), m.state());
  if (rows < 0) return internal::Ragged("PoolLevels");
  const internal::Column time(m.time_delta());
  const internal::Column pool(m.pool());
  const internal::Column device(m.device());
  const internal::Column used(m.used());
  const internal::Column reserved(m.reserved());
  const internal::Column peak_used(m.peak_used());
  const internal::Column peak_used_at(m.peak_used_delta());
  const internal::Column peak_reserved(m.peak_reserved());
  const internal::Column peak_reserved_at(m.peak_reserved_delta());
  const internal::Column release_threshold(m.release_threshold());
  const internal::Column trims(m.trims());
  const internal::Column state(m.state());
  PoolLevelRecord r{};
  r.time_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.time_ns, time[i]);
    r.pool = pool[i];
    r.device = device[i];
    r.used_bytes = used[i];
    r.reserved_bytes = reserved[i];
    r.peak_used_bytes = peak_used[i];
    r.peak_used_at_ns = r.time_ns + static_cast<uint64_t>(peak_used_at[i]);
    r.peak_reserved_bytes = peak_reserved[i];
    r.peak_reserved_at_ns = r.time_ns + static_cast<uint64_t>(peak_reserved_at[i]);
    r.release_threshold_bytes = release_threshold[i];
    r.trims = trims[i];
    r.state = static_cast<v1::PoolState>(state[i]);
    visit(r);
  }
  return absl::OkStatus();
}

template <typename Visitor>
absl::Status ForEachCollective(const v1::Batch& batch, Visitor&& visit) {
  const v1::Collectives& m = batch.collectives();
  const int rows =
      internal::Rows(m.issue_delta(), m.host_duration(), m.op(), m.comm(), m.seq_delta(), m.count(),
                     m.datatype(), m.element_bytes(), m.root(), m.peer(), m.plan_delta(), m.thread(),
                     m.range_delta(), m.source(), m.result(), m.algorithm(), m.protocol(), m.channels());
  if (rows < 0) return internal::Ragged("Collectives");
  const internal::Column issue(m.issue_delta());
  const internal::Column host(m.host_duration());
  const internal::Column op(m.op());
  const internal::Column comm(m.comm());
  const internal::Column seq(m.seq_delta());
  const internal::Column count(m.count());
  const internal::Column datatype(m.datatype());
  const internal::Column element(m.element_bytes());
  const internal::Column root(m.root());
  const internal::Column peer(m.peer());
  const internal::Column plan(m.plan_delta());
  const internal::Column thread(m.thread());
  const internal::Column range(m.range_delta());
  const internal::Column source(m.source());
  const internal::Column result(m.result());
  const internal::Column algorithm(m.algorithm());
  const internal::Column protocol(m.protocol());
  const internal::Column channels(m.channels());
  CollectiveRecord r{};
  r.issue_ns = batch.base_ns();
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.issue_ns, issue[i]);
    r.return_ns = r.issue_ns + host[i];
    r.op = op[i];
    r.comm = comm[i];
    internal::Step(r.seq, seq[i]);
    r.count = count[i];
    r.datatype = datatype[i];
    r.element_bytes = element[i];
    r.root = root[i];
    r.peer = peer[i];
    internal::Step(r.plan, plan[i]);
    r.thread = thread[i];
    internal::Step(r.range, range[i]);
    r.source = static_cast<v1::CallSource>(source[i]);
    r.result = result[i];
    r.algorithm = algorithm[i];
    r.protocol = protocol[i];
    r.channels = channels[i];
    visit(r);
  }
  return absl::OkStatus();
}

// visit(plan, correlation, graph_node, from_correlation): for a captured plan graph_node is set, else
// correlation. `from_correlation`: for an updated node, the first graph launch that it applies to.
template <typename Visitor>
absl::Status ForEachPlan(const v1::Batch& batch, Visitor&& visit) {
  const v1::Plans& m = batch.plans();
  const int rows = internal::Rows(m.plan_delta(), m.correlation_delta(), m.graph_node_delta(), m.graph(),
                                  m.from_correlation(), m.copy());
  if (rows < 0) return internal::Ragged("Plans");
  const internal::Column copy(m.copy());
  const internal::Column from_correlation(m.from_correlation());
  const internal::Column plan_delta(m.plan_delta());
  const internal::Column correlation_delta(m.correlation_delta());
  const internal::Column node_delta(m.graph_node_delta());
  const internal::Column graph(m.graph());
  PlanRecord r{.plan = 0, .correlation = 0, .graph_node = 0, .graph = 0, .from_correlation = 0, .copy = 0};
  for (int i = 0; i < rows; ++i) {
    internal::Step(r.plan, plan_delta[i]);
    internal::Step(r.correlation, correlation_delta[i]);
    internal::Step(r.graph_node, node_delta[i]);
    r.graph = graph[i];
    r.from_correlation = from_correlation[i];
    r.copy = copy[i];
    visit(r);
  }
  return absl::OkStatus();
}

// A later report of a communicator replaces the earlier one, except for the time at which it was made; its
// end may be reported without repeating the rest.
inline void MergeCommunicator(const v1::Communicator& told, v1::Communicator& known) {
  const v1::Communicator before = known;
  known = told;
  if (known.hash() == 0) known.set_hash(before.hash());
  if (known.ranks() == 0) known.set_ranks(before.ranks());
  if (known.name() == 0) known.set_name(before.name());
  if (known.made_by() == 0) known.set_made_by(before.made_by());
  if (before.time_ns() != 0) known.set_time_ns(before.time_ns());
  if (before.ranks() != 0 && known.rank() < 0) known.set_rank(before.rank());
}

}  // namespace gpuprobe::model
