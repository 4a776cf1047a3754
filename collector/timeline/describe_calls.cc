// What a timeline says of NCCL calls: on the host where they were issued, and on the kernels and copies that
// carry them.
//
// Kernels say it in the words of PyTorch's profiler, which its tools read.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collector/analysis/names.h"
#include "collector/timeline/collective_words.h"
#include "collector/timeline/process_timeline.h"

namespace gpuprobe::timeline {
namespace {

uint64_t InElements(const model::CollectiveRecord& call, std::string_view op, uint64_t ranks) {
  return TakesFromEach(op) ? call.count * ranks : call.count;
}

uint64_t OutElements(const model::CollectiveRecord& call, std::string_view op, uint64_t ranks) {
  return GivesToEach(op) ? call.count * ranks : call.count;
}

}  // namespace

void ProcessTimeline::DescribeCalls(model::CallTable::Plan& plan, bool first_work, bool whole) {
  const model::CollectiveRecord& first = plan.calls.front().record;
  const std::string& op = definitions_.String(first.op);
  const v1::Communicator* comm = definitions_.FindCommunicator(first.comm);
  const uint64_t ranks = comm == nullptr ? 1 : static_cast<uint64_t>(std::max(comm->ranks(), 1));
  uint64_t in = 0;
  uint64_t out = 0;
  uint64_t bytes = 0;
  for (const model::CallTable::Call& call : plan.calls) {
    const std::string_view each = definitions_.String(call.record.op);
    in += InElements(call.record, each, ranks);
    out += OutElements(call.record, each, ranks);
    bytes += call.record.count * call.record.element_bytes;
    if (first_work && call.shown) ends_.push_back({FlowKind::kCall, call.flow});
  }
  Put("Collective name", CollectiveName(op));
  Put("In msg nelems", in);
  Put("Out msg nelems", out);
  if (whole) Put("bytes", bytes);
  Put("dtype", DataTypeWord(definitions_.String(first.datatype)));
  Put("Seq", first.seq);
  Put("In split size", std::string_view("[]"));
  Put("Out split size", std::string_view("[]"));
  if (plan.calls.size() > 1) Put("calls", uint64_t{plan.calls.size()});
  if (comm == nullptr) return;
  Put("Group size", ranks);
  Put("Process Group Name", Keep(analysis::CommName(comm->hash())));
  Put("Process Group Description", comm->name() != 0 ? std::string_view(definitions_.String(comm->name()))
                                                     : std::string_view("default_pg"));
  if (const auto group = groups_.find(comm->hash()); group != groups_.end())
    Put("Process Group Ranks", std::string_view(group->second));
  if (process_.rank >= 0) Put("Rank", uint64_t{static_cast<uint32_t>(process_.rank)});
}

void ProcessTimeline::Show(const model::CollectiveRecord& r) {
  if (!Wants(r.issue_ns, r.return_ns)) return;
  const v1::Communicator* comm = definitions_.FindCommunicator(r.comm);
  if (comm != nullptr) Put("communicator", Keep(analysis::CommName(comm->hash())));
  Put("sequence", r.seq);
  Put("count", r.count);
  Put("datatype", definitions_.String(r.datatype));
  Put("bytes", r.count * r.element_bytes);
  if (r.root >= 0) Put("root", int64_t{r.root});
  if (r.peer >= 0) Put("peer", int64_t{r.peer});
  if (r.reduction != 0) Put("reduction", definitions_.String(r.reduction));
  if (r.algorithm != 0) Put("algorithm", definitions_.String(r.algorithm));
  if (r.protocol != 0) Put("protocol", definitions_.String(r.protocol));
  if (r.result != 0) Put("result", int64_t{r.result});
  if (model::CallTable::Call* call = calls_.Find(r); call != nullptr) {
    call->shown = true;
    begins_.push_back({FlowKind::kCall, call->flow});
  }
  const std::string name = "nccl" + definitions_.String(r.op);
  const model::Thread& thread = ThreadOf(r.thread);
  Emit(Category::kCall, r.issue_ns, r.return_ns, name, {.kind = TrackKind::kThread, .id = thread.tid},
       thread.name);
}

}  // namespace gpuprobe::timeline
