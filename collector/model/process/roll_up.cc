#include "collector/model/process/roll_up.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "collector/records/row_writer.h"

namespace gpuprobe::model {
namespace {

template <typename Record>
void Write(const std::vector<Record>& rows, v1::Batch& out) {
  RowWriter<Record> writer(out);
  for (const Record& row : rows) writer.Append(row);
}

uint64_t RoundedDown(uint64_t ns, uint64_t unit_ns) { return ns / unit_ns * unit_ns; }

}  // namespace

void RollUp::Issued(const CollectiveRecord& call) {
  // What the job compares of it.
  CollectiveRecord& row = issued_.emplace_back();
  row.issue_ns = row.return_ns = call.issue_ns;
  row.op = call.op;
  row.comm = call.comm;
  row.seq = call.seq;
  row.count = call.count;
  row.datatype = call.datatype;
  row.element_bytes = call.element_bytes;
  row.root = call.root;
  row.plan = call.plan;
}

void RollUp::Settled(const SettledPlan& plan) {
  ArrivalRecord row{};
  row.series = plan.series->place;
  row.seq = plan.seq;
  row.replay = plan.replay;
  row.bytes = plan.bytes;
  row.place = static_cast<uint32_t>(plan.device);
  row.clock_shift_ns = plan.clock_shift_ns;
  row.lost = plan.lost;
  row.ends = static_cast<uint32_t>(plan.transfers.size());
  const uint64_t unit_ns =
      coarse_ ? std::max(kArrivalNs, std::bit_floor((plan.end_ns - plan.start_ns) / kArrivalParts)) : 1;
  // One without times stands where the one before it ended: the distance between them is nothing.
  const uint64_t before_ns = arrivals_.empty() ? 0 : arrivals_.back().end_ns;
  row.start_ns = plan.lost ? before_ns : RoundedDown(plan.start_ns, unit_ns);
  row.end_ns = plan.lost ? before_ns : RoundedDown(plan.end_ns, unit_ns);
  arrivals_.push_back(row);
  for (const TransferEnd& end : plan.transfers) {
    ArrivalEndRecord& side = ends_.emplace_back();
    side.op = end.op;
    side.peer = end.peer;
    side.ordinal = end.ordinal;
  }
}

void RollUp::Finished(uint32_t comm, uint64_t seq) {
  FinishedCallRecord& row = finished_.emplace_back();
  row.comm = comm;
  row.seq = seq;
}

void RollUp::Define(const v1::Batch& batch) {
  if (next_.base_ns() == 0) next_.set_base_ns(batch.base_ns());
  if (batch.has_clock()) *next_.mutable_clock() = batch.clock();
  if (batch.has_versions()) *next_.mutable_versions() = batch.versions();
  if (batch.has_nccl_identity()) *next_.mutable_nccl_identity() = batch.nccl_identity();
  next_.mutable_devices()->MergeFrom(batch.devices());
  next_.mutable_communicators()->MergeFrom(batch.communicators());
}

void RollUp::Define(const ProcessNames& names, uint32_t text) {
  if (text == 0 || text >= kFirstOperationId || !texts_.insert(text).second) return;
  v1::StringDef& def = *next_.add_strings();
  def.set_id(text);
  def.set_value(names.String(text));
}

void RollUp::DefineSeries(const Known& known) {
  const auto& all = known.collectives.series();
  for (; series_ < all.size(); ++series_) {
    const CollectiveSeries& series = *all[series_];
    v1::PlanSeries& def = *next_.add_plan_series();
    def.set_id(series.place);
    def.set_comm(series.comm);
    def.set_size_bytes(series.size_bytes);
    def.set_calls_per_plan(series.calls_per_plan);
    def.set_mixed_sizes(series.mixed_sizes);
    const uint64_t calls = std::max<uint64_t>(series.calls, 1);
    for (const CollectivePart& part : series.parts) {
      v1::PlanSeries::Part& of_plan = *def.add_parts();
      of_plan.set_op(part.op);
      of_plan.set_calls(static_cast<uint32_t>(part.calls * series.calls_per_plan / calls));
      of_plan.set_bytes(part.bytes * series.calls_per_plan / calls);
      Define(known.names, part.op);
    }
  }
}

void RollUp::ForgetRows() {
  issued_.clear();
  finished_.clear();
  arrivals_.clear();
  ends_.clear();
  traced_steps_.clear();
  traced_calls_.clear();
  call_times_.clear();
}

// When a call was issued matters as long as it waits; the state that goes with a roll-up has the time of the
// last one. It is a third of all that a call takes in a log, so those that are over are rounded. In a large
// job all are: each has the time of the one before, unless it waits, and that was long before, or before the
// host's last wait.
void RollUp::RoundIssued(uint64_t last_wait_end_ns) {
  absl::flat_hash_set<std::pair<uint32_t, uint64_t>> finished;
  for (const FinishedCallRecord& call : finished_) finished.emplace(call.comm, call.seq);
  uint64_t before_ns = 0;
  for (CollectiveRecord& call : issued_) {
    const bool waits = !finished.contains({call.comm, call.seq});
    const bool as_before = coarse_ && before_ns != 0 && before_ns <= call.issue_ns &&
                           (!waits || (call.issue_ns < before_ns + kMostTogetherNs &&
                                       (before_ns > last_wait_end_ns) == (call.issue_ns > last_wait_end_ns)));
    if (as_before) {
      call.issue_ns = before_ns;
    } else if (!waits) {
      call.issue_ns = RoundedDown(call.issue_ns, kIssueNs);
    }
    before_ns = call.return_ns = call.issue_ns;
  }
}

v1::Batch RollUp::Take(const Known& known) {
  RoundIssued(known.last_wait_end_ns);
  for (const v1::Communicator& comm : next_.communicators()) {
    Define(known.names, comm.name());
    Define(known.names, comm.made_by());
  }
  for (const CollectiveRecord& call : issued_) {
    Define(known.names, call.op);
    Define(known.names, call.datatype);
  }
  for (const uint32_t text : known.texts) Define(known.names, text);
  for (const ArrivalEndRecord& side : ends_) Define(known.names, side.op);
  for (TracedCallRecord& call : traced_calls_) {
    Define(known.names, call.op);
    call.return_ns = call.issue_ns;  // the state has the last one's
  }
  DefineSeries(known);
  Write(known.steps, next_);
  Write(std::exchange(issued_, {}), next_);
  Write(std::exchange(finished_, {}), next_);
  Write(std::exchange(arrivals_, {}), next_);
  Write(std::exchange(ends_, {}), next_);
  Write(std::exchange(traced_steps_, {}), next_);
  Write(std::exchange(traced_calls_, {}), next_);
  Write(std::exchange(call_times_, {}), next_);
  return std::exchange(next_, {});
}

}  // namespace gpuprobe::model
