#include "collector/render/full_report.h"

#include <optional>
#include <string>

namespace gpuprobe::render {
namespace {

constexpr char kText[] = "text";

analysis::Halt FullHalt() {
  return {.kind = analysis::Halt::Kind::kEnded,
          .since_ns = 1,
          .signal = 9,
          .exit_code = 1,
          .out_of_memory = true,
          .tracer = kText};
}

analysis::HostLoad FullLoad() {
  return {.observed_s = 1, .quota_cpus = 1, .waits_for = kText, .wait_channel = kText};
}

analysis::CausedWait FullWait() {
  return {.steps = 1, .steps_blamed = 1, .per_step_error_ns = 1.0, .pairs = 1};
}

analysis::Conditions FullConditions() {
  analysis::Conditions c;
  for (std::string* text : {&c.job, &c.cuda_driver, &c.cuda_runtime, &c.cupti, &c.nccl, &c.probe_version,
                            &c.collector_version, &c.step_marker})
    *text = kText;
  c.hosts = c.differing = c.command_line = {kText};
  c.devices.resize(1);
  c.devices.front().memory_gbytes_per_s = 1;
  c.shared_devices = {{.host = kText, .ordinal = 0, .ranks = {0}, .processes = {kText}}};
  c.duplicate_ranks = {{.rank = 0, .pids = {1}}};
  c.world_size = 1;
  c.ranks_expected = 1;
  c.steps_recorded = analysis::StepsRecorded{.marker = kText, .start = 0, .stop = 1};
  return c;
}

analysis::Trust FullTrust() {
  static constexpr cupti::KnownDefect kDefect{};
  analysis::Trust t;
  t.lost = t.unknown_kinds = t.unknown_functions = {{kAnyKey, 1}};
  t.coverage = 1;
  t.timing_source = kText;
  t.detail_since_ns = 1;
  t.cupti_defects = {&kDefect};
  t.cut_off = {{.who = kText}};
  t.exit_incomplete = t.damaged_logs = {kText};
  t.cost.compared = 1;
  t.cost.overheads = {{.what = v1::OVERHEAD_KIND_BUFFER_FLUSH}};
  for (std::optional<double>* share :
       {&t.cost.own_fraction, &t.cost.launch_fraction, &t.cost.cupti_fraction, &t.cost.expected_least,
        &t.cost.expected_most, &t.cost.cupti_overhead_fraction})
    *share = 0.5;
  return t;
}

analysis::StepsReport FullSteps() {
  analysis::StepsReport s;
  s.errors = analysis::StepErrors{.overlap_efficiency = 0.5};
  s.source = s.phase_source = kText;
  s.overlap_efficiency = s.hidden_comm_share = 0.5;
  s.phases = {{.name = kText, .time_ns = {}, .idle_ns = {}}};
  s.records = {model::StepRecord{}};
  return s;
}

analysis::CollectiveReport FullCollective() {
  analysis::CollectiveReport c;
  c.op = c.comm = c.comm_name = kText;
  c.comm_ranks = c.heard_ranks = 1;
  c.size_bytes = 1;
  c.ran_as = {{.algorithm = kText, .protocol = kText}};
  for (std::optional<double>* rate :
       {&c.algbw, &c.busbw, &c.peak_share, &c.transfer_busbw, &c.transfer_mean_ns})
    *rate = 0.5;
  c.wait_ns = 1;
  c.steady.compared = c.steady.steps = 1;
  return c;
}

analysis::KernelReport FullKernel() {
  analysis::KernelReport k;
  k.name = k.kernel_class = kText;
  k.steady = analysis::SteadyKernel{};
  return k;
}

analysis::PhaseReport FullPhase() {
  analysis::PhaseReport p;
  p.name = p.path = kText;
  return p;
}

std::optional<analysis::MemoryTrend> FullTrend() {
  return analysis::MemoryTrend{.growth_bytes_per_step = 1.0, .steps_until_full = 1.0};
}

std::optional<analysis::MemoryBySteps> FullBySteps() {
  return analysis::MemoryBySteps{.step_peak_bytes = {}, .phases = {{.name = kText}}};
}

std::optional<analysis::MemoryLifetimesReport> FullLifetimes() {
  analysis::MemoryLifetimesReport l;
  l.why_not = kText;
  l.parts = {{.lifetime = kText}};
  l.holdings = {{.what = kText, .lifetime = kText, .bytes = 1, .evidence = kText}};
  l.growth = {{.size_bytes = 1, .phase = kText}};
  return l;
}

void FillMemory(analysis::RankReport& r) {
  analysis::MemoryReport kind;
  kind.high_water_bytes = kind.high_water_at_ns = 1;
  kind.high_water_range = kind.high_water_path = kText;
  kind.largest = {{.bytes = 1, .path = kText}};
  r.memory = {{kAnyKey, kind}};
  analysis::DeviceMemoryReport device;
  device.capacity_bytes = 1;
  device.high_water_at_ns = 1;
  device.at_high_water = {{kAnyKey, 1}};
  device.trend = FullTrend();
  device.by_step = FullBySteps();
  device.lifetimes = FullLifetimes();
  r.device_memory = {device};
  analysis::PytorchMemoryReport pytorch;
  pytorch.fragmentation_bytes = 1;
  pytorch.refusals = 1;
  pytorch.last_refused_path = kText;
  pytorch.trend = FullTrend();
  pytorch.by_step = FullBySteps();
  pytorch.lifetimes = FullLifetimes();
  r.pytorch_memory = {pytorch};
  r.pools = {{.used_high_water_at_ns = 1, .reserved_high_water_at_ns = 1}};
  analysis::RefusalReport refusal;
  refusal.memory = refusal.path = kText;
  refusal.live = {{kAnyKey, 1}};
  refusal.capacity_bytes = refusal.free_at_most_bytes = 1;
  r.out_of_memory = {refusal};
}

analysis::RankReport FullRank() {
  analysis::RankReport r;
  r.rank = 0;
  r.label = r.host = kText;
  r.device = 0;
  r.devices = {0};
  r.copies = {{kAnyKey, {}}};
  r.syncs = {{kAnyKey, {}}};
  FillMemory(r);
  r.collectives = {FullCollective()};
  r.phases = {FullPhase()};
  r.top_kernels = {FullKernel()};
  r.steps = FullSteps();
  r.end = FullHalt();
  r.stops = {{.halt = FullHalt()}};
  r.host_load = FullLoad();
  r.caused = FullWait();
  r.step_means.steps = 1;
  return r;
}

analysis::Straggler FullStraggler() {
  analysis::Straggler s;
  s.host = s.kernel = kText;
  s.device = 0;
  s.caused = FullWait();
  s.late_steps = s.compared_steps = 1;
  s.stretch = {1, 2};
  s.since_step = 1;
  s.load = s.usual_load = FullLoad();
  return s;
}

analysis::Hang FullHang() {
  const analysis::CallShape shape{.op = kText, .datatype = kText, .root = 0};
  analysis::HangRank rank;
  rank.rank = 0;
  for (std::string* text :
       {&rank.label, &rank.host, &rank.last_op, &rank.last_comm, &rank.blocked_in, &rank.open_range})
    *text = kText;
  rank.shape = shape;
  for (std::optional<uint64_t>* ago :
       {&rank.last_issue_ago_ns, &rank.last_done_ago_ns, &rank.last_launch_ago_ns, &rank.silent_ns})
    *ago = 1;
  rank.replays = analysis::HangRankReplays{.launches = 1, .last_launch_ago_ns = 1};
  rank.halt = FullHalt();
  rank.load = FullLoad();
  analysis::Hang hang;
  hang.comm = hang.comm_name = kText;
  hang.comm_ranks = 1;
  hang.transfer =
      analysis::HangTransfer{.rank = 0, .label = kText, .peer = 0, .peer_label = kText, .counterpart = kText};
  hang.replay = analysis::HangReplay{};
  hang.shape = shape;
  hang.ranks = {rank};
  hang.waiting = {{.label = kText, .host = kText}};
  return hang;
}

analysis::CommunicationReport FullCommunication() {
  analysis::CommunicationReport c;
  c.step_ns = 1;
  c.link_peak = 0.5;
  c.link_peak_source = kText;
  analysis::NetworkReport network;
  network.gbytes_per_s = network.reference_gbytes_per_s = 0.5;
  network.slow = analysis::NetworkReport::Slow{.op = kText, .since_step = 1, .hosts = {kText}};
  c.network = network;
  c.pattern = {kText};
  c.bytes_share = {{kAnyKey, 0.5}};
  analysis::Buckets buckets;
  buckets.op = buckets.comm = kText;
  buckets.sizes = {{.busbw = 0.5}};
  buckets.order = {{.hidden_share = 0.5, .after_backward_ns = 0.5}};
  c.buckets = buckets;
  c.bucket_advice = analysis::BucketAdvice{};
  c.forward = {{.op = kText}};
  c.exposed = {{.op = kText}};
  c.pipeline = analysis::Pipeline{};
  return c;
}

analysis::CommunicatorReport FullCommunicator() {
  analysis::CommunicatorReport c;
  c.comm = c.name = c.ran_as = c.parent = c.made_by = kText;
  c.ranks = 1;
  c.members = {0};
  c.ranks_of_host = {{kText, 1}};
  c.states = {{kAnyKey, 1}};
  c.made_ns = 1;
  c.operations = {{kAnyKey, {}}};
  return c;
}

analysis::LinkModel FullLink() {
  analysis::LinkModel m;
  m.op = m.comm = kText;
  m.alpha_ns = m.beta_gbytes_per_s = 1;
  m.hop_alpha_ns = m.hop_alpha_error_ns = 0.5;
  m.sizes = {
      {.size_bytes = 1, .bus_bytes = 1, .calls = 1, .measured_ns = 1, .predicted_ns = 1, .tree_ns = 0.5}};
  return m;
}

std::optional<analysis::MemoryLifetimesReport> BareLifetimes() {
  analysis::MemoryLifetimesReport l;
  l.parts.resize(1);
  l.holdings.resize(1);
  l.growth.resize(1);
  return l;
}

std::optional<analysis::MemoryBySteps> BareBySteps() {
  analysis::MemoryBySteps by_step;
  by_step.phases.resize(1);
  return by_step;
}

analysis::RankReport BareRank() {
  analysis::RankReport r;
  r.memory[kAnyKey].largest.resize(1);
  r.device_memory.resize(1);
  r.device_memory[0].trend = analysis::MemoryTrend{};
  r.device_memory[0].by_step = BareBySteps();
  r.device_memory[0].lifetimes = BareLifetimes();
  r.pytorch_memory.resize(1);
  r.pytorch_memory[0].trend = analysis::MemoryTrend{};
  r.pytorch_memory[0].by_step = BareBySteps();
  r.pytorch_memory[0].lifetimes = BareLifetimes();
  r.pools.resize(1);
  r.out_of_memory.resize(1);
  r.collectives.resize(1);
  r.collectives[0].steady.compared = 1;
  r.phases.resize(1);
  r.top_kernels.resize(1);
  r.steps = analysis::StepsReport{};
  r.steps->errors = analysis::StepErrors{};
  r.end = analysis::Halt{};
  r.stops.resize(1);
  r.host_load.observed_s = 1;
  r.caused.pairs = 1;
  return r;
}

analysis::Hang BareHang() {
  analysis::Hang hang;
  hang.transfer = analysis::HangTransfer{};
  hang.replay = analysis::HangReplay{};
  hang.ranks.resize(2);
  hang.ranks[0].shape = analysis::CallShape{};
  hang.ranks[0].last_op = kText;
  hang.ranks[0].replays = analysis::HangRankReplays{};
  hang.ranks[0].halt = analysis::Halt{};
  hang.ranks[0].load.observed_s = 1;
  hang.waiting.resize(1);
  return hang;
}

analysis::CommunicationReport BareCommunication() {
  analysis::CommunicationReport c;
  c.network = analysis::NetworkReport{};
  c.network->slow = analysis::NetworkReport::Slow{};
  c.buckets = analysis::Buckets{};
  c.buckets->sizes.resize(1);
  c.buckets->order.resize(1);
  c.forward.resize(1);
  c.exposed.resize(1);
  return c;
}

}  // namespace

analysis::Report BareReport() {
  analysis::Report report;
  report.conditions.devices.resize(1);
  report.conditions.steps_recorded = analysis::StepsRecorded{};
  report.ranks = {BareRank()};
  report.steps = analysis::StepsReport{};
  report.steps->errors = analysis::StepErrors{};
  report.collectives.resize(1);
  report.collectives[0].steady.compared = 1;
  report.phases.resize(1);
  report.top_kernels.resize(1);
  report.compute.optimizer_traffic = analysis::OptimizerTraffic{};
  report.compute.pageable[kAnyKey] = {};
  report.utilisation.asked = true;
  report.stragglers.resize(1);
  report.stragglers[0].caused.pairs = 1;
  report.stragglers[0].load.observed_s = report.stragglers[0].usual_load.observed_s = 1;
  report.long_steps = analysis::LongStepsReport{};
  report.long_steps->steps.resize(1);
  report.clock.ranks.resize(1);
  report.link_models.resize(1);
  report.link_models[0].sizes.resize(1);
  report.communication = BareCommunication();
  report.communicators.resize(1);
  report.hangs = {BareHang()};
  report.past_hangs.resize(1);
  report.past_hangs[0].hang = BareHang();
  report.findings.resize(1);
  return report;
}

analysis::Report SparseReport() {
  analysis::RankReport rank;
  rank.memory[kAnyKey] = {};
  rank.device_memory.resize(1);
  rank.pytorch_memory.resize(1);
  rank.pools.resize(1);
  rank.out_of_memory.resize(1);
  rank.collectives.resize(1);
  rank.top_kernels.resize(1);
  rank.steps = analysis::StepsReport{};
  analysis::Hang hang;
  hang.ranks.resize(1);
  analysis::Report report;
  report.ranks = {rank, {}};
  report.steps = analysis::StepsReport{};
  report.collectives.resize(1);
  report.top_kernels.resize(1);
  report.stragglers.resize(1);
  report.communication.network = analysis::NetworkReport{};
  report.hangs = {hang};
  report.past_hangs.resize(1);
  report.past_hangs[0].hang = hang;
  return report;
}

analysis::Report FullReport() {
  analysis::Report report;
  report.conditions = FullConditions();
  report.trust = FullTrust();
  report.ranks = {FullRank(), FullRank()};  // between which there is a spread
  report.steps = FullSteps();
  report.collectives = {FullCollective()};
  report.phases = {FullPhase()};
  report.top_kernels = {FullKernel()};
  report.compute.optimizer_traffic = analysis::OptimizerTraffic{.peak_gbytes_per_s = 0.5};
  report.compute.classes = {{.name = kText}};
  report.compute.pageable = {{kAnyKey, {.pinned_gbytes_per_s = 0.5}}};
  report.compute.host_peak_gbytes_per_s = 0.5;
  report.utilisation.asked = true;
  report.utilisation.formula = report.utilisation.type = report.utilisation.peak_source =
      report.utilisation.missing = kText;
  report.utilisation.peak_flops = report.utilisation.mfu = report.utilisation.hfu = 0.5;
  report.stragglers = {FullStraggler()};
  report.long_steps = analysis::LongStepsReport{.steps = {{.last_rank = 0}}};
  report.clock = {.reference = kText,
                  .ranks = {{.label = kText, .rank = 0, .host = kText, .drift_ppm = 0.5}}};
  report.link_models = {FullLink()};
  report.communication = FullCommunication();
  report.communicators = {FullCommunicator()};
  report.hangs = {FullHang()};
  report.past_hangs = {{.hang = FullHang()}};
  report.findings = {{.statement = kText,
                      .evidence = kText,
                      .advice = kText,
                      .cost_ns_per_step = 0.5,
                      .about = {.ranks = {1}, .first_step = 1, .last_step = 1, .steps = {1}},
                      .id = kText}};
  return report;
}

}  // namespace gpuprobe::render
