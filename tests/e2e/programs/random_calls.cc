#include "tests/e2e/programs/random_calls.h"

#include <algorithm>

namespace random_collectives {

void CallIssuer::Settle() {
  for (const Pending& pending : pending_) hard_way::Await(pending.comm);
  pending_.clear();
}

bool CallIssuer::MayOverlap(const RankState& rank, ncclComm_t comm, size_t stream) const {
  return std::all_of(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    if (pending.rank != &rank) return true;
    return pending.comm != comm && pending.stream != stream && pending.stream < kPlainStreams &&
           stream < kPlainStreams;
  });
}

void CallIssuer::Note(ncclResult_t result, RankState& rank, ncclComm_t comm, size_t stream) {
  if (result == ncclInProgress || depth_ > 0) pending_.push_back({comm, &rank, stream});
}

void CallIssuer::StartGroup() {
  if (depth_++ == 0) Settle();
  CHECK(ncclGroupStart());
}

void CallIssuer::EndGroup(bool simulate) {
  ncclResult_t result = ncclSuccess;
  if (simulate) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    result = ncclGroupSimulateEnd(&info);
  } else {
    result = ncclGroupEnd();
  }
  if (--depth_ > 0) return;
  if (group_refused_ && Accepted(result)) CHECK(ncclInternalError);
  if (!group_refused_) Take(result);
  group_refused_ = false;
  if (result == ncclSuccess || !Accepted(result)) pending_.clear();
}

ncclResult_t CallIssuer::Start(const Call& call, const RankState& rank, size_t at,
                               ncclRedOp_t reduction) const {
  const int me = crew_.shared.RankIn(call.comm, rank.rank);
  const auto ranks = static_cast<int>(crew_.shared.plan.members.at(call.comm).size());
  const ncclComm_t comm = rank.comms.at(call.comm);
  cudaStream_t stream = rank.streams[at];
  const auto type = static_cast<ncclDataType_t>(call.type);
  char* out = call.in_place ? rank.in : rank.out;
  const size_t count = call.count;
  switch (call.op) {
    case Op::kAllReduce:
      return ncclAllReduce(rank.in, out, count, type, reduction, comm, stream);
    case Op::kAllGather:
      return ncclAllGather(rank.in, out, count, type, comm, stream);
    case Op::kReduceScatter:
      return ncclReduceScatter(rank.in, out, count, type, reduction, comm, stream);
    case Op::kBroadcast:
      return ncclBroadcast(rank.in, out, count, type, call.root, comm, stream);
    case Op::kBcast:
      return ncclBcast(rank.in, count, type, call.root, comm, stream);
    case Op::kReduce:
      return ncclReduce(rank.in, out, count, type, reduction, call.root, comm, stream);
    case Op::kAlltoAll:
      return ncclAlltoAll(rank.in, rank.out, count, type, comm, stream);
    case Op::kGather:
      return ncclGather(rank.in, rank.out, count, type, call.root, comm, stream);
    case Op::kScatter:
      return ncclScatter(rank.in, rank.out, count, type, call.root, comm, stream);
    case Op::kShift:
      Take(ncclSend(rank.in, count, type, (me + call.root) % ranks, comm, stream));
      return ncclRecv(rank.out, count, type, (me + ranks - call.root) % ranks, comm, stream);
    case Op::kSend:
      return me == call.root ? ncclSend(rank.in, count, type, call.peer, comm, stream)
                             : ncclRecv(rank.out, count, type, call.root, comm, stream);
  }
  return ncclInternalError;
}

void CallIssuer::Issue(const Call& call, RankState& rank) {
  const int me = crew_.shared.RankIn(call.comm, rank.rank);
  if (call.op == Op::kSend && me != call.root && me != call.peer) return;
  const ncclComm_t comm = rank.comms.at(call.comm);
  const size_t at = crew_.where.StreamOf(rank, call.salt);
  if (depth_ == 0 && !MayOverlap(rank, comm, at)) Settle();
  rank.Use();
  const auto type = static_cast<ncclDataType_t>(call.type);
  auto reduction = static_cast<ncclRedOp_t>(call.reduction);
  float factor = 2;
  const bool reduces = call.op == Op::kAllReduce || call.op == Op::kReduceScatter || call.op == Op::kReduce;
  const bool own = reduces && call.reduction == kOwnReduction;
  if (own) CHECK(ncclRedOpCreatePreMulSum(&reduction, &factor, type, ncclScalarHostImmediate, comm));
  const ncclResult_t result = Start(call, rank, at, reduction);
  Take(result);
  Note(result, rank, comm, at);
  if (own) {
    if (depth_ == 0) Settle();
    CHECK(ncclRedOpDestroy(reduction, comm));
  }
}

void CallIssuer::Do(const Call& call) {
  const std::vector<RankState*> here = crew_.Here(call.comm);
  const bool grouped = depth_ == 0 && (here.size() > 1 || (call.op == Op::kShift && !here.empty()));
  if (grouped) StartGroup();
  for (RankState* rank : here) Issue(call, *rank);
  if (grouped) EndGroup(false);
  if (depth_ == 0 && call.salt % 5 < 3) Settle();
}

ncclResult_t CallIssuer::StartBad(const Item& item, const RankState& rank) const {
  const auto ranks = static_cast<int>(crew_.shared.plan.members.at(item.call.comm).size());
  const ncclComm_t comm = rank.comms.at(item.call.comm);
  const size_t count = item.call.count;
  cudaStream_t stream = rank.streams[crew_.where.StreamOf(rank, item.salt)];
  switch (item.salt / 4 % 5) {
    case 0:
      return ncclBroadcast(rank.in, rank.out, count, ncclFloat, ranks, comm, stream);
    case 1:
      return ncclBcast(rank.in, count, ncclFloat, -1, comm, stream);
    case 2:
      return ncclSend(rank.in, count, ncclFloat, ranks, comm, stream);
    case 3:
      return ncclAllReduce(rank.in, rank.out, count, ncclNumTypes, ncclSum, comm, stream);
    default:
      return ncclGather(rank.in, rank.out, count, ncclHalf, ranks + 3, comm, stream);
  }
}

void CallIssuer::DoBad(const Item& item) {
  for (RankState* rank : crew_.Here(item.call.comm)) {
    const uint64_t choice = Mix(item.salt, static_cast<uint64_t>(rank->rank));
    if (depth_ == 0 && item.salt % 4 != 3 && choice % 2 == 0) continue;
    if (depth_ == 0) Settle();
    rank->Use();
    const ncclResult_t result = StartBad(item, *rank);
    if (Accepted(result)) CHECK(ncclInternalError);
    ++rank->refused;
    group_refused_ = group_refused_ || depth_ > 0;
  }
}

}  // namespace random_collectives
