#include "tests/collector/testing/batch_builder.h"

#include "collector/framing/frame_decoder.h"

namespace gpuprobe::testing {

v1::Hello MakeHello(int rank, int world_size, uint32_t pid) {
  v1::Hello hello;
  hello.set_protocol_major(1);
  hello.set_protocol_minor(0);
  hello.set_probe_version("0.1.0");
  hello.set_timing_source(v1::TIMING_SOURCE_CUPTI_ACTIVITY);
  hello.set_loaded_by(v1::LOADED_BY_CUDA_INJECTION);
  hello.mutable_clock()->set_realtime_ns(kStart);
  hello.mutable_clock()->set_monotonic_ns(5 * kSecond);
  v1::Identity* id = hello.mutable_identity();
  id->set_rank(rank);
  id->set_local_rank(rank);
  id->set_world_size(world_size);
  id->set_rank_source(rank >= 0 ? v1::RANK_SOURCE_TORCHRUN : v1::RANK_SOURCE_NONE);
  id->set_job("job-1");
  id->set_host("n1");
  id->set_pid(pid != 0 ? pid : 1000 + static_cast<uint32_t>(rank));
  id->set_process_start_ns(kStart - kSecond);
  id->set_executable("/usr/bin/ddp_train");
  id->add_command_line("ddp_train");
  id->add_command_line("--steps");
  return hello;
}

BatchBuilder::BatchBuilder(uint64_t sequence, uint64_t base_ns) {
  batch_.set_sequence(sequence);
  batch_.set_base_ns(base_ns);
  for (Previous* p : {&kernels_, &copies_, &memsets_, &syncs_, &overheads_, &driver_calls_, &ranges_,
                      &allocations_, &collectives_, &traced_calls_})
    p->end = base_ns;
}

int64_t BatchBuilder::Delta(uint64_t& previous, uint64_t value) {
  const auto delta = static_cast<int64_t>(value - previous);
  previous = value;
  return delta;
}

BatchBuilder& BatchBuilder::String(uint32_t id, const std::string& value) {
  v1::StringDef* def = batch_.add_strings();
  def->set_id(id);
  def->set_value(value);
  return *this;
}

BatchBuilder& BatchBuilder::Thread(uint32_t id, bool main, const std::string& name) {
  v1::ThreadDef* def = batch_.add_threads();
  def->set_id(id);
  def->set_tid(9000 + id);
  def->set_main(main);
  def->set_name(name);
  return *this;
}

BatchBuilder& BatchBuilder::Site(uint32_t id, uint32_t name, uint32_t device, uint32_t stream) {
  v1::KernelSite* site = batch_.add_kernel_sites();
  site->set_id(id);
  site->set_name(name);
  site->set_device(device);
  site->set_stream(stream);
  site->set_grid_x(64);
  site->set_grid_y(1);
  site->set_grid_z(1);
  site->set_block_x(256);
  site->set_block_y(1);
  site->set_block_z(1);
  return *this;
}

BatchBuilder& BatchBuilder::Comm(uint32_t id, uint64_t hash, int rank, int ranks) {
  v1::Communicator* comm = batch_.add_communicators();
  comm->set_id(id);
  comm->set_hash(hash);
  comm->set_rank(rank);
  comm->set_ranks(ranks);
  return *this;
}

BatchBuilder& BatchBuilder::Clock(uint64_t realtime_ns, uint64_t monotonic_ns) {
  batch_.mutable_clock()->set_realtime_ns(realtime_ns);
  batch_.mutable_clock()->set_monotonic_ns(monotonic_ns);
  return *this;
}

BatchBuilder& BatchBuilder::Loss(v1::LossReason reason, uint64_t records) {
  v1::Loss* loss = batch_.add_losses();
  loss->set_reason(reason);
  loss->set_records(records);
  return *this;
}

BatchBuilder& BatchBuilder::Kernel(uint64_t start_ns, uint64_t end_ns, uint32_t site, uint64_t correlation,
                                   uint64_t graph_node) {
  v1::Kernels* m = batch_.mutable_kernels();
  m->add_start_delta(static_cast<int64_t>(start_ns - kernels_.end));
  m->add_duration(end_ns - start_ns);
  kernels_.end = end_ns;
  m->add_site(site);
  m->add_correlation_delta(Delta(kernels_.correlation, correlation));
  // Most batches have no graph at all: the column is left out until it is needed.
  if (graph_node != 0 || m->graph_node_delta_size() > 0) {
    while (m->graph_node_delta_size() + 1 < m->site_size()) m->add_graph_node_delta(0);
    m->add_graph_node_delta(Delta(kernels_.other, graph_node));
  }
  return *this;
}

BatchBuilder& BatchBuilder::Copy(uint64_t start_ns, uint64_t end_ns, uint64_t bytes,
                                 v1::CopyDirection direction, uint64_t correlation, v1::MemoryKind src,
                                 v1::MemoryKind dst) {
  v1::Copies* m = batch_.mutable_copies();
  m->add_start_delta(static_cast<int64_t>(start_ns - copies_.end));
  m->add_duration(end_ns - start_ns);
  copies_.end = end_ns;
  m->add_bytes(bytes);
  m->add_direction(direction);
  m->add_src_memory(src);
  m->add_dst_memory(dst);
  m->add_stream(7);
  m->add_correlation_delta(Delta(copies_.correlation, correlation));
  return *this;
}

BatchBuilder& BatchBuilder::Memset(uint64_t start_ns, uint64_t end_ns, uint64_t bytes, uint64_t correlation) {
  v1::Memsets* m = batch_.mutable_memsets();
  m->add_start_delta(static_cast<int64_t>(start_ns - memsets_.end));
  m->add_duration(end_ns - start_ns);
  memsets_.end = end_ns;
  m->add_bytes(bytes);
  m->add_correlation_delta(Delta(memsets_.correlation, correlation));
  return *this;
}

BatchBuilder& BatchBuilder::Sync(uint64_t start_ns, uint64_t end_ns, v1::SyncKind what) {
  v1::Syncs* m = batch_.mutable_syncs();
  m->add_start_delta(static_cast<int64_t>(start_ns - syncs_.end));
  m->add_duration(end_ns - start_ns);
  syncs_.end = end_ns;
  m->add_what(what);
  return *this;
}

BatchBuilder& BatchBuilder::Overhead(uint64_t start_ns, uint64_t end_ns, v1::OverheadKind what,
                                     uint64_t correlation) {
  v1::Overheads* m = batch_.mutable_overheads();
  m->add_start_delta(static_cast<int64_t>(start_ns - overheads_.end));
  m->add_duration(end_ns - start_ns);
  overheads_.end = end_ns;
  m->add_what(what);
  m->add_correlation_delta(Delta(overheads_.correlation, correlation));
  return *this;
}

BatchBuilder& BatchBuilder::DriverCall(uint64_t start_ns, uint64_t end_ns, uint32_t function, uint32_t thread,
                                       int32_t result) {
  v1::DriverCalls* m = batch_.mutable_driver_calls();
  m->add_start_delta(static_cast<int64_t>(start_ns - driver_calls_.end));
  m->add_duration(end_ns - start_ns);
  driver_calls_.end = end_ns;
  m->add_function(function);
  m->add_thread(thread);
  // Most batches have no failed call: the column is left out until it is needed.
  if (result != 0 || m->result_size() > 0) {
    while (m->result_size() + 1 < m->function_size()) m->add_result(0);
    m->add_result(result);
  }
  return *this;
}

BatchBuilder& BatchBuilder::Launch(uint32_t thread, uint64_t time_ns, uint64_t correlation, uint64_t range,
                                   uint64_t fallback) {
  if (batch_.launches_size() == 0 || launch_thread_ != thread) {
    batch_.add_launches()->set_thread(thread);
    launch_thread_ = thread;
    launches_ = {};
    launches_.end = batch_.base_ns();
    launch_fallback_ = 0;
  }
  v1::Launches* m = batch_.mutable_launches(batch_.launches_size() - 1);
  m->add_time_delta(Delta(launches_.end, time_ns));
  m->add_correlation_delta(Delta(launches_.correlation, correlation));
  m->add_range_delta(Delta(launches_.id, range));
  m->add_fallback_range_delta(Delta(launch_fallback_, fallback));
  return *this;
}

BatchBuilder& BatchBuilder::Owner(v1::KernelOwner owner) {
  batch_.mutable_launches(batch_.launches_size() - 1)->add_owner(owner);
  return *this;
}

BatchBuilder& BatchBuilder::Range(uint64_t id, uint64_t parent, uint32_t name, uint32_t thread,
                                  uint64_t start_ns, uint64_t end_ns) {
  v1::Ranges* m = batch_.mutable_ranges();
  m->add_start_delta(static_cast<int64_t>(start_ns - ranges_.end));
  m->add_duration(end_ns - start_ns);
  ranges_.end = end_ns;
  m->add_id_delta(Delta(ranges_.id, id));
  m->add_parent_delta(Delta(ranges_.parent, parent));
  m->add_name(name);
  m->add_thread(thread);
  return *this;
}

BatchBuilder& BatchBuilder::Alloc(uint64_t time_ns, uint64_t bytes, uint64_t address, uint64_t range,
                                  v1::MemoryKind memory, bool failed) {
  v1::Allocations* m = batch_.mutable_allocations();
  m->add_time_delta(Delta(allocations_.end, time_ns));
  m->add_op(v1::ALLOCATION_OP_ALLOC);
  m->add_memory(memory);
  m->add_address_delta(Delta(allocations_.other, address));
  m->add_bytes(bytes);
  m->add_failed(failed ? 1 : 0);
  m->add_range_delta(Delta(allocations_.id, range));
  return *this;
}

BatchBuilder& BatchBuilder::Free(uint64_t time_ns, uint64_t bytes, uint64_t address, v1::MemoryKind memory) {
  Alloc(time_ns, bytes, address, 0, memory);
  v1::Allocations* m = batch_.mutable_allocations();
  m->set_op(m->op_size() - 1, v1::ALLOCATION_OP_FREE);
  return *this;
}

BatchBuilder& BatchBuilder::Collective(uint32_t op, uint32_t comm, uint64_t seq, uint64_t count,
                                       uint32_t element_bytes, uint64_t plan, uint64_t issue_ns) {
  v1::Collectives* m = batch_.mutable_collectives();
  m->add_issue_delta(Delta(collectives_.end, issue_ns));
  m->add_host_duration(5000);
  m->add_op(op);
  m->add_comm(comm);
  m->add_seq_delta(Delta(collectives_.id, seq));
  m->add_count(count);
  m->add_element_bytes(element_bytes);
  m->add_root(-1);
  m->add_peer(-1);
  m->add_plan_delta(Delta(collectives_.other, plan));
  m->add_source(v1::CALL_SOURCE_INTERPOSED);
  return *this;
}

BatchBuilder& BatchBuilder::TracedCall(uint32_t op, uint32_t comm, uint64_t seq, uint64_t bytes,
                                       uint64_t issue_ns) {
  v1::TracedCalls* m = batch_.mutable_traced_calls();
  m->add_issue_delta(Delta(traced_calls_.end, issue_ns));
  m->add_host_duration(5000);
  m->add_op(op);
  m->add_comm(comm);
  m->add_seq_delta(Delta(traced_calls_.id, seq));
  m->add_bytes(bytes);
  return *this;
}

BatchBuilder& BatchBuilder::Transfer(uint32_t op, uint32_t comm, uint64_t seq, int peer, uint64_t plan,
                                     uint64_t issue_ns) {
  Collective(op, comm, seq, 1000, 4, plan, issue_ns);
  v1::Collectives* m = batch_.mutable_collectives();
  m->set_peer(m->peer_size() - 1, peer);
  return *this;
}

BatchBuilder& BatchBuilder::Plan(uint64_t plan, uint64_t correlation) {
  v1::Plans* m = batch_.mutable_plans();
  m->add_plan_delta(Delta(plans_.id, plan));
  m->add_correlation_delta(Delta(plans_.correlation, correlation));
  return *this;
}

BatchBuilder& BatchBuilder::CapturedPlan(uint64_t plan, uint64_t graph_node, uint32_t graph, uint32_t copy,
                                         uint64_t from_correlation) {
  v1::Plans* m = batch_.mutable_plans();
  m->add_plan_delta(Delta(plans_.id, plan));
  m->add_graph_node_delta(Delta(plans_.other, graph_node));
  m->add_graph(graph);
  m->add_copy(copy);
  m->add_from_correlation(from_correlation);
  return *this;
}

BatchBuilder& BatchBuilder::CapturedLaunch(uint64_t correlation, uint64_t graph_node) {
  v1::Plans* m = batch_.mutable_plans();
  m->add_plan_delta(Delta(plans_.id, 0));
  m->add_correlation_delta(Delta(plans_.correlation, correlation));
  m->add_graph_node_delta(Delta(plans_.other, graph_node));
  return *this;
}

BatchBuilder& BatchBuilder::GraphLaunch(uint32_t thread, uint64_t time_ns, uint64_t correlation,
                                        uint32_t graph) {
  Launch(thread, time_ns, correlation);
  batch_.mutable_launches(batch_.launches_size() - 1)->add_graph(graph);
  return *this;
}

v1::Frame BatchBuilder::Frame() const {
  v1::Frame frame;
  *frame.mutable_batch() = batch_;
  return frame;
}

std::string Stream(const std::vector<v1::Frame>& frames) {
  std::string out;
  for (const v1::Frame& frame : frames) framing::AppendDelimited(frame.SerializeAsString(), out);
  return out;
}

v1::Frame HelloFrame(const v1::Hello& hello) {
  v1::Frame frame;
  *frame.mutable_hello() = hello;
  return frame;
}

v1::Frame ByeFrame(uint64_t batches, v1::ByeReason reason) {
  v1::Frame frame;
  frame.mutable_bye()->set_reason(reason);
  frame.mutable_bye()->set_batches(batches);
  return frame;
}

std::vector<v1::Frame> TrainingRank(int rank, int world_size, int steps) {
  enum : uint32_t { kForward = 1, kBackward, kOptimizer, kStep, kGemm, kNccl, kAllReduce };
  std::vector<v1::Frame> frames{HelloFrame(MakeHello(rank, world_size))};
  uint64_t correlation = 0;
  uint64_t range = 0;
  for (int step = 0; step < steps; ++step) {
    const uint64_t t = kStart + kSecond + static_cast<uint64_t>(step) * 10 * kMs;
    BatchBuilder b(static_cast<uint64_t>(step) + 1, t);
    if (step == 0) {
      b.String(kForward, "forward")
          .String(kBackward, "backward")
          .String(kOptimizer, "optimizer")
          .String(kStep, "step");
      b.String(kGemm, "_Z4gemmPfS_i")
          .String(kNccl, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
          .String(kAllReduce, "AllReduce");
      b.Thread(1, true, "ddp_train").Thread(2, false, "pt_autograd_0");
      b.Site(1, kGemm).Site(2, kNccl, 0, 13).Comm(1, 0x9c1e, rank, world_size);
      b.Alloc(t, 64 << 20, 0x7000000);
    }
    const uint64_t id = range;
    range += 4;
    b.Range(id + 2, id + 1, kForward, 1, t, t + 2 * kMs);
    b.Range(id + 3, id + 1, kBackward, 1, t + 2 * kMs, t + 6 * kMs);
    b.Range(id + 4, id + 1, kOptimizer, 1, t + 6 * kMs, t + 7 * kMs);
    b.Range(id + 1, 0, kStep, 1, t, t + 7 * kMs);
    b.Launch(1, t + 1000, correlation + 1, id + 2).Launch(1, t + 6 * kMs + 1000, correlation + 4, id + 4);
    b.Launch(1, t + 500, correlation + 5, id + 2);
    b.Launch(2, t + 2 * kMs + 1000, correlation + 2, 0, id + 3)
        .Launch(2, t + 4 * kMs, correlation + 3, 0, id + 3);
    b.Copy(t + 600, t + 600 + 40000, 1 << 20, v1::COPY_DIRECTION_H2D, correlation + 5);
    b.Kernel(t + 100000, t + 2 * kMs, 1, correlation + 1);
    b.Kernel(t + 2 * kMs + 100000, t + 5 * kMs, 1, correlation + 2);
    // Rank 0 arrives last: its kernel is the shortest. All end together.
    b.Kernel(t + 5 * kMs - (rank == 0 ? 0 : kMs), t + 5 * kMs + 500000, 2, correlation + 3);
    b.Kernel(t + 6 * kMs + 100000, t + 7 * kMs, 1, correlation + 4);
    b.Collective(kAllReduce, 1, static_cast<uint64_t>(step), 1 << 18, 4, static_cast<uint64_t>(step) + 1,
                 t + 4 * kMs);
    b.Plan(static_cast<uint64_t>(step) + 1, correlation + 3);
    b.Clock(t + 8 * kMs, t + 8 * kMs - kStart + 5 * kSecond);
    correlation += 5;
    frames.push_back(b.Frame());
  }
  frames.push_back(ByeFrame(static_cast<uint64_t>(steps)));
  return frames;
}

}  // namespace gpuprobe::testing
