// The name of each NCCL operation, how much it moves and which kernel runs it.
//
// One table for the truth log, the time model and the kernel names, so that they cannot disagree.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace gpusim::nccl {

enum class Operation : uint8_t {
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
};

const char* OperationName(Operation operation);
constexpr bool IsPointToPoint(Operation operation) {
  return operation == Operation::kSend || operation == Operation::kRecv;
}
// False for those that are made of sends and receives.
constexpr bool IsOneCollective(Operation operation) { return operation < Operation::kAlltoAll; }
constexpr bool HasRoot(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

// 0 for a type that NCCL does not know.
size_t TypeSize(ncclDataType_t type);
const char* TypeName(ncclDataType_t type);  // "float32"
// "sum"; "custom" if the program made it; empty for operations without.
const char* ReductionName(Operation operation, int reduction);

// Bytes on the busiest link: size times factor of nccl-tests' bus bandwidth, so that this over the time is
// the bus bandwidth. `count` is the API's argument.
double BusBytes(Operation operation, uint64_t count, ncclDataType_t type, int ranks);

// Nanoseconds that `bus_bytes` take at `bytes_per_s`, rounded to the nearest.
uint64_t TransferNs(double bus_bytes, double bytes_per_s);

// How the real library would run a collective: its algorithm, protocol and number of channels. A rule of
// ours that gives each of several.
struct HowItRuns {
  const char* algorithm;  // "RING"
  const char* protocol;   // "LL"
  uint8_t channels;
};
HowItRuns HowToRun(Operation operation, uint64_t bytes);

// Mangled name of the kernel that the real library (2.28.9) has for it.
std::string KernelName(Operation operation, ncclDataType_t type);

}  // namespace gpusim::nccl
