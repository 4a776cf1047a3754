// NCCL's operations: one table of everything that follows from which operation a call is. The injector and
// the collector look it up instead of comparing names. Plain constexpr data: no allocation, no dependency,
// usable inside the profiled process.
//
// Example: an AllGather of 4 MiB per rank over 8 ranks. `bytes` are each rank's, so 32 MiB are gathered
// (algorithm bandwidth) and 28 MiB cross a link (bus bandwidth); a ring needs 7 rounds; no rank ends before
// the last one has begun; its kernel has "AllGather" in its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpuprobe::nccl {

enum class Operation : uint8_t {
  kUnknown,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAlltoAll,
  kGather,
  kScatter,
  kSend,
  kRecv,
  kSendRecv,
  kGeneric,
  kPutSignal,
  kSignal,
  kWaitSignal,
};

// Who meets whom.
enum class Meeting : uint8_t {
  kCollective,  // every rank of the communicator calls it
  kTransfer,    // a send meets a receive
  kOneSided,    // writes to a peer, or waits for peers' writes: matched with no other rank's call
  kKernel,      // not a call: named by a kernel that carries calls of several operations
};

// What the bytes of a call mean, and how many cross each link: the definitions of nccl-tests
// (PERFORMANCE.md).
enum class Volume : uint8_t {
  kOnce,     // b bytes, each crosses a link once
  kTwice,    // b bytes on each rank, which a ring passes on twice: 2 (n - 1) / n
  kPerRank,  // b bytes from or for each rank: n b in all, (n - 1) b over each link
};

struct OperationFacts {
  Operation operation;
  std::string_view name;    // of the function, without "nccl"
  std::string_view kernel;  // in the names of kernels that carry it; empty: it has none
  Meeting meeting;
  Volume volume;
  uint8_t ring_rounds;  // times n - 1: how often a ring passes a part on; 0: not done by a ring
  bool reduces;
  // No rank leaves before every other one has contributed, nor much later; the root of a broadcast does.
  bool ends_together;
  bool built_of_transfers = false;  // NCCL may build it of sends and receives, instead of a kernel of its own
};

inline constexpr OperationFacts kOperations[] = {
    {Operation::kAllReduce, "AllReduce", "AllReduce", Meeting::kCollective, Volume::kTwice, 2, true, true},
    {Operation::kAllGather, "AllGather", "AllGather", Meeting::kCollective, Volume::kPerRank, 1, false, true},
    {Operation::kReduceScatter, "ReduceScatter", "ReduceScatter", Meeting::kCollective, Volume::kPerRank, 1,
     true, true},
    {Operation::kBroadcast, "Broadcast", "Broadcast", Meeting::kCollective, Volume::kOnce, 0, false, false},
    {Operation::kBroadcast, "Bcast", "Broadcast", Meeting::kCollective, Volume::kOnce, 0, false, false},
    {Operation::kReduce, "Reduce", "Reduce", Meeting::kCollective, Volume::kOnce, 0, true, false},
    {Operation::kAlltoAll, "AlltoAll", "AlltoAll", Meeting::kCollective, Volume::kPerRank, 1, false, true,
     true},
    {Operation::kGather, "Gather", "Gather", Meeting::kCollective, Volume::kPerRank, 0, false, false, true},
    {Operation::kScatter, "Scatter", "Scatter", Meeting::kCollective, Volume::kPerRank, 0, false, false,
     true},
    {Operation::kSend, "Send", "SendRecv", Meeting::kTransfer, Volume::kOnce, 0, false, false},
    {Operation::kRecv, "Recv", "SendRecv", Meeting::kTransfer, Volume::kOnce, 0, false, false},
    {Operation::kSendRecv, "SendRecv", "SendRecv", Meeting::kKernel, Volume::kOnce, 0, false, false},
    {Operation::kGeneric, "Generic", "Generic", Meeting::kKernel, Volume::kOnce, 0, false, false},
    {Operation::kPutSignal, "PutSignal", "", Meeting::kOneSided, Volume::kOnce, 0, false, false},
    {Operation::kSignal, "Signal", "", Meeting::kOneSided, Volume::kOnce, 0, false, false},
    {Operation::kWaitSignal, "WaitSignal", "", Meeting::kOneSided, Volume::kOnce, 0, false, false},
};

inline constexpr OperationFacts kUnknownOperation = {Operation::kUnknown, "", "",    Meeting::kCollective,
                                                     Volume::kOnce,       0,  false, false};

// By the function's name ("AllReduce"). A newer operation is kUnknownOperation.
constexpr const OperationFacts& FactsOf(std::string_view name) noexcept {
  for (const OperationFacts& facts : kOperations) {
    if (facts.name == name) return facts;
  }
  return kUnknownOperation;
}

constexpr Operation OperationOf(std::string_view name) noexcept { return FactsOf(name).operation; }

constexpr std::string_view NameOf(Operation operation) noexcept {
  for (const OperationFacts& facts : kOperations) {
    if (facts.operation == operation) return facts.name;
  }
  return {};
}

constexpr bool IsTransfer(std::string_view name) noexcept {
  return FactsOf(name).meeting == Meeting::kTransfer;
}
constexpr bool IsOneSided(std::string_view name) noexcept {
  return FactsOf(name).meeting == Meeting::kOneSided;
}
constexpr bool IsSend(std::string_view name) noexcept { return OperationOf(name) == Operation::kSend; }

// How the names of NCCL's kernels begin, from one of its versions to the next.
inline constexpr std::string_view kKernelPrefixes[] = {"ncclDevKernel_", "ncclSymkDevKernel_",
                                                       "ncclSymDevKernel_", "ncclKernel_"};

// Whether a kernel has a name of NCCL's, plain or mangled as a function ("_Z40ncclDevKernel_AllReduce...").
constexpr bool IsKernelName(std::string_view name) noexcept {
  if (name.size() > 2 && name[0] == '_' && name[1] == 'Z') {
    name.remove_prefix(2);
    while (!name.empty() && name[0] >= '0' && name[0] <= '9') name.remove_prefix(1);
  }
  for (const std::string_view prefix : kKernelPrefixes) {
    if (name.size() >= prefix.size() && name.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return false;
}

// Every rank has a part of the result: how gradients are reduced.
constexpr bool ReducesForAll(std::string_view name) noexcept {
  return FactsOf(name).reduces && FactsOf(name).ends_together;
}

// For names of calls that share a kernel, too.
constexpr bool CarriesTransfers(std::string_view name) noexcept {
  return name.find(NameOf(Operation::kSend)) != std::string_view::npos ||
         name.find(NameOf(Operation::kRecv)) != std::string_view::npos;
}

// The call on the other side of a transfer.
constexpr std::string_view Counterpart(std::string_view name) noexcept {
  return NameOf(IsSend(name) ? Operation::kRecv : Operation::kSend);
}

}  // namespace gpuprobe::nccl
