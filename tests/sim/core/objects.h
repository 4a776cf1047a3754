// The objects behind the driver's opaque handles, and how work gets into a stream.
//
// The handle types of cuda.h point at these structures. All of them belong to the schedule's mutex; functions
// named ...Locked want it held. An object that was destroyed stays valid memory while queued work refers to
// it.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/core/cupti_seam.h"
#include "tests/sim/core/schedule.h"

struct CUctx_st;

namespace gpusim {

// A capture in progress; shared by the streams that take part.
struct Capture {
  uint64_t id = 0;
  CUgraph graph = nullptr;
  CUstream origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  bool owns_graph = true;
};

}  // namespace gpusim

struct CUstream_st {
  CUctx_st* context = nullptr;
  uint32_t id = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool per_thread = false;
  gpusim::OpPtr last;
  std::shared_ptr<size_t> in_flight = std::make_shared<size_t>(0);
  std::shared_ptr<gpusim::Capture> capture;
  std::vector<CUgraphNode> capture_dependencies;
};

struct CUevent_st {
  CUctx_st* context = nullptr;
  uint32_t id = 0;
  unsigned flags = 0;
  gpusim::OpPtr record;                      // null: never recorded
  std::shared_ptr<gpusim::Capture> capture;  // recorded in a capture
  std::vector<CUgraphNode> capture_dependencies;
};

struct CUctx_st {
  int device = 0;
  uint32_t uid = 0;
  bool primary = false;
  int retained = 0;
  unsigned flags = 0;
  uint32_t next_stream_id = 13;  // CUPTI's numbers start about there; the default stream is 7
  std::unique_ptr<CUstream_st> legacy;
  std::map<uint64_t, std::unique_ptr<CUstream_st>> per_thread;  // by the thread's number
  std::set<CUstream_st*> streams;                               // created ones
  std::vector<std::pair<gpusim::OpPtr, bool>>
      orphans;  // last work of destroyed streams; true: of blocking ones
  std::set<const void*> loaded_modules;
  std::set<uint32_t> peers;  // uids of the contexts that it may reach
  std::map<CUlimit, size_t> limits;
};

struct CUmod_st {
  std::string image;  // text images only: their entry names can be checked
  std::map<std::string, CUfunction> functions;
};

struct CUfunc_st {
  const char* name = nullptr;  // mangled, never freed
  const void* module = nullptr;
  int max_dynamic_shared = 48 << 10;
  int carveout = -1;
  int cluster[3] = {0, 0, 0};
};
// A kernel may be launched by either handle, as in the real driver.
struct CUkern_st : CUfunc_st {};

struct CUlib_st {
  CUmod_st module;
};

namespace gpusim {

// Takes the schedule's mutex.
class Locked {
 public:
  Locked() : lock_(Schedule::Get().Mutex()) {}
  std::unique_lock<std::mutex>& Lock() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

// context.cc
CUresult InitDriver();
CUresult RequireContext(CUctx_st** context);  // the calling thread's current one
CUctx_st* CurrentContextOrNull();
bool IsLive(CUctx_st* context);
CUresult RetainPrimary(int device, CUctx_st** context);
CUresult ReleasePrimary(int device);
CUresult ResetPrimary(int device);
void PrimaryState(int device, unsigned* flags, int* active);
CUresult SetPrimaryFlags(int device, unsigned flags);
CUctx_st* NewContext(int device, unsigned flags);
CUresult DestroyContext(CUctx_st* context);
void PushContext(CUctx_st* context);
bool PopContext(CUctx_st** context);
void SetContext(CUctx_st* context);
void NotifyResource(ResourceEvent event, CUctx_st* context, void* stream);
uint64_t ThreadNumber();

// stream.cc
// The stream behind a handle for the calling thread's current context; null, legacy and per-thread handles
// included.
CUresult FindStreamLocked(CUstream handle, CUstream_st** stream);
CUstream_st* LegacyStreamLocked(CUctx_st* context);
CUresult NewStream(CUctx_st* context, unsigned flags, int priority, CUstream* stream);
CUresult DropStream(CUstream stream);
// Issues `work` to the stream, or adds it to the capture that the stream is in. `op` (may be null) gets the
// operation, null if captured. Waits while the stream has its fill of work.
CUresult Issue(CUstream handle, Work work, CUgraphNodeType node_type, OpPtr* op);
CUresult IssueLocked(std::unique_lock<std::mutex>& lock, CUstream_st* stream, Work work,
                     CUgraphNodeType node_type, OpPtr* op);
// As Issue, in the order of the default stream's rules, with further dependencies; never captured.
OpPtr EnqueueLocked(CUstream_st* stream, Work work, std::vector<OpPtr> dependencies);
// Everything that a synchronisation of the stream, or of its context, waits for.
std::vector<OpPtr> PendingOfStreamLocked(CUstream_st* stream);
std::vector<OpPtr> PendingOfContextLocked(CUctx_st* context);
// Waits and reports it as a synchronisation of `type` (CUpti_ActivitySynchronizationType).
void WaitReported(std::unique_lock<std::mutex>& lock, const std::vector<OpPtr>& ops, CUctx_st* context,
                  int type, uint32_t stream_id, uint32_t event_id);
void WaitForContext(CUctx_st* context);
// The error that a call which cannot be captured gets from this stream's capture (it is invalidated); success
// if there is none.
CUresult RefuseInCaptureLocked(CUstream_st* stream);

// capture.cc
CUgraphNode AddCapturedLocked(CUstream_st* stream, Work work, CUgraphNodeType type);
CUresult BeginCapture(CUstream stream, CUgraph into, const CUgraphNode* dependencies, size_t count,
                      CUstreamCaptureMode mode);
CUresult EndCapture(CUstream stream, CUgraph* graph);
// What the stream's next piece of work waits for: these nodes besides what it waited for before, or instead.
CUresult UpdateCapture(CUstream stream, const CUgraphNode* nodes, size_t count, bool replace);
CUstreamCaptureMode ExchangeCaptureMode(CUstreamCaptureMode mode);
void JoinCaptureLocked(CUstream_st* stream, const std::shared_ptr<Capture>& capture);
void ForgetCapturingLocked(CUstream_st* stream);  // it is being destroyed
// True if some stream of the context that the legacy stream would wait for is capturing.
bool BlockingStreamCapturesLocked(CUctx_st* context);
bool AnyStreamCapturesLocked(CUctx_st* context);

// event.cc
CUresult NewEvent(CUctx_st* context, unsigned flags, CUevent* event);
CUresult DropEvent(CUevent event);
bool IsLiveLocked(CUevent event);
CUresult RecordEvent(CUevent event, CUstream stream, unsigned flags);
CUresult StreamWaitEvent(CUstream stream, CUevent event, unsigned flags);

// kernel.cc
const char* InternName(const std::string& name);
CUfunction KernelByName(const std::string& name, const void* module);
// Its module is unloaded: the next kernel may have its handle.
void RetireKernel(CUfunction function);
struct KernelShape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
};
CUresult MakeKernelWork(CUfunction function, const KernelShape& shape, Work* work);
// `arguments`: the first of them, or the buffer that holds them all; null if they are not known.
CUresult LaunchKernel(CUfunction function, const KernelShape& shape, CUstream stream, const void* arguments,
                      std::function<void()> effect);

}  // namespace gpusim
