#include "collector/simulate/virtual_node.h"

#include <algorithm>
#include <cmath>

namespace gpuprobe::simulate {
namespace {

constexpr int64_t kCopyOverheadNs = 1'500;
constexpr int64_t kSyncCostNs = 1'500;  // of a call that need not wait
constexpr int64_t kWakeUpNs = 5'000;    // from the device's end to the return of the call that waited
constexpr int64_t kThreadSwitchNs = 6'000;
constexpr int64_t kGraphLaunchNs = 9'000;
constexpr int64_t kAllocationNs = 40'000;
constexpr uint64_t kPairBit = uint64_t{1} << 63;

Kernel KernelOf(CollectiveOp op) {
  switch (op) {
    case CollectiveOp::kAllReduce:
      return Kernel::kNcclAllReduce;
    case CollectiveOp::kAllGather:
      return Kernel::kNcclAllGather;
    case CollectiveOp::kReduceScatter:
      return Kernel::kNcclReduceScatter;
    case CollectiveOp::kBroadcast:
      return Kernel::kNcclBroadcast;
    case CollectiveOp::kSend:
    case CollectiveOp::kRecv:
      break;
  }
  return Kernel::kNcclSendRecv;
}

bool IsPair(CollectiveOp op) { return op == CollectiveOp::kSend || op == CollectiveOp::kRecv; }

}  // namespace

int64_t TransferNs(CollectiveOp op, uint64_t bytes, int ranks, const Link& link) {
  const double p = ranks;
  const auto alpha = static_cast<double>(link.alpha_ns);
  const double wire = static_cast<double>(bytes) / link.beta_bytes_per_ns;
  double ns = 0;
  switch (op) {
    case CollectiveOp::kAllReduce:
      ns = 2 * (p - 1) * alpha + 2 * (p - 1) / p * wire;
      break;
    // The argument is one rank's input of a gather, and one rank's output, a P-th of its input, of a scatter.
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
      ns = (p - 1) * alpha + (p - 1) * wire;
      break;
    case CollectiveOp::kBroadcast:
      ns = (p - 1) * alpha + wire;
      break;
    case CollectiveOp::kSend:
    case CollectiveOp::kRecv:
      ns = alpha + wire;
      break;
  }
  return std::llround(ns);
}

VirtualNode::VirtualNode(std::vector<NodeCommunicator> communicators, std::vector<RankSettings> settings,
                         std::vector<RankStream>& streams, uint64_t seed, double call_noise,
                         NodeObserver* observer)
    : communicators_(std::move(communicators)),
      ranks_(settings.size()),
      seed_(seed),
      call_noise_(call_noise),
      observer_(observer) {
  for (size_t i = 0; i < settings.size(); ++i) {
    Rank& rank = ranks_[i];
    rank.settings = std::move(settings[i]);
    rank.random = Random(seed * 1'000'003 + i);
    rank.out = &streams[i];
    rank.slots.assign(rank.settings.queue_depth, 0);
    rank.events.assign(Program::kEvents, 0);
    rank.streams.resize(kStreams);
    rank.communicators.resize(rank.settings.communicators.size());
  }
}

int64_t VirtualNode::device_ns(int rank) const { return ranks_[static_cast<size_t>(rank)].latest_device_ns; }

void VirtualNode::Queue(int rank) {
  if (Of(rank).queued) return;
  Of(rank).queued = true;
  work_list_.push_back(rank);
}

bool VirtualNode::Run(const std::vector<const Program*>& programs, int step) {
  step_ = step;
  for (size_t i = ranks_.size(); i-- > 0;) {
    Rank& rank = ranks_[i];
    if (rank.exited) continue;
    rank.program = programs[i];
    rank.next = 0;
    rank.step_begun = false;
    Queue(static_cast<int>(i));
  }
  while (!work_list_.empty()) {
    const int rank = work_list_.back();
    work_list_.pop_back();
    Of(rank).queued = false;
    Advance(rank);
  }
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.exited || (rank.next == rank.program->instructions().size() &&
                           std::all_of(rank.streams.begin(), rank.streams.end(),
                                       [](const Stream& stream) { return stream.queue.empty(); }));
  });
}

void VirtualNode::Advance(int rank) {
  bool got_on = true;
  while (got_on) {
    got_on = RunHost(rank);
    got_on = RunStreams(rank) || got_on;
  }
}

bool VirtualNode::RunHost(int rank) {
  Rank& r = Of(rank);
  const std::vector<Instruction>& instructions = r.program->instructions();
  const size_t before = r.next;
  while (r.next < instructions.size() && !r.exited && Execute(rank, instructions[r.next])) ++r.next;
  return r.next != before;
}

bool VirtualNode::RunStreams(int rank) {
  Rank& r = Of(rank);
  bool any = false;
  bool got_on = true;
  while (got_on) {
    got_on = false;
    for (Stream& stream : r.streams) {
      if (!stream.queue.empty()) got_on = Resolve(rank, stream) || got_on;
    }
    any = any || got_on;
  }
  return any;
}

bool VirtualNode::WaitForSlot(Rank& rank) {
  const int64_t free_ns = rank.slots[rank.launches % rank.settings.queue_depth];
  if (free_ns == kUnknown) return false;
  rank.host_ns = std::max(rank.host_ns, free_ns);
  return true;
}

bool VirtualNode::WaitForStreams(int rank, size_t first, size_t last, v1::SyncKind kind) {
  Rank& r = Of(rank);
  if (r.wait_began_ns < 0) r.wait_began_ns = r.host_ns;
  RunStreams(rank);
  int64_t until = r.wait_began_ns + kSyncCostNs;
  for (size_t i = first; i <= last; ++i) {
    if (!r.streams[i].queue.empty()) return false;
    if (r.streams[i].ready_ns > r.wait_began_ns) until = std::max(until, r.streams[i].ready_ns + kWakeUpNs);
  }
  if (kind != v1::SYNC_KIND_UNKNOWN)
    r.out->Sync(kind, static_cast<uint8_t>(first), r.wait_began_ns, until, ++r.correlation);
  if (observer_ != nullptr) observer_->OnHostInterval(rank, HostCause::kSync, r.wait_began_ns, until);
  r.host_ns = until;
  r.wait_began_ns = -1;
  return true;
}

bool VirtualNode::BlockingCopy(int rank, const Instruction& instruction) {
  Rank& r = Of(rank);
  if (!r.copying) {
    if (!Enqueue(rank, instruction)) return false;
    r.copying = true;
  }
  if (!WaitForStreams(rank, instruction.stream, instruction.stream, v1::SYNC_KIND_UNKNOWN)) return false;
  r.copying = false;
  return true;
}

uint64_t VirtualNode::InnermostRange(const Rank& rank, uint32_t thread) const {
  const std::vector<OpenRange>& open = rank.ranges[thread - 1];
  return open.empty() ? 0 : open.back().id;
}

bool VirtualNode::Execute(int rank, const Instruction& instruction) {
  using Op = Instruction::Op;
  Rank& r = Of(rank);
  switch (instruction.op) {
    case Op::kKernel:
    case Op::kCollective:
    case Op::kMemset:
      return Enqueue(rank, instruction);
    case Op::kCopy:
      return instruction.blocking ? BlockingCopy(rank, instruction) : Enqueue(rank, instruction);
    case Op::kRecordEvent:
      r.events[instruction.id] = kUnknown;
      [[fallthrough]];
    case Op::kWaitEvent:
      r.streams[instruction.stream].queue.push_back({.instruction = &instruction});
      Resolve(rank, r.streams[instruction.stream]);
      return true;
    case Op::kSyncStream:
      return WaitForStreams(rank, instruction.stream, instruction.stream, v1::SYNC_KIND_STREAM);
    case Op::kSyncDevice:
      return WaitForStreams(rank, 0, kStreams - 1, v1::SYNC_KIND_DEVICE);
    case Op::kHostWork: {
      const int64_t began = r.host_ns;
      r.host_ns += r.random.Noisy(instruction.duration_ns, r.settings.host_noise);
      if (observer_ != nullptr) observer_->OnHostInterval(rank, instruction.cause, began, r.host_ns);
      if (const auto code = static_cast<HostCode>(instruction.id); code != HostCode::kNotSampled)
        r.out->HostSamples(code, r.thread, began, r.host_ns);
      return true;
    }
    case Op::kThread:
      r.thread = instruction.id;
      r.host_ns += kThreadSwitchNs;
      return true;
    case Op::kPushRange:
      r.ranges[r.thread - 1].push_back({.id = ++r.last_range,
                                        .parent = InnermostRange(r, r.thread),
                                        .name = instruction.id,
                                        .start_ns = r.host_ns});
      return true;
    case Op::kPopRange: {
      const OpenRange range = r.ranges[r.thread - 1].back();
      r.ranges[r.thread - 1].pop_back();
      r.out->Range(range.id, range.parent, range.name, r.thread, range.start_ns, r.host_ns);
      return true;
    }
    case Op::kAllocate:
    case Op::kFree:
      r.host_ns += kAllocationNs;
      r.out->Allocation(instruction, instruction.op == Op::kFree, r.host_ns, InnermostRange(r, r.thread));
      return true;
    case Op::kAllocatorLevel:
      r.out->AllocatorLevel(instruction.bytes, instruction.address, r.host_ns);
      return true;
    case Op::kTensor:
    case Op::kTensorFree:
      r.out->Tensor(instruction, instruction.op == Op::kTensorFree, r.host_ns, InnermostRange(r, r.thread));
      return true;
    case Op::kAllocatorRefusal:
      r.out->AllocatorRefusal(instruction.bytes, r.host_ns, InnermostRange(r, r.thread));
      return true;
    case Op::kGraphBegin:
      return LaunchGraph(rank, instruction);
    case Op::kGraphEnd:
      r.in_graph = false;
      r.capturing = false;
      return true;
    case Op::kStop:
      r.stopped = true;
      return false;
    case Op::kExit:
      r.exited = true;
      return true;
  }
  return true;
}

bool VirtualNode::LaunchGraph(int rank, const Instruction& instruction) {
  Rank& r = Of(rank);
  if (!WaitForSlot(r)) return false;
  CapturedGraph& graph = r.graphs[instruction.id];
  r.capturing = !graph.captured;
  if (!graph.captured) {
    graph.captured = true;
    graph.first_node = (uint64_t{instruction.id} + 1) << 32;
  }
  if (!r.step_begun && observer_ != nullptr) observer_->OnStep(rank, step_);
  r.step_begun = true;
  r.in_graph = true;
  r.graph_node = graph.first_node;
  r.graph_correlation = ++r.correlation;
  r.graph_launch_ns = r.host_ns;
  r.graph_slot = static_cast<uint32_t>(r.launches++ % r.settings.queue_depth);
  r.slots[r.graph_slot] = kUnknown;
  r.graph = instruction.id + 1;
  r.out->Launch(r.thread, r.host_ns, r.correlation, InnermostRange(r, r.thread),
                InnermostRange(r, RankStream::kMainThread), r.graph);
  r.host_ns += r.random.Noisy(kGraphLaunchNs, r.settings.host_noise);
  return true;
}

uint64_t VirtualNode::MeetingOf(int rank, const Instruction& instruction, int* needed, uint64_t* index) {
  Rank& r = Of(rank);
  const auto [number, own_rank] = r.settings.communicators[instruction.comm];
  if (!IsPair(instruction.collective)) {
    *needed = static_cast<int>(communicators_[static_cast<size_t>(number)].members.size());
    *index = r.communicators[instruction.comm].collectives++;
    return static_cast<uint64_t>(number);
  }
  const bool sends = instruction.collective == CollectiveOp::kSend;
  const auto peer = static_cast<uint64_t>(instruction.peer);
  const uint64_t from = sends ? static_cast<uint64_t>(own_rank) : peer;
  const uint64_t to = sends ? peer : static_cast<uint64_t>(own_rank);
  *needed = 2;
  const uint64_t key = kPairBit | (static_cast<uint64_t>(number) << 32) | (from << 16) | to;
  *index = r.pair_calls[key]++;
  return key;
}

void VirtualNode::TellCall(Rank& rank, const Instruction& instruction, uint64_t correlation,
                           uint64_t graph_node, int64_t issue_ns, int64_t return_ns) {
  if (graph_node != 0 && !rank.capturing) return;  // a replay calls nothing
  const uint64_t plan = ++rank.plan;
  rank.out->Plan(plan, graph_node == 0 ? correlation : 0, graph_node, graph_node == 0 ? 0 : rank.graph);
  uint64_t range = InnermostRange(rank, rank.thread);
  if (range == 0) range = InnermostRange(rank, RankStream::kMainThread);
  rank.out->Collective(instruction, rank.thread, rank.communicators[instruction.comm].seq++, plan, issue_ns,
                       return_ns, range);
}

// Launches device work: the host's part now, the device's when its stream gets there.
bool VirtualNode::Enqueue(int rank, const Instruction& instruction) {
  Rank& r = Of(rank);
  Work work{.instruction = &instruction, .step = step_};
  if (r.in_graph) {
    work.correlation = r.graph_correlation;
    work.graph_node = ++r.graph_node;
    work.launch_ns = r.graph_launch_ns;
    work.slot = r.graph_slot;
  } else {
    if (!WaitForSlot(r)) return false;
    if (!r.step_begun && observer_ != nullptr) observer_->OnStep(rank, step_);
    r.step_begun = true;
    work.correlation = ++r.correlation;
    work.launch_ns = r.host_ns;
    work.slot = static_cast<uint32_t>(r.launches++ % r.settings.queue_depth);
    r.slots[work.slot] = kUnknown;
    const uint64_t own = InnermostRange(r, r.thread);
    r.out->Launch(r.thread, r.host_ns, work.correlation, own,
                  own == 0 ? InnermostRange(r, RankStream::kMainThread) : 0);
    r.host_ns += r.random.Noisy(r.settings.launch_cost_ns, r.settings.host_noise);
  }
  const auto bytes = static_cast<double>(instruction.bytes);
  switch (instruction.op) {
    case Instruction::Op::kKernel:
      work.duration_ns = r.random.Noisy(
          static_cast<int64_t>(static_cast<double>(instruction.duration_ns) * r.settings.kernel_factor),
          r.settings.kernel_noise);
      break;
    case Instruction::Op::kCopy:
      work.duration_ns =
          kCopyOverheadNs + static_cast<int64_t>(bytes / (instruction.memory == MemoryPlace::kPageable
                                                              ? r.settings.pageable_bytes_per_ns
                                                              : r.settings.pcie_bytes_per_ns));
      break;
    case Instruction::Op::kMemset:
      work.duration_ns = instruction.duration_ns;
      break;
    default: {
      int needed = 0;
      work.meeting = MeetingOf(rank, instruction, &needed, &work.call);
      Meeting& meeting = meetings_[work.meeting];
      while (meeting.first + meeting.calls.size() <= work.call) meeting.calls.emplace_back().needed = needed;
      TellCall(r, instruction, work.correlation, work.graph_node, work.launch_ns, r.host_ns);
      break;
    }
  }
  Stream& stream = r.streams[instruction.stream];
  stream.queue.push_back(work);
  Resolve(rank, stream);
  return true;
}

void VirtualNode::Done(int rank, const Work& work, DeviceWork::Kind kind, int64_t start_ns, int64_t end_ns) {
  Rank& r = Of(rank);
  r.slots[work.slot] = end_ns;
  r.latest_device_ns = std::max(r.latest_device_ns, end_ns);
  latest_ns_ = std::max(latest_ns_, end_ns);
  if (observer_ == nullptr) return;
  observer_->OnDeviceWork(rank, {.kind = kind,
                                 .phase = work.instruction->phase,
                                 .stream = work.instruction->stream,
                                 .step = work.step,
                                 .launch_ns = work.launch_ns,
                                 .start_ns = start_ns,
                                 .end_ns = end_ns});
}

bool VirtualNode::Resolve(int rank, Stream& stream) {
  using Op = Instruction::Op;
  Rank& r = Of(rank);
  bool any = false;
  while (!stream.queue.empty()) {
    Work& work = stream.queue.front();
    const Instruction& instruction = *work.instruction;
    if (instruction.op == Op::kRecordEvent) {
      r.events[instruction.id] = stream.ready_ns;
    } else if (instruction.op == Op::kWaitEvent) {
      if (r.events[instruction.id] == kUnknown) return any;
      stream.ready_ns = std::max(stream.ready_ns, r.events[instruction.id]);
    } else if (instruction.op == Op::kCollective) {
      if (!ResolveCall(rank, stream, work)) return any;
    } else {
      const int64_t start =
          std::max(stream.ready_ns + r.settings.stream_gap_ns, work.launch_ns + r.settings.launch_latency_ns);
      const int64_t end = start + work.duration_ns;
      stream.ready_ns = end;
      if (instruction.op == Op::kKernel) {
        r.out->Kernel(instruction.kernel, instruction.stream, instruction.grid_percent, start, end,
                      work.correlation, work.graph_node);
        Done(rank, work, DeviceWork::Kind::kCompute, start, end);
      } else if (instruction.op == Op::kCopy) {
        r.out->Copy(instruction, start, end, work.correlation);
        Done(rank, work, DeviceWork::Kind::kCopy, start, end);
      } else {
        r.out->Memset(instruction, start, end, work.correlation);
        Done(rank, work, DeviceWork::Kind::kMemset, start, end);
      }
    }
    stream.queue.pop_front();
    any = true;
  }
  return any;
}

bool VirtualNode::ResolveCall(int rank, Stream& stream, Work& work) {
  Rank& r = Of(rank);
  const Instruction& instruction = *work.instruction;
  Meeting& meeting = meetings_[work.meeting];
  Call& call = meeting.calls[work.call - meeting.first];
  FinishedCall& facts = call.facts;
  const int64_t arrival =
      std::max(stream.ready_ns + r.settings.stream_gap_ns, work.launch_ns + r.settings.launch_latency_ns);
  if (!work.arrived) {
    work.arrived = true;
    if (facts.arrivals.empty()) {
      facts.communicator = r.settings.communicators[instruction.comm].first;
      facts.op = instruction.collective;
      facts.bytes = instruction.bytes;
      facts.step = work.step;
    }
    const bool agrees = facts.bytes == instruction.bytes &&
                        (facts.op == instruction.collective || IsPair(instruction.collective));
    call.stuck = call.stuck || !agrees || instruction.failed;
    facts.arrivals.emplace_back(rank, arrival);
    call.last_ns = std::max(call.last_ns, arrival);
    if (static_cast<int>(facts.arrivals.size()) == call.needed && !call.stuck) {
      const NodeCommunicator& communicator = communicators_[static_cast<size_t>(facts.communicator)];
      const int64_t transfer = TransferNs(facts.op, facts.bytes, call.needed, communicator.link);
      Random noise(seed_ ^ (work.meeting * 0x9e3779b97f4a7c15u) ^ (work.call << 20));
      facts.end_ns = call.last_ns + noise.Noisy(transfer, call_noise_);
      call.done = true;
      if (observer_ != nullptr) observer_->OnCall(facts);
      for (const auto& [member, arrived_ns] : facts.arrivals) {
        if (member != rank) Queue(member);
      }
    }
  }
  if (!call.done) return false;
  const int64_t end = facts.end_ns;
  stream.ready_ns = end;
  r.out->Kernel(KernelOf(instruction.collective), instruction.stream, instruction.grid_percent, arrival, end,
                work.correlation, work.graph_node);
  Done(rank, work, DeviceWork::Kind::kCollective, arrival, end);
  ++call.taken;
  while (!meeting.calls.empty() && meeting.calls.front().taken == meeting.calls.front().needed) {
    meeting.calls.pop_front();
    ++meeting.first;
  }
  return true;
}

}  // namespace gpuprobe::simulate
