// The cost of communication per step, what it consists of, and what could be done about it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collector/report/collectives.h"
#include "collector/report/links.h"
#include "collector/report/words.h"

namespace gpuprobe::analysis {

// The purpose of a communicator's calls (parallelism.h).
enum class CommunicationRole : uint8_t {
  kData,            // gradients are reduced
  kReplicas,        // shares of the gradients are reduced, between groups that shard the weights
  kSharded,         // weights are gathered inside the layers, gradients scattered
  kSharedState,     // gradients are reduced, and as many weights gathered after the update
  kSharedUnknown,   // one of these two: it is not known where in the step weights are gathered
  kTensor,          // results of layers that are split over ranks
  kTensorSequence,  // as kTensor, with the sequence split between layers
  kTensorOrData,    // it is not known where in the step its results are reduced
  kRing,            // keys and values round a ring of ranks
  kExpert,          // tokens to experts, all to all
  kPipeline,        // from stage to stage
  kOther
};

}  // namespace gpuprobe::analysis

namespace gpuprobe::report {

// As reports name the kinds of parallelism, in the order in which a pattern lists them.
template <>
struct EnumWords<analysis::CommunicationRole> {
  static Words Of();
};

}  // namespace gpuprobe::report

namespace gpuprobe::analysis {

// A call at its place in the step, of one operation and communicator; means over ranks and steps.
struct CallTiming {
  uint32_t place = 0;
  uint64_t size_bytes = 0;
  uint64_t steps = 0;  // of all ranks
  double time_ns = 0;
  std::optional<double> hidden_share;
  std::optional<double> after_backward_ns;

  static constexpr void Declare(auto& fields) {
    using C = CallTiming;
    fields("place", &C::place, "from 0");
    fields("size_bytes", &C::size_bytes, "of the call");
    fields("after_backward_ns", &C::after_backward_ns,
           "when after the start of backward's first kernel it starts; `null` where no backward is known");
    fields("time_ns", &C::time_ns, "how long it takes, with the waiting");
    fields("hidden_share", &C::hidden_share, "how much of that compute hides");
    fields.Unwritten(&C::steps);
  }
};

// Collectives of one operation that are launched in forward: of tensor parallelism, or that gather weights.
struct ForwardCommunication {
  std::string op;
  int comm_ranks = 0;
  double calls_per_step = 0;
  double time_ns_per_step = 0;
  double exposed_ns_per_step = 0;
  double share_of_forward = 0;

  static constexpr void Declare(auto& fields) {
    using F = ForwardCommunication;
    fields("op", &F::op, "the operation");
    fields("comm_ranks", &F::comm_ranks, "ranks of the communicator");
    fields("calls_per_step", &F::calls_per_step, "calls of a rank");
    fields("time_ns_per_step", &F::time_ns_per_step, "their time");
    fields("exposed_ns_per_step", &F::exposed_ns_per_step, "the exposed part of it");
    fields("share_of_forward", &F::share_of_forward,
           "share of that in forward's compute and exposed communication");
  }
};

// The calls that reduce a step's gradients.
struct Buckets {
  struct Size {
    uint64_t size_bytes = 0;
    double calls_per_step = 0;
    double transfer_ns = 0;
    std::optional<double> busbw;

    static constexpr void Declare(auto& fields) {
      fields("size_bytes", &Size::size_bytes, "of a call");
      fields("calls_per_step", &Size::calls_per_step, "calls of this size");
      fields("transfer_ns", &Size::transfer_ns, "of a call");
      fields("transfer_busbw_gbytes_per_s", &Size::busbw, "its bus bandwidth");
    }
  };
  std::string op;
  std::string comm;
  std::vector<Size> sizes;  // largest first
  double calls_per_step = 0;
  double bytes_per_step = 0;
  // How often these are the same gradients: once for each micro-batch, where accumulation lacks no_sync.
  int reductions_per_step = 1;
  double transfer_ns_per_step = 0;
  std::vector<CallTiming> order;

  static constexpr void Declare(auto& fields) {
    using B = Buckets;
    fields("op", &B::op, "the operation");
    fields("comm", &B::comm, "the communicator");
    fields("calls_per_step", &B::calls_per_step, "calls of a rank");
    fields("bytes_per_step", &B::bytes_per_step, "what they reduce");
    fields("transfer_ns_per_step", &B::transfer_ns_per_step, "their transfers");
    fields("sizes", &B::sizes, "by size, the largest first");
    fields("order", &B::order,
           "the first 64 in the order in which a step makes them; means over ranks and steps seen whole");
    fields.Unwritten(&B::reductions_per_step);
  }
};

// How large the buckets should be (bucket_advice.h).
struct BucketAdvice {
  uint64_t bucket_bytes = 0;
  double exposed_ns = 0;
  bool fitted = false;  // else the latency is not known, and small buckets were not considered

  static constexpr void Declare(auto& fields) {
    using A = BucketAdvice;
    fields(
        "bucket_bytes", &A::bucket_bytes,
        "the bucket size with the least exposed communication, if gradients are ready evenly over backward");
    fields("exposed_ns", &A::exposed_ns, "how much of a step that is");
    fields("fitted", &A::fitted,
           "computed from latency and bandwidth of the job's transfers, else from the bandwidth that one "
           "size reached");
  }
};

struct Pipeline {
  int stages = 0;
  int microbatches = 0;
  double bubble = 0;
  double least_bubble = 0;
  double collective_ns = 0;
  double exposed_collective_ns = 0;

  static constexpr void Declare(auto& fields) {
    using P = Pipeline;
    fields("stages", &P::stages, "p");
    fields("microbatches", &P::microbatches, "m");
    fields("bubble", &P::bubble,
           "share of the step in which a stage waits for other stages, mean over the ranks: it neither "
           "computes, nor is in communication other than with a stage, nor is idle because of its own host");
    fields("least_bubble", &P::least_bubble, "(p-1)/(m+p-1)");
    fields("collective_ns_per_step", &P::collective_ns,
           "the transfers of that other communication, of the rank with the least");
    fields("exposed_collective_ns_per_step", &P::exposed_collective_ns, "the exposed part of them");
  }
};

// Calls of one operation on communicators of as many ranks and of one role, and of sizes that are called in
// forward, or of others; sends and receives also by what they are for.
struct ExposedCalls {
  std::string op;
  int comm_ranks = 0;
  CommunicationRole role = CommunicationRole::kOther;
  bool in_forward = false;
  TransferPattern transfers = TransferPattern::kNone;
  double calls_per_step = 0;
  double time_ns_per_step = 0;
  double exposed_ns_per_step = 0;
  double exposed_transfer_ns_per_step = 0;  // the part of that without waiting

  static constexpr void Declare(auto& fields) {
    using C = ExposedCalls;
    fields("op", &C::op, "the operation");
    fields("comm_ranks", &C::comm_ranks, "ranks of the communicators");
    fields("role", &C::role,
           "the kind of parallelism that they serve, as in `pattern[]`; `null` for operations that serve "
           "none, such as an AllGather of metrics beside DDP")
        .NullIfZero();
    fields("in_forward", &C::in_forward, "calls of that size are launched in forward, too");
    fields("calls_per_step", &C::calls_per_step, "of a rank, mean over the ranks");
    fields("time_ns_per_step", &C::time_ns_per_step, "waiting included");
    fields("exposed_ns_per_step", &C::exposed_ns_per_step, "the exposed part of that");
    fields.Unwritten(&C::transfers, &C::exposed_transfer_ns_per_step);
  }
};

// The network between hosts, as the job's own transfers show it (network_report.h).
struct NetworkReport {
  int hosts = 0;
  std::optional<double> gbytes_per_s;
  std::optional<double> reference_gbytes_per_s;
  std::string device;
  struct Slow {
    std::string op;
    uint64_t size_bytes = 0;
    int comm_ranks = 0;
    double usual_ns = 0;
    double slow_ns = 0;
    std::optional<uint64_t> since_step;
    double elsewhere_ns = 0;
    double elsewhere_slow_ns = 0;
    std::vector<std::string> hosts;

    static constexpr void Declare(auto& fields) {
      constexpr auto kDistinguished = [](const Slow& s) { return !s.hosts.empty(); };
      fields("op", &Slow::op, "operation of the transfer");
      fields("size_bytes", &Slow::size_bytes, "its size");
      fields("comm_ranks", &Slow::comm_ranks, "ranks of its communicator");
      fields("usual_ns", &Slow::usual_ns, "how long it took earlier");
      fields("slow_ns", &Slow::slow_ns, "how long it takes since `since_step`");
      fields("since_step", &Slow::since_step, "`null`: from the beginning");
      fields("elsewhere_ns", &Slow::elsewhere_ns,
             "how long it takes on communicators like it without `hosts`; `null` where hosts could not be "
             "distinguished")
          .NullUnless(kDistinguished);
      fields("elsewhere_slow_ns", &Slow::elsewhere_slow_ns, "how long with them").NullUnless(kDistinguished);
      fields("hosts", &Slow::hosts, "the hosts that take part where it is slow");
    }
  };
  std::optional<Slow> slow;

  static constexpr void Declare(auto& fields) {
    using N = NetworkReport;
    fields("hosts", &N::hosts, "hosts of the job");
    fields("gbytes_per_s", &N::gbytes_per_s,
           "bus bandwidth of the fastest communicator over several hosts, or, for a job on one host, of "
           "those within it; by what a byte takes, without latency");
    fields("reference_gbytes_per_s", &N::reference_gbytes_per_s,
           "what the maker's reference design for the device gives that communicator, an assumption; `null`: "
           "not known");
    fields("slow", &N::slow,
           "a transfer that takes twice as long as earlier, or, where `hosts` take part, twice as long as on "
           "communicators like it; `null`: none");
    fields.Unwritten(&N::device);
  }
};

inline constexpr char kLinkPeakOption[] = "--link-peak";

// Means over ranks and steps; all 0 without steps.
struct CommunicationReport {
  double step_ns = 0;
  double compute_ns = 0;
  double comm_ns = 0;  // waiting included
  double waited_ns = 0;
  double transfer_ns = 0;
  double exposed_transfer_ns = 0;
  double unheard_share = 0;
  std::optional<double> exposed_wait_ns;  // absent without steps
  std::optional<double> link_peak;
  std::string link_peak_source;
  std::optional<NetworkReport> network;
  std::vector<CommunicationRole> pattern;          // parallelism.h
  std::map<std::string, CommunicationRole> roles;  // by communicator; without those of no role
  std::map<std::string, double> bytes_share;
  std::optional<Buckets> buckets;
  std::optional<BucketAdvice> bucket_advice;
  std::vector<ForwardCommunication> forward;
  std::vector<ExposedCalls> exposed;  // most exposed time first
  std::optional<Pipeline> pipeline;
  std::vector<LinkModel> links;

  static constexpr void Declare(auto& fields) {
    using C = CommunicationReport;
    constexpr auto kStepped = [](const C& c) { return c.exposed_wait_ns.has_value(); };
    fields("transfer_ns_per_step", &C::transfer_ns, "transfers; `null` without steps").NullUnless(kStepped);
    fields("exposed_transfer_ns_per_step", &C::exposed_transfer_ns, "the part of them that no compute hides")
        .NullUnless(kStepped);
    fields("waited_ns_per_step", &C::waited_ns, "waiting of each rank in collectives").NullUnless(kStepped);
    fields("exposed_wait_ns_per_step", &C::exposed_wait_ns,
           "the exposed part of that: how much shorter a step would be if no rank were late");
    fields("link_peak_gbytes_per_s", &C::link_peak, "peak of the links between devices; `null`: not known");
    fields("link_peak_source", &C::link_peak_source, "where that is from").NullIfZero();
    fields("network", &C::network, "links between hosts; `null` on one host whose links did not become slow");
    fields("unheard_share", &C::unheard_share,
           "share of the calls' time on communicators of which not every rank is recorded here, where "
           "waiting and transfers cannot be separated");
    fields("pattern", &C::pattern,
           "kinds of parallelism ([how they are decided](reading-a-report.md#parallelism)); empty for a "
           "program that hardly computes, such as a benchmark of NCCL");
    fields("bytes_share", &C::bytes_share, "share of the bytes by operation");
    fields("buckets", &C::buckets, "the calls that reduce gradients; `null` without any");
    fields("bucket_advice", &C::bucket_advice,
           "how large the buckets should be; `null`: too little is known");
    fields("forward", &C::forward,
           "collectives that are launched in forward (tensor parallelism, gathered weights)");
    fields("exposed", &C::exposed,
           "all calls of a step, per rank, by operation, number of ranks and role, most exposed time first");
    fields("pipeline", &C::pipeline, "if the job is one, else `null`");
    fields("alpha_beta", &C::links, "latency and bandwidth");
    fields.Unwritten(&C::step_ns, &C::compute_ns, &C::comm_ns, &C::roles);
  }
};

}  // namespace gpuprobe::analysis
