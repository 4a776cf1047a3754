#include "collector/model/operations/step_operations.h"

#include <algorithm>

#include "proto/nccl_operations.h"

namespace gpuprobe::model {

StepOperation StepOperations::Of(const Operation& operation) {
  StepOperation step{.start_ns = operation.start_ns,
                     .end_ns = operation.end_ns,
                     .launch_ns = operation.launch_ns,
                     .range = operation.range,
                     .launched = operation.launched,
                     .same_launch = operation.correlation == last_correlation_};
  step.roles = names_.ThreadRoles(operation.thread);
  OperationTokens::Token token;
  switch (operation.kind) {
    case OperationKind::kKernel: {
      const DeviceWork::Site& site = devices_.SiteOf(operation);
      token = site.token;
      step.roles |= site.roles;
      if (site.kernel != nullptr && Communicates(site.kernel->nature)) step.work = WorkClass::kCommunication;
      break;
    }
    case OperationKind::kCollectiveKernel:
      step.work = WorkClass::kCommunication;
      token = TokenOfCall(operation);
      if (EndsStep(operation)) step.roles |= kRoleMarker;
      if (operation.bytes >= kLeastReduction && nccl::ReducesForAll(names_.String(operation.op)))
        step.roles |= kRoleReduction;
      break;
    case OperationKind::kUnseen:
      step.work = WorkClass::kUnseen;
      break;
    case OperationKind::kMemset:
      token = TokenOfTransfer(operation, 0);
      step.roles |= kRoleMemset;
      if (operation.pageable) step.roles |= kRolePageable;
      break;
    case OperationKind::kCopy:
      token = TokenOfTransfer(operation, operation.direction);
      if (operation.pageable) step.roles |= kRolePageable;
      step.work = operation.direction == v1::COPY_DIRECTION_H2D   ? WorkClass::kCopyToDevice
                  : operation.direction == v1::COPY_DIRECTION_D2H ? WorkClass::kCopyFromDevice
                                                                  : WorkClass::kCopyOther;
      break;
  }
  last_correlation_ = operation.correlation;
  step.after_copies_out_us = static_cast<uint16_t>(std::min<uint64_t>(copies_out_ns_ / 1000, UINT16_MAX));
  copies_out_ns_ = step.work == WorkClass::kCopyFromDevice
                       ? copies_out_ns_ + (step.end_ns - std::min(step.start_ns, step.end_ns))
                       : 0;
  step.token = token.fine;
  step.coarse = token.coarse;
  return step;
}

OperationTokens::Token StepOperations::TokenOfCall(const Operation& operation) {
  const uint32_t named = devices_.SiteOf(operation).collective_op;
  const uint64_t kind = MixHash(static_cast<uint64_t>(operation.kind), named != 0 ? named : operation.op);
  const uint64_t coarse = MixHash(kind, operation.comm);
  const OperationTokens::Token token =
      tokens_.TokenOf(coarse, MixHash(MixHash(coarse, operation.calls), operation.bytes));
  if (operation.comm != 0 && !steps_.KnowsCommunication(token.fine)) {
    steps_.NameCommunication(
        token.fine,
        {.op = operation.op, .comm = operation.comm, .calls = operation.calls, .bytes = operation.bytes});
  }
  return token;
}

OperationTokens::Token StepOperations::TokenOfTransfer(const Operation& operation, uint64_t direction) {
  const uint64_t coarse = MixHash(static_cast<uint64_t>(operation.kind), direction);
  return tokens_.TokenOf(coarse, MixHash(coarse, operation.bytes));
}

bool StepOperations::EndsStep(const Operation& operation) {
  if (marker_.kind() != StepMarker::Kind::kCollective || !marker_.Matches(names_.String(operation.op)))
    return false;
  marked_calls_ += std::max<uint64_t>(operation.calls, 1);
  if (marked_calls_ < marker_.calls()) return false;
  marked_calls_ -= std::min(marked_calls_, std::max<uint64_t>(marker_.calls(), 1));
  return true;
}

}  // namespace gpuprobe::model
