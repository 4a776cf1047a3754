#include "collector/analysis/parallelism.h"

#include <algorithm>
#include <set>

#include "proto/nccl_operations.h"

namespace gpuprobe::analysis {
namespace {

using nccl::NameOf;
using nccl::Operation;
using nccl::OperationOf;

constexpr CommunicationRole kRoles[] = {CommunicationRole::kSharded, CommunicationRole::kSharedState,
                                        CommunicationRole::kTensor,  CommunicationRole::kTensorSequence,
                                        CommunicationRole::kExpert,  CommunicationRole::kPipeline,
                                        CommunicationRole::kData};
// A call made less than once in two steps is not part of the training: a loss, a check, a start.
constexpr double kLeastCalls = 0.5;

bool Any(const std::vector<ExposedCalls>& calls, Operation op, int ranks, bool in_forward) {
  return std::any_of(calls.begin(), calls.end(), [&](const ExposedCalls& c) {
    return OperationOf(c.op) == op && c.comm_ranks == ranks && c.in_forward == in_forward &&
           c.calls_per_step >= kLeastCalls;
  });
}

// Without steps, calls in forward are not known.
std::vector<std::string> PatternOfOperations(const std::vector<CollectiveReport>& collectives) {
  const std::map<std::string, double> share = BytesShareOf(collectives);
  const auto of = [&share](Operation operation) {
    const auto found = share.find(std::string(NameOf(operation)));
    return found == share.end() ? 0.0 : found->second;
  };
  std::set<std::string> reducing;
  for (const CollectiveReport& c : collectives) {
    if (OperationOf(c.op) == Operation::kAllReduce && c.comm_ranks > 1) reducing.insert(c.comm);
  }
  std::vector<std::string> out;
  if (of(Operation::kAllGather) > 0 && of(Operation::kReduceScatter) > 0.05)
    out.emplace_back("sharded data parallel (FSDP, ZeRO)");  // which stage shows only in steps
  if (of(Operation::kSendRecv) > 0) out.push_back(PatternName(CommunicationRole::kPipeline));
  if (reducing.size() > 1) {
    out.emplace_back("tensor or grouped data parallel");
  } else if (!reducing.empty() && out.empty()) {
    out.push_back(PatternName(CommunicationRole::kData));
  }
  return out;
}

}  // namespace

CommunicationRole RoleOf(const ExposedCalls& of, const std::vector<ExposedCalls>& calls) {
  const int ranks = of.comm_ranks;
  const Operation op = OperationOf(of.op);
  if (nccl::IsTransfer(of.op)) return CommunicationRole::kPipeline;
  if (op == Operation::kAlltoAll) return CommunicationRole::kExpert;
  if (op == Operation::kAllReduce)
    return of.in_forward ? CommunicationRole::kTensor : CommunicationRole::kData;
  if (op != Operation::kAllGather && op != Operation::kReduceScatter) return CommunicationRole::kOther;
  // Gradients are scattered in backward; what is scattered in forward, too, is split along the sequence.
  if (Any(calls, Operation::kReduceScatter, ranks, true)) return CommunicationRole::kTensorSequence;
  if (of.in_forward || Any(calls, Operation::kAllGather, ranks, true)) return CommunicationRole::kSharded;
  if (Any(calls, Operation::kReduceScatter, ranks, false) && Any(calls, Operation::kAllGather, ranks, false))
    return CommunicationRole::kSharedState;
  return op == Operation::kReduceScatter ? CommunicationRole::kData : CommunicationRole::kOther;
}

std::string PatternName(CommunicationRole role) {
  switch (role) {
    case CommunicationRole::kData:
      return "data parallel (DDP)";
    case CommunicationRole::kSharded:
      return "fully sharded data parallel (FSDP, ZeRO stage 3)";
    case CommunicationRole::kSharedState:
      return "data parallel with sharded optimizer state (ZeRO stage 1 or 2)";
    case CommunicationRole::kTensor:
      return "tensor parallel";
    case CommunicationRole::kTensorSequence:
      return "tensor and sequence parallel";
    case CommunicationRole::kExpert:
      return "expert parallel";
    case CommunicationRole::kPipeline:
      return "pipeline";
    case CommunicationRole::kOther:
      break;
  }
  return "";
}

std::vector<std::string> PatternOf(const std::vector<ExposedCalls>& calls,
                                   const std::vector<CollectiveReport>& collectives) {
  if (calls.empty()) return PatternOfOperations(collectives);
  std::set<CommunicationRole> roles;
  for (const ExposedCalls& c : calls) {
    if (c.comm_ranks > 1 && c.calls_per_step >= kLeastCalls) roles.insert(RoleOf(c, calls));
  }
  std::vector<std::string> out;
  for (const CommunicationRole role : kRoles) {
    if (roles.contains(role)) out.push_back(PatternName(role));
  }
  return out;
}

std::map<std::string, double> BytesShareOf(const std::vector<CollectiveReport>& collectives) {
  std::map<std::string, double> bytes;
  double all = 0;
  for (const CollectiveReport& c : collectives) {
    if (c.comm_ranks < 2) continue;
    bytes[nccl::CarriesTransfers(c.op) ? std::string(NameOf(Operation::kSendRecv)) : c.op] +=
        static_cast<double>(c.bytes);
    all += static_cast<double>(c.bytes);
  }
  if (all <= 0) return {};
  for (auto& [op, share] : bytes) share /= all;
  return bytes;
}

}  // namespace gpuprobe::analysis
