// What a process did last, as its flight recorder kept it (proto/flight_ring.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/python_stack.h"

namespace gpuprobe::analysis {

// The last call on a communicator.
struct LastCall {
  std::string communicator;  // the program's name for it, else its hash
  int ranks = 0;
  std::string operation;
  uint64_t sequence = 0;
  std::optional<int> peer = std::nullopt;
  uint64_t bytes = 0;
  uint64_t entered_ns = 0;
  uint64_t left_ns = 0;
  int result = 0;
  uint64_t calls = 0;

  static constexpr void Declare(auto& fields) {
    using C = LastCall;
    fields("communicator", &C::communicator, "the name that the program gave it, else its hash");
    fields("ranks", &C::ranks, "how many it has; `null`: not known").NullIfZero();
    fields("operation", &C::operation, "`AllReduce`, `Send` ...");
    fields("sequence", &C::sequence,
           "which collective of the communicator it is, from 0; sends and receives count by themselves");
    fields("peer", &C::peer, "of a send or a receive");
    fields("bytes", &C::bytes, "of the buffer that the call names");
    fields("entered_ns", &C::entered_ns, "when the program called NCCL");
    fields(
        "left_ns", &C::left_ns,
        "when the call, or its group, had returned: it was issued, and the GPU may not have done it; `null`: "
        "it had not returned")
        .NullIfZero();
    fields("result", &C::result, "`ncclResult_t`, 0: success");
    fields("calls", &C::calls, "how many calls on the communicator were seen");
  }
};

struct LastThread {
  uint32_t tid = 0;
  bool main = false;
  std::vector<std::string> ranges;
  uint32_t ranges_not_known = 0;
  uint64_t launches = 0;
  uint64_t launched_ns = 0;

  static constexpr void Declare(auto& fields) {
    using T = LastThread;
    fields("tid", &T::tid, "its number");
    fields("main", &T::main, "whether it is the process's main thread");
    fields("ranges", &T::ranges, "open NVTX ranges, the innermost last; at most the eight innermost");
    fields("ranges_not_known", &T::ranges_not_known, "open ranges further out, or whose record is torn");
    fields("launches", &T::launches, "kernels, copies and graphs that it launched");
    fields("launched_ns", &T::launched_ns, "when the last one was; `null`: none was").NullIfZero();
  }
};

// A call that failed.
struct LastFailure {
  std::string kind;  // "allocation", "launch", "nccl"
  std::string call;
  int code = 0;
  uint64_t bytes = 0;
  uint64_t at_ns = 0;

  static constexpr void Declare(auto& fields) {
    using F = LastFailure;
    fields("kind", &F::kind, "`allocation`, `launch` or `nccl`");
    fields("call", &F::call, "the function");
    fields("code", &F::code, "`CUresult`, or of NCCL `ncclResult_t`");
    fields("bytes", &F::bytes, "that an allocation asked for; `null`: it was none").NullIfZero();
    fields("at_ns", &F::at_ns, "when");
  }
};

struct LastStack {
  uint64_t at_ns = 0;
  uint32_t tid = 0;
  std::string call;
  std::vector<PythonFrame> python;

  static constexpr void Declare(auto& fields) {
    using S = LastStack;
    fields("at_ns", &S::at_ns, "when it was sampled");
    fields("tid", &S::tid, "the thread");
    fields("call", &S::call, "the CUDA or NCCL function that it was in; `null`: in none").NullIfZero();
    fields("python", &S::python,
           "innermost first, at most eight; texts longer than 48 and 80 bytes lack their begin");
  }
};

struct LastMoments {
  std::string ring;  // the file's name in the run directory
  std::string unreadable = {};
  std::string job = {};
  std::string attempt = {};
  std::string host = {};
  std::optional<int> rank = std::nullopt;
  uint32_t pid = 0;
  uint64_t process_start_ns = 0;
  uint64_t seen_ns = 0;
  uint64_t ended_ns = 0;
  bool collector_ended = false;
  std::vector<LastCall> calls = {};
  std::vector<LastThread> threads = {};
  std::vector<LastFailure> failures = {};
  std::optional<LastStack> stack = std::nullopt;
  uint32_t torn = 0;
  uint32_t threads_left_out = 0;
  uint32_t communicators_left_out = 0;

  // The moment up to which it is known, for "3 ms before".
  uint64_t until_ns() const { return ended_ns != 0 ? ended_ns : seen_ns; }
  // "rank 3 (pid 4711) on n1"; what is torn is left out.
  std::string Name() const;

  static constexpr void Declare(auto& fields) {
    using M = LastMoments;
    fields("ring", &M::ring, "the file that says so, in the run directory");
    fields("unreadable", &M::unreadable, "why nothing is known; `null`: it was read").NullIfZero();
    fields("job", &M::job, "the launcher's name of the job").NullIfZero();
    fields("attempt", &M::attempt, "of a launcher that starts a job again (torchrun, Slurm)").NullIfZero();
    fields("host", &M::host, "its host");
    fields("rank", &M::rank, "its rank");
    fields("pid", &M::pid, "its process");
    fields("process_start_ns", &M::process_start_ns, "when that began, to 10 ms").NullIfZero();
    fields("seen_ns", &M::seen_ns, "the latest time in the ring; its clock is read twice a second");
    fields("ended_ns", &M::ended_ns,
           "when the collector saw the connection end; `null`: it was dead by then, or both go on")
        .NullIfZero();
    fields("collector_ended", &M::collector_ended, "the collector ended in order while the process ran");
    fields("calls", &M::calls, "the last call of each communicator, the latest first");
    fields("threads", &M::threads, "those that launched something or opened a range, the main thread first");
    fields("failures", &M::failures, "the last four calls that failed, the latest first");
    fields("stack", &M::stack, "the Python stack that was sampled last, in a gap between launches");
    fields("torn", &M::torn, "records that were being written at the end, or were damaged, and are left out");
    fields("threads_left_out", &M::threads_left_out, "threads beyond the first 40, which have no record");
    fields("communicators_left_out", &M::communicators_left_out,
           "communicators whose record a younger one has taken");
  }
};

}  // namespace gpuprobe::analysis
