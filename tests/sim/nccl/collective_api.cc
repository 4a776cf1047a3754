// The exported collectives, point-to-point calls, group calls and custom reductions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "tests/sim/nccl/api.h"
#include "tests/sim/nccl/group.h"

namespace gpusim::nccl {
namespace {

Call MakeCall(Operation operation, const void* send, void* receive, size_t count, ncclDataType_t type,
              ncclComm_t comm, cudaStream_t stream) {
  Call call;
  call.operation = operation;
  call.send = send;
  call.receive = receive;
  call.count = count;
  call.type = type;
  call.stream = stream;
  call.communicator = Behind(comm);
  return call;
}

ncclResult_t Take(Call call, const char* function) {
  if (call.communicator == nullptr) {
    return Return(ncclInvalidArgument, function);
  }
  return Return(Submit(std::move(call)), function);
}

ncclResult_t TakeReduction(Call call, ncclRedOp_t op, const char* function) {
  if (static_cast<int>(op) < 0) {
    return Return(ncclInvalidArgument, function);
  }
  call.reduction = op;
  if (call.communicator != nullptr) call.scale = call.communicator->ScaleOf(op);
  return Take(std::move(call), function);
}

ncclResult_t TakeRooted(Call call, int root, const char* function) {
  call.root = root;
  return Take(std::move(call), function);
}

ncclResult_t TakePeer(Call call, int peer, const char* function) {
  call.peer = peer;
  return Take(std::move(call), function);
}

// The node's device memory can be read by the host.
double ScaleAt(const void* scalar, ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return *static_cast<const double*>(scalar);
    case ncclFloat32:
      return static_cast<double>(*static_cast<const float*>(scalar));
    case ncclFloat16:
      return static_cast<double>(__half2float(*static_cast<const __half*>(scalar)));
    case ncclBfloat16:
      return static_cast<double>(__bfloat162float(*static_cast<const __nv_bfloat16*>(scalar)));
    default:
      return 1;
  }
}

}  // namespace

NCCL_API(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return TakeReduction(MakeCall(Operation::kAllReduce, sendbuff, recvbuff, count, datatype, comm, stream), op,
                       __func__);
}

NCCL_API(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
         ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return Take(MakeCall(Operation::kAllGather, sendbuff, recvbuff, sendcount, datatype, comm, stream),
              __func__);
}

NCCL_API(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff, size_t recvcount,
         ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return TakeReduction(
      MakeCall(Operation::kReduceScatter, sendbuff, recvbuff, recvcount, datatype, comm, stream), op,
      __func__);
}

NCCL_API(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return TakeRooted(MakeCall(Operation::kBroadcast, sendbuff, recvbuff, count, datatype, comm, stream), root,
                    __func__);
}

// The one call that the real library makes through its own PLT: whoever interposes ncclBroadcast sees it.
NCCL_API(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
         ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  Call call = MakeCall(Operation::kReduce, sendbuff, recvbuff, count, datatype, comm, stream);
  call.root = root;
  return TakeReduction(std::move(call), op, __func__);
}

NCCL_API(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return Take(MakeCall(Operation::kAlltoAll, sendbuff, recvbuff, count, datatype, comm, stream), __func__);
}

NCCL_API(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return TakeRooted(MakeCall(Operation::kGather, sendbuff, recvbuff, count, datatype, comm, stream), root,
                    __func__);
}

NCCL_API(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  return TakeRooted(MakeCall(Operation::kScatter, sendbuff, recvbuff, count, datatype, comm, stream), root,
                    __func__);
}

NCCL_API(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype, int peer,
         ncclComm_t comm, cudaStream_t stream) {
  return TakePeer(MakeCall(Operation::kSend, sendbuff, nullptr, count, datatype, comm, stream), peer,
                  __func__);
}

NCCL_API(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype, int peer,
         ncclComm_t comm, cudaStream_t stream) {
  return TakePeer(MakeCall(Operation::kRecv, nullptr, recvbuff, count, datatype, comm, stream), peer,
                  __func__);
}

NCCL_API(ncclResult_t, ncclGroupStart, void) {
  GroupStart();
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupEnd, void) { return Return(GroupEnd(), __func__); }

NCCL_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  constexpr unsigned kMagic = 0x74685283;
  if (simInfo == nullptr || simInfo->magic != kMagic) {
    return Return(ncclInvalidArgument, __func__);
  }
  return Return(GroupSimulateEnd(&simInfo->estimatedTime), __func__);
}

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
         ncclScalarResidence_t, ncclComm_t comm) {
  const auto communicator = ReadyBehind(comm);
  if (op == nullptr || scalar == nullptr || communicator == nullptr || TypeSize(datatype) == 0) {
    return Return(ncclInvalidArgument, __func__);
  }
  *op = static_cast<ncclRedOp_t>(communicator->AddReduction(ScaleAt(scalar, datatype)));
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  const bool is_custom = static_cast<int>(op) >= ncclNumOps;
  return Return(is_custom && ReadyBehind(comm) != nullptr ? ncclSuccess : ncclInvalidArgument, __func__);
}

}  // namespace gpusim::nccl
