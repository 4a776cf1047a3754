// The activity buffer protocol: who asks for buffers, what is written into them, when they are given back.
//
// Separate from the API because it is the part with threads: a buffer is requested on the application's
// thread (in a traced call), records are written by a worker in an order that is not the order of their
// start, and the worker completes a buffer when it is full or when somebody flushes. Knows nothing of the
// driver, so it is tested without one.
//
// A kernel that was launched but has not finished holds a slot in the buffer that was open at its launch:
// that buffer is incomplete, a default flush leaves it, a forced flush returns it with a record that has no
// times, and the real completion is then lost.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/sim/cupti/layout.h"
#include "tests/sim/cupti/versions.h"

namespace gpusim::cupti {

struct BufferCallbacks {
  std::function<void(uint8_t** buffer, size_t* size, size_t* max_records)> request;
  std::function<void(uint8_t* buffer, size_t size, size_t valid_size)> complete;
};

struct BufferOptions {
  bool crash_on_null = false;
  uint64_t shuffle_window = 8;  // records that the worker writes in an order of its own
  uint64_t damage_every = 0;    // of buffers that come back, every n-th has a record that cannot be read
  uint32_t api_version = kDefaultVersion;
};

class Buffers {
 public:
  explicit Buffers(BufferOptions options);
  // Stops the worker; what is still held is lost.
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  // Replaces the callbacks: buffers that are out complete into the new ones, as with the real library.
  void Register(BufferCallbacks callbacks);
  bool Registered();

  // True: each thread has its own open buffer (13.0's default). False: all threads share one.
  void SetPerThread(bool per_thread);

  // The tool says that its buffers are zeroed: what CUPTI does not write keeps what the tool left there.
  void SetZeroedByTool(bool zeroed);

  // On the application's thread, inside a traced call: sees to it that there is an open buffer, asking for
  // one if need be.
  void EnsureBuffer();

  // On the application's thread: the kernel `correlation` was launched; `incomplete` is its record without
  // times. False if no buffer could be had: the record is dropped, counted, and its completion ignored.
  bool Reserve(uint32_t correlation, Record incomplete);
  // That launch was reserved and has not finished.
  bool Holds(uint32_t correlation);
  // The launch failed or was captured: there will be no record.
  void Unreserve(uint32_t correlation);
  // Nothing that was launched before will complete (context destroyed).
  void UnreserveAll();

  // A finished record, from any thread. Never blocks on the tool. `correlation` 0: belongs to no reserved
  // launch.
  void Add(uint32_t correlation, Record record);
  // Writes a record of CUPTI's own at once. False: no open buffer has room for it, and it is forgotten.
  bool AddIfOpen(const Record& record);
  // Writes what has finished without waiting for the worker, as far as there are open buffers.
  void WriteNow();
  void CountDropped(size_t records);
  // Kernels that wait here lose their times.
  void ZeroKernelTimes();

  // Has the worker complete those buffers whose records are all complete, or with `forced` all of them, and
  // waits for it.
  void Flush(bool forced);

  // Returns and resets the count of records that found no buffer.
  size_t TakeDropped();

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t size = 0;
    size_t max_records = 0;
    size_t written = 0;
    size_t records = 0;
    size_t reserved = 0;    // bytes held by launches that have not finished
    size_t incomplete = 0;  // how many they are
    uint64_t owner = 0;     // thread, or 0
    bool zeroed_by_tool = false;
    bool sealed = false;  // no further launch or record is accepted, only completions of what it holds
  };
  using BufferPtr = std::shared_ptr<Buffer>;

  struct Slot {
    BufferPtr buffer;  // null: dropped at launch, or given away by a forced flush
    Record incomplete;
  };

  struct Finished {
    uint32_t correlation = 0;
    Record record;
  };

  uint64_t OwnerOfThisThread() const;
  bool Fits(const Buffer& buffer, size_t size) const;
  BufferPtr FindOpen(uint64_t owner, size_t size);
  BufferPtr FindAnyOpen(size_t size);
  BufferPtr RequestBuffer(std::unique_lock<std::mutex>& lock);
  void WriteInto(Buffer& buffer, const Record& record);
  void Damage(const Buffer& buffer);
  void WriteFinished(std::unique_lock<std::mutex>& lock, bool may_request);
  bool WriteOne(Finished& finished, std::unique_lock<std::mutex>& lock, bool may_request);
  std::vector<BufferPtr> Take(const std::function<bool(const Buffer&)>& ready);
  void Complete(std::unique_lock<std::mutex>& lock, const std::vector<BufferPtr>& done);
  bool HasWorker() const;
  bool HasWork() const;
  static bool IsFull(const Buffer& buffer);
  void StartWorker();
  void WakeWorker();
  void Work();

  const BufferOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable completed_;
  BufferCallbacks callbacks_;
  bool per_thread_ = true;
  bool zeroed_by_tool_ = false;
  uint64_t returned_ = 0;  // buffers that held records
  std::deque<BufferPtr> buffers_;
  std::unordered_map<uint32_t, Slot> slots_;
  std::deque<Finished> finished_;
  bool starved_ = false;  // what has finished waits for a buffer; the worker must not ask for one
  size_t dropped_ = 0;
  std::vector<BufferPtr> flushed_;  // the worker is to complete them
  size_t completing_ = 0;           // completion callbacks that are running
  uint64_t shuffle_state_ = 0x9e3779b97f4a7c15ULL;
  bool stopping_ = false;
  std::thread worker_;
  bool worker_started_ = false;
  bool worker_is_idle_ = false;
  pid_t worker_of_ = 0;  // the process that has it: a forked child has none
};

}  // namespace gpusim::cupti
