// Events from the application's threads: small plain structs that go through a per-thread ring to the probe's
// own thread.
//
// They differ from the batch schema because a producer may not allocate, lock or block: it writes handles and
// raw text, and the consumer (ledgers/event_drain) interns names, pairs opened with closed ranges, and fills
// columns. Thread: producers are application threads inside the guard; the consumer is the thread that holds
// the builder's lock. Times are stamps (host_clock.h) in the ring, and nanoseconds of CLOCK_REALTIME once the
// consumer has converted them. Failure: a full ring drops the event and counts LOSS_EVENT_RING_FULL.
#pragma once

#include <cstdint>

#include "gpuprobe/v1/wire_tags.h"

namespace gpuprobe::injector {

enum class EventType : uint16_t {
  kLaunch = 1,
  kRangeOpen,
  kRangeClose,
  kMark,
  kAllocation,
  kCollective,
  kPlanLaunch,
  kCommunicator,
  kContextEnd,
  kAllocatorLevel,
  kAllocatorRefusal,
  kTensor,
  kThreadName,
  kCategoryName,
  kRangePayload,
  kObjectName,
  kGraphNode,
  kGraphMemoryNode,
  kGraphCall,
  kPhysicalMemory,
  kThreadBegins,
  kLaunchTime,
  kDriverCall,
  kTracedStep,
  kCallTime,
};

// From here on the ring belongs to another thread: its previous owner has ended.
struct ThreadBeginsEvent {
  static constexpr EventType kType = EventType::kThreadBegins;
  uint32_t thread_id;  // ThreadDef.id
  uint32_t tid;
  char name[16];  // as it was then
};

// A launch of GPU work: kernel, copy, memset or graph. At API entry.
struct LaunchEvent {
  static constexpr EventType kType = EventType::kLaunch;
  uint64_t time_ns;
  uint64_t range_id;           // innermost open range of this thread, 0 if none
  uint64_t fallback_range_id;  // of the main thread, when range_id is 0
  uint32_t correlation;
  uint32_t graph;            // as Launches.graph on the wire
  uint32_t may_lack_record;  // as Launches.may_lack_record on the wire
  uint32_t owner;            // as Launches.owner on the wire
};

// A kernel's launch has returned: of one launch in so many.
inline constexpr uint32_t kLaunchSampling = 16;
struct LaunchTimeEvent {
  static constexpr EventType kType = EventType::kLaunchTime;
  uint64_t time_ns;
  uint64_t entered_ns;
};

// A slow function of the driver has returned. Calls that were shorter are not recorded.
inline constexpr uint64_t kSlowDriverCallNs = 20'000;
struct DriverCallEvent {
  static constexpr EventType kType = EventType::kDriverCall;
  uint64_t time_ns;
  uint64_t entered_ns;
  const char* function;  // CUPTI's own name, which stays
  uint64_t range_id;
  int32_t result;    // CUresult
  uint32_t by_nccl;  // 1: made inside a call into NCCL
};

// At level calls: a step has begun.
struct TracedStepEvent {
  static constexpr EventType kType = EventType::kTracedStep;
  uint64_t time_ns;
  uint64_t index;
};

// At level calls: NCCL has seen a collective end on the GPU.
struct CallTimeEvent {
  static constexpr EventType kType = EventType::kCallTime;
  uint64_t time_ns;
  uint64_t number;  // as CallTimes.number on the wire
  uint64_t gpu_ns;
  uint32_t comm;  // Communicator.id
  uint16_t op;    // index into the NCCL entry-point table
  uint16_t reserved;
};

// Followed by `name_bytes` of text (cut at kMaxNameBytes), not terminated.
struct RangeOpenEvent {
  static constexpr EventType kType = EventType::kRangeOpen;
  uint64_t time_ns;
  uint64_t id;         // process-wide, from 1
  uint64_t parent_id;  // enclosing range on this thread, 0 if none
  uint64_t domain;     // opaque domain handle, 0 for the default; its name comes from the domain registry
  uint32_t category;
  uint16_t kind;  // wire::RangeKind
  uint16_t name_bytes;
  uint64_t payload;
  uint32_t color;         // ARGB, 0: none
  uint32_t payload_kind;  // wire::PayloadKind
};

struct RangeCloseEvent {
  static constexpr EventType kType = EventType::kRangeClose;
  uint64_t time_ns;
  uint64_t id;
};

// A range of no length. Followed by its text.
struct MarkEvent {
  static constexpr EventType kType = EventType::kMark;
  uint64_t time_ns;
  uint64_t id;
  uint64_t parent_id;
  uint64_t domain;
  uint32_t category;
  uint16_t reserved;
  uint16_t name_bytes;
  uint64_t payload;
  uint32_t color;
  uint32_t payload_kind;
};

enum AllocationWhat : uint8_t {
  kPhysical = 1,  // its address is a handle of the virtual memory API
  kImported = 2,  // no memory of this process (another's, or a sparse array's): its release is expected
};

struct AllocationEvent {
  static constexpr EventType kType = EventType::kAllocation;
  uint64_t time_ns;
  uint64_t address;
  uint64_t bytes;  // of a free: filled in by the consumer's ledger
  uint64_t range_id;
  uint64_t began_ns;  // when the call was entered, 0 if that was not seen
  uint64_t context;   // whose end releases the memory too; 0: none
  int32_t device;     // -1: not known
  uint8_t op;         // wire::AllocationOp
  uint8_t memory;     // wire::MemoryKind
  uint8_t failed;
  uint8_t what;      // AllocationWhat
  uint32_t by_nccl;  // 1: made inside a call into NCCL
};

// kImported, kObjectMade: a handle that is not this process's memory, because it was imported or is a
// multicast object. Bindings tie memory to multicast objects and sparse arrays.
enum class PhysicalMemoryCall : uint8_t {
  kRetained,
  kReleased,
  kMapped,
  kUnmapped,
  kImported,
  kObjectMade,
  kBound,
  kUnbound
};

// A call that keeps or ends physical memory of the virtual memory API. Creating it is an AllocationEvent.
struct PhysicalMemoryEvent {
  static constexpr EventType kType = EventType::kPhysicalMemory;
  uint64_t time_ns;
  uint64_t handle;   // of an unmapping: 0; of a binding: the multicast object or the array
  uint64_t address;  // of mappings; of a binding: the memory's handle, or an address where it is mapped
  uint64_t
      bytes;  // of mappings; of a binding: where in the object (MixBits of what names a part of an array)
  uint64_t range_id;
  uint64_t began_ns;   // of what ends something: when the call was entered, 0 if that was not seen
  int32_t device;      // of an unbinding
  uint8_t call;        // PhysicalMemoryCall
  uint8_t by_address;  // of a binding
  uint8_t reserved[2];
};

// A context begins to end, and with it the memory that was allocated in it. Context 0: the call in which the
// thread reported one has returned.
struct ContextEndEvent {
  static constexpr EventType kType = EventType::kContextEnd;
  uint64_t time_ns;
  uint64_t context;
};

// What PyTorch's allocator has handed out and holds on a device.
struct AllocatorLevelEvent {
  static constexpr EventType kType = EventType::kAllocatorLevel;
  uint64_t time_ns;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t peak_allocated_bytes;
  uint64_t peak_reserved_bytes;
  int32_t device;
  uint32_t reserved;
};

struct AllocatorRefusalEvent {
  static constexpr EventType kType = EventType::kAllocatorRefusal;
  uint64_t time_ns;
  uint64_t asked_bytes;
  uint64_t allocated_bytes;
  uint64_t reserved_bytes;
  uint64_t range_id;
  int32_t device;
  uint32_t reserved;
};

// PyTorch's allocator handed out or took back.
struct TensorEvent {
  static constexpr EventType kType = EventType::kTensor;
  uint64_t time_ns;
  uint64_t address;
  int64_t bytes;  // negative: taken back
  uint64_t range_id;
  int32_t device;
  uint32_t reserved;
};

// The program names one of its threads. Followed by the name, cut at kMaxNameBytes.
struct ThreadNameEvent {
  static constexpr EventType kType = EventType::kThreadName;
  uint64_t time_ns;
  uint32_t tid;
  uint32_t reserved;
};

// The program names a category of its ranges. Followed by the name, cut at kMaxNameBytes.
struct CategoryNameEvent {
  static constexpr EventType kType = EventType::kCategoryName;
  uint64_t time_ns;
  uint64_t domain;  // as RangeOpenEvent::domain
  uint32_t category;
  uint32_t reserved;
};

// What the program passes with a range, in a layout that it described. Followed by the bytes.
struct RangePayloadEvent {
  static constexpr EventType kType = EventType::kRangePayload;
  uint64_t time_ns;
  uint64_t range_id;
  uint32_t schema;  // EventNames::payload_field
  uint32_t reserved;
};

// The program names a stream or a device. Followed by the name, cut at kMaxNameBytes.
struct ObjectNameEvent {
  static constexpr EventType kType = EventType::kObjectName;
  uint64_t time_ns;
  uint32_t context;  // CUPTI's id; of a stream
  uint32_t id;       // CUPTI's id of the stream, or the device's ordinal
  uint32_t kind;     // wire::NamedObject
  uint32_t reserved;
};

struct CollectiveEvent {
  static constexpr EventType kType = EventType::kCollective;
  uint64_t issue_ns;
  uint64_t return_ns;
  uint64_t seq;
  uint64_t count;
  uint64_t plan;  // 0: none
  uint64_t range_id;
  uint32_t comm;     // Communicator.id
  int32_t root;      // -1: none
  int32_t peer;      // -1: none
  int32_t result;    // ncclResult_t
  uint16_t op;       // index into the NCCL entry-point table
  uint8_t datatype;  // ncclDataType_t
  uint8_t source;    // wire::CallSource
  uint32_t element_bytes;
  uint32_t thread;    // ThreadDef.id of the caller, 0: whose ring it is
  uint8_t algorithm;  // EventNames::collective_how; 0: not known
  uint8_t protocol;   // as algorithm
  uint8_t channels;
  uint8_t captured : 1;   // into a CUDA graph, whose launches run it
  uint8_t reduction : 7;  // EventNames::collective_reduction; 0: none, or not known
};

// A kernel launched for a plan, or the node of a CUDA graph that will launch it.
inline constexpr uint64_t kRefusedLaunch = UINT64_MAX;  // instead of a node: see Plans on the wire
struct PlanLaunchEvent {
  static constexpr EventType kType = EventType::kPlanLaunch;
  uint64_t plan;
  uint32_t correlation;  // 0: captured
  uint32_t graph;        // as Plans.graph on the wire
  uint64_t graph_node;   // 0: launched at once
  uint32_t copy;         // as Plans.copy on the wire
  uint32_t reserved;
};

// A node of a CUDA graph that carries an NCCL call was made or copied.
struct GraphNodeEvent {
  static constexpr EventType kType = EventType::kGraphNode;
  uint64_t time_ns;
  uint64_t owner;  // the graph's handle, or kCopiedBy and the correlation id of the call that copies it
  uint64_t node;
  uint64_t original;  // node that it was copied from, 0 if none
};
inline constexpr uint64_t kCopiedBy = uint64_t{1} << 63;

// A node of a CUDA graph that allocates or releases was made.
struct GraphMemoryNodeEvent {
  static constexpr EventType kType = EventType::kGraphMemoryNode;
  uint64_t time_ns;
  uint64_t graph;
  uint64_t address;
  uint64_t bytes;
  int32_t device;
  uint8_t op;  // wire::AllocationOp
  uint8_t reserved[3];
};

enum class GraphCall : uint8_t {
  kInstantiated,
  kUpdated,
  kLaunched,
  kGraphDestroyed,
  kExecDestroyed,  // asked for: the handle may be given out again
  kExecGone,       // what was asked for on this thread is done
  kCloned,
  kChildAdded,
  kChildReplaced,
};

struct GraphCallEvent {
  static constexpr EventType kType = EventType::kGraphCall;
  uint64_t time_ns;
  uint64_t graph;  // of an instantiation or an update: from which; a clone, a destroyed graph: it
  uint64_t exec;
  uint64_t node;   // handle: that holds a child graph which was added or, in an executable graph, replaced
  uint64_t child;  // the graph that was moved there, 0: copied; or from which it was replaced
  uint64_t range_id;
  uint64_t context;
  uint64_t began_ns;  // of a launch, and of an executable graph that is gone: when the call was entered, 0 if
                      // that was not seen
  uint32_t correlation;
  uint32_t exec_number;  // NumberOfGraph, of what was updated
  uint8_t call;          // GraphCall
  uint8_t failed;        // a launch that was refused for want of memory
  uint8_t reserved[6];
};

// Its name follows as text, if it has one.
struct CommunicatorEvent {
  static constexpr EventType kType = EventType::kCommunicator;
  uint64_t time_ns;
  uint64_t hash;  // 0: not known yet
  uint32_t id;
  uint32_t parent;
  int32_t rank;    // -1: not known
  int32_t ranks;   // 0: not known
  int32_t device;  // -1: not known
  uint8_t state;   // wire::CommunicatorState
  uint8_t reserved;
  uint16_t made_by;  // index into the NCCL entry-point table, plus 1; 0: not seen
};

inline constexpr uint16_t kMaxNameBytes = 256;

}  // namespace gpuprobe::injector
