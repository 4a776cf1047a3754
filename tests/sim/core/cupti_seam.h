// The seam between the simulated driver and the simulated CUPTI: what the driver reports to CUPTI.
//
// The core (inside libcuda.so.1) knows what happens; libcupti.so.13, which a process may or may not load,
// turns it into callbacks and activity records. libcupti registers one table of functions when it is loaded;
// until then every notification is a null check.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpusim {

// One API call of the runtime or the driver, on the calling thread. A driver call made by a runtime call
// carries the same correlation id.
struct ApiCall {
  int domain = 0;     // CUpti_CallbackDomain: driver or runtime API
  uint32_t cbid = 0;  // CUPTI_DRIVER_TRACE_CBID_* or CUPTI_RUNTIME_TRACE_CBID_*
  const char* function_name = nullptr;
  const void* params = nullptr;       // generated_cuda_meta.h or generated_cuda_runtime_api_meta.h
  void* result = nullptr;             // CUresult* or cudaError_t*, valid at exit
  const char* symbol_name = nullptr;  // mangled kernel name of a launch
  void* context = nullptr;            // CUcontext
  uint32_t context_uid = 0;
  uint32_t correlation = 0;
  uint64_t correlation_data = 0;  // scratch that a subscriber may use between enter and exit
  uint64_t start_ns = 0;          // at enter; end_ns at exit
  uint64_t end_ns = 0;
};

enum class ActivityKind { kKernel, kMemcpy, kPeerCopy, kMemset, kSync, kMemory, kMemoryPool };

// A finished piece of work, as the scheduler timed it. `kind` says which fields hold.
struct Activity {
  ActivityKind kind = ActivityKind::kKernel;
  uint64_t start_ns = 0;
  uint64_t end_ns = 0;
  uint32_t device = 0;
  uint32_t context_uid = 0;
  uint32_t stream_id = 0;
  uint32_t correlation = 0;
  uint32_t tid = 0;       // the thread that issued it
  uint64_t issue_ns = 0;  // and when, inside of its call
  uint64_t graph_node = 0;
  uint64_t graph_node_source = 0;  // the node that this one was instantiated or last updated from
  uint32_t graph_source = 0;       // and its graph
  uint32_t graph = 0;
  uint32_t graph_parts = 0;  // activities of this launch of the graph
  // kernel
  const char* name = nullptr;      // mangled; lives as long as the process
  const void* function = nullptr;  // CUfunction; a later module's may be at an earlier one's address
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t static_shared_bytes = 0;
  uint32_t dynamic_shared_bytes = 0;
  uint32_t registers_per_thread = 0;
  // memcpy, memset, memory
  uint64_t bytes = 0;
  int copy_kind = 0;        // CUpti_ActivityMemcpyKind
  int src_memory = 0;       // CUpti_ActivityMemoryKind
  int dst_memory = 0;       // also the memory kind of a memset or of an allocation
  uint32_t src_device = 0;  // peer copies
  uint32_t dst_device = 0;
  uint32_t memset_value = 0;
  bool asynchronous = false;
  uint64_t address = 0;      // memory
  int memory_operation = 0;  // CUpti_ActivityMemoryOperationType, CUpti_ActivityMemoryPoolOperationType
  // The pool of an allocation, after it, or the pool itself; 0: none
  uint64_t pool_address = 0;
  uint64_t pool_used = 0;
  uint64_t pool_reserved = 0;
  uint64_t pool_release_threshold = 0;
  // sync
  int sync_type = 0;  // CUpti_ActivitySynchronizationType
  uint32_t event_id = 0;
};

enum class ResourceEvent {
  kDriverUp,  // at the end of cuInit
  kContextCreated,
  kContextDestroyStarting,
  kStreamCreated,
  kStreamDestroyStarting,
  kModuleLoaded,
  kModuleUnloadStarting,
  kGraphNodeCreated,
  kGraphNodeCloned,
  kGraphCloned,
  kGraphExecCreated
};

struct Resource {
  ResourceEvent event = ResourceEvent::kContextCreated;
  void* context = nullptr;  // CUcontext
  void* stream = nullptr;   // CUstream
  void* graph = nullptr;    // CUgraph, and the graph-node fields below
  void* original_graph = nullptr;
  void* node = nullptr;
  void* original_node = nullptr;
  uint64_t node_id = 0;
  int node_type = 0;  // CUgraphNodeType
};

// What libcupti implements. Every function may be called from any thread; `activity` from the scheduler's
// thread.
struct CuptiHooks {
  // True when somebody subscribed to this API function; asked before the call's structures are filled.
  bool (*wants_api)(int domain, uint32_t cbid);
  void (*api_enter)(ApiCall* call);
  void (*api_exit)(ApiCall* call);
  void (*resource)(const Resource& resource);
  void (*activity)(const Activity& activity);
};

// Set by libcupti (release), read by the core (acquire). Lives in libcuda.so.1. If a process has several
// copies of libcupti, the driver serves the first one until another one subscribes.
extern std::atomic<const CuptiHooks*> cupti_hooks;
// True if a copy of libcupti has a subscriber; no other copy gets one until then.
extern std::atomic<bool> cupti_claimed;

// What libcupti asks of the core.
uint64_t NowNs();                // CLOCK_REALTIME
void ThreadBeginToolCallback();  // a tool's callback runs: its own CUDA calls are not traced
void ThreadEndToolCallback();

struct DeviceFacts {
  uint32_t ordinal = 0;
  const char* name = nullptr;
  uint8_t uuid[16] = {};
  uint64_t memory_bytes = 0;
  uint32_t multiprocessors = 0;
  uint32_t compute_major = 0;
  uint32_t compute_minor = 0;
  uint64_t memory_bandwidth_bytes_per_s = 0;
};
bool DriverIsUp();  // cuInit succeeded
size_t DeviceCount();
DeviceFacts FactsOfDevice(uint32_t ordinal);

// Identities, for the queries of CUPTI. Zero (or false) for a handle that is not alive; a null stream is the
// default stream, of the calling thread if `per_thread`.
void* CurrentContext();  // CUcontext of the calling thread, or null
uint32_t ContextUid(void* context);
bool DeviceOfContext(void* context, uint32_t* ordinal);
bool StreamIdOf(void* context, void* stream, bool per_thread, uint32_t* stream_id);
uint32_t GraphId(void* graph);     // CUgraph; of a CUgraphExec's clone too
uint64_t GraphNodeId(void* node);  // CUgraphNode

// Delivers every activity whose work has ended by now, through the scheduler's thread, and waits for that.
// Not from `activity`.
void SettleFinishedWork();

// Writes to the truth log what CUPTI took time for: `what` is "buffer_flush" or "function_loading".
void LogOverhead(const char* what, uint64_t start_ns, uint64_t end_ns, uint32_t correlation);

// True if GPUSIM_FAULT="name[=value],..." names this fault; `value` (may be null) is what follows the equals
// sign.
bool FaultIs(const char* name, const char** value);

}  // namespace gpusim
