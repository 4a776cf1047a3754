// The cost of communication per step, what it consists of, and what could be done about it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gpuprobe::analysis {

// A call at its place in the step, of one operation and communicator; means over ranks and steps.
struct CallTiming {
  uint32_t place = 0;  // from 0
  uint64_t size_bytes = 0;
  uint64_t steps = 0;                       // of all ranks
  double time_ns = 0;                       // waiting included
  std::optional<double> hidden_share;       // of it, behind compute
  std::optional<double> after_backward_ns;  // its start, from backward's; absent where no backward is known
};

// Collectives of one operation that are launched in forward: of tensor parallelism, or that gather weights.
struct ForwardCommunication {
  std::string op;
  int comm_ranks = 0;
  double calls_per_step = 0;
  double time_ns_per_step = 0;
  double exposed_ns_per_step = 0;
  double share_of_forward = 0;  // exposed, of forward's compute and all its exposed communication
};

// The calls that reduce a step's gradients.
struct Buckets {
  struct Size {
    uint64_t size_bytes = 0;
    double calls_per_step = 0;
    double transfer_ns = 0;
    std::optional<double> busbw;
  };
  std::string op;
  std::string comm;
  std::vector<Size> sizes;  // largest first
  double calls_per_step = 0;
  double bytes_per_step = 0;
  double transfer_ns_per_step = 0;
  std::vector<CallTiming> order;  // as a step makes them
};

// How large the buckets should be (bucket_advice.h).
struct BucketAdvice {
  uint64_t bucket_bytes = 0;
  double exposed_ns = 0;  // of a step, then
  bool fitted = false;    // else the latency is not known, and small buckets were not considered
};

struct Pipeline {
  int stages = 0;
  int microbatches = 0;
  // Share of the step in which a stage neither computes nor waits for communication other than with another
  // stage (tensor parallelism, gradients), mean over the ranks.
  double bubble = 0;
  double least_bubble = 0;  // (p-1)/(m+p-1)
  // That other communication, of the rank with the least exposed: about the transfers alone. Per step.
  double collective_ns = 0;
  double exposed_collective_ns = 0;
};

// Calls of one operation on communicators of as many ranks, and of sizes that are called in forward, or of
// others.
struct ExposedCalls {
  std::string op;
  int comm_ranks = 0;
  bool in_forward = false;         // tensor parallelism, or sharded weights
  double calls_per_step = 0;       // of a rank, mean over the ranks
  double time_ns_per_step = 0;     // waiting included; a mean like the calls
  double exposed_ns_per_step = 0;  // part of this time
};

// The network between hosts, as the job's own transfers show it (network_report.h).
struct NetworkReport {
  int hosts = 0;
  std::optional<double> gbytes_per_s;  // bus bandwidth by what a byte takes, latency left out; the best
  // The rate of that communicator in the vendor's reference design for this device: an assumption.
  std::optional<double> reference_gbytes_per_s;
  std::string device;
  // The same transfer takes kSlowedFactor times as long: since a step, or where some hosts take part, or
  // both.
  struct Slow {
    std::string op;
    uint64_t size_bytes = 0;
    int comm_ranks = 0;
    double usual_ns = 0;
    double slow_ns = 0;
    std::optional<uint64_t> since_step;
    // On similar communicators without and with `hosts`; 0 where hosts could not be distinguished.
    double elsewhere_ns = 0;
    double elsewhere_slow_ns = 0;
    std::vector<std::string> hosts;
  };
  std::optional<Slow> slow;
};

// Means over ranks and steps; all 0 without steps.
struct CommunicationReport {
  double step_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;              // waiting included
  double exposed_ns = 0;           // waiting included
  double waited_ns = 0;            // for ranks that came later
  double transfer_ns = 0;          // of the rank that waited least: about the transfers alone
  double exposed_transfer_ns = 0;  // the exposed part of these
  // Share of the calls' time on communicators with ranks that do not record here: their apparent transfers
  // include waiting for these.
  double unheard_share = 0;
  // The exposed part of the waiting: how much shorter a step would be if no rank were late.
  double exposed_wait_ns() const { return exposed_ns - exposed_transfer_ns; }
  std::optional<double> link_peak;  // 1e9 bytes per second
  std::string link_peak_source;
  std::optional<NetworkReport> network;
  std::vector<std::string> pattern;           // of parallelism, inferred from the operations
  std::map<std::string, double> bytes_share;  // by operation
  std::optional<Buckets> buckets;
  std::optional<BucketAdvice> bucket_advice;
  std::vector<ForwardCommunication> forward;
  std::vector<ExposedCalls> exposed;  // most exposed time first
  std::optional<Pipeline> pipeline;
};

}  // namespace gpuprobe::analysis
