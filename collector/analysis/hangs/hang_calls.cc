#include "collector/analysis/hangs/hang_calls.h"

#include "collector/analysis/names.h"

namespace gpuprobe::analysis {

using model::IssuedCalls;
using model::ProcessModel;

CallShape ShapeOfCall(const model::JobModel& job, const IssuedCalls::Call& call, uint32_t signature) {
  const IssuedCalls::Signature& s = call.signatures[signature];
  CallShape shape{
      .op = job.Name(s.op), .count = s.count, .datatype = job.Name(s.datatype), .bytes = 0, .root = s.root};
  for (const IssuedCalls::Issue& issue : call.issues) {
    if (issue.signature != signature) continue;
    const bool traced = issue.plan == IssuedCalls::kPlanNotKnown;
    if (traced) shape.count = 0;  // it is of bytes
    shape.bytes = traced ? issue.element_bytes : s.count * issue.element_bytes;
  }
  return shape;
}

Hang HangInCall(const model::JobModel& job, uint64_t hash, const IssuedCalls::Communicator& comm,
                const IssuedCalls::Call& call) {
  Hang hang;
  hang.comm = CommName(hash);
  hang.comm_ranks = static_cast<int>(comm.ranks.size());
  hang.seq = call.seq;
  hang.shape = ShapeOfCall(job, call, 0);
  for (const IssuedCalls::RankState& state : comm.ranks)
    hang.not_heard += state.process == IssuedCalls::kNoProcess ? 1 : 0;
  for (const IssuedCalls::Issue& issue : call.issues) {
    const uint32_t index = comm.ranks[static_cast<size_t>(issue.comm_rank)].process;
    const ProcessModel& process = *job.processes()[index];
    const v1::Communicator* known = process.FindCommunicator(process.progress().last_call.comm);
    if (known != nullptr && known->hash() == hash && known->name() != 0) {
      hang.comm_name = process.String(known->name());
      break;
    }
  }
  return hang;
}

}  // namespace gpuprobe::analysis
