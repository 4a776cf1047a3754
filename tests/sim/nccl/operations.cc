#include "tests/sim/nccl/operations.h"

#include <array>
#include <cmath>

namespace gpusim::nccl {
namespace {

struct Type {
  const char* name;
  size_t size;
  const char* kernel;  // how kernels spell it: signed and unsigned integers share one
};

constexpr std::array<Type, ncclNumTypes> kTypes = {{
    {"int8", 1, "u8"},
    {"uint8", 1, "u8"},
    {"int32", 4, "u32"},
    {"uint32", 4, "u32"},
    {"int64", 8, "u64"},
    {"uint64", 8, "u64"},
    {"float16", 2, "f16"},
    {"float32", 4, "f32"},
    {"float64", 8, "f64"},
    {"bfloat16", 2, "bf16"},
    {"float8_e4m3", 1, "f8e4m3"},
    {"float8_e5m2", 1, "f8e5m2"},
}};

constexpr const char* kOperationNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce",
                                           "AlltoAll",  "Gather",    "Scatter",       "Send",      "Recv"};

bool IsType(ncclDataType_t type) { return type >= 0 && type < ncclNumTypes; }

std::string Mangled(const std::string& name) {
  return "_Z" + std::to_string(name.size()) + name + "24ncclDevKernelArgsStorageILm4096EE";
}

}  // namespace

const char* OperationName(Operation operation) { return kOperationNames[static_cast<size_t>(operation)]; }

size_t TypeSize(ncclDataType_t type) { return IsType(type) ? kTypes[type].size : 0; }

const char* TypeName(ncclDataType_t type) { return IsType(type) ? kTypes[type].name : ""; }

const char* ReductionName(Operation operation, int reduction) {
  if (operation != Operation::kAllReduce && operation != Operation::kReduceScatter &&
      operation != Operation::kReduce)
    return "";
  switch (reduction) {
    case ncclSum:
      return "sum";
    case ncclProd:
      return "prod";
    case ncclMax:
      return "max";
    case ncclMin:
      return "min";
    case ncclAvg:
      return "avg";
    default:
      return "custom";
  }
}

double BusBytes(Operation operation, uint64_t count, ncclDataType_t type, int ranks) {
  const double bytes = static_cast<double>(count) * static_cast<double>(TypeSize(type));
  const double n = ranks;
  switch (operation) {
    case Operation::kAllReduce:
      return bytes * 2 * (n - 1) / n;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAlltoAll:
    case Operation::kGather:
    case Operation::kScatter:
      return bytes * (n - 1);  // size count*es*n, factor (n-1)/n
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSend:
    case Operation::kRecv:
      return bytes;
  }
  return bytes;
}

uint64_t TransferNs(double bus_bytes, double bytes_per_s) {
  return static_cast<uint64_t>(std::llround(bus_bytes * 1e9 / bytes_per_s));
}

// The real library has kernels for sums only, and one for all point-to-point work; other reductions run
// inside those.
HowItRuns HowToRun(Operation operation, uint64_t bytes) {
  const bool small = bytes <= 4096;
  return {small && operation == Operation::kAllReduce ? "TREE" : "RING",
          bytes <= 32768    ? "LL"
          : bytes <= 262144 ? "LL128"
                            : "SIMPLE",
          static_cast<uint8_t>(bytes >= 524288 ? 16 : 1 + bytes / 32768)};
}

std::string KernelName(Operation operation, ncclDataType_t type) {
  const std::string name = OperationName(operation);
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kReduce:
      return Mangled("ncclDevKernel_" + name + "_Sum_" + kTypes[type].kernel + "_RING_LL");
    case Operation::kAllGather:
    case Operation::kBroadcast:
      return Mangled("ncclDevKernel_" + name + "_RING_LL");
    default:
      return Mangled("ncclDevKernel_SendRecv");
  }
}

}  // namespace gpusim::nccl
