#include "tests/collector/simulate/truth.h"

#include <algorithm>

#include "collector/simulate/step_programs.h"
#include "nlohmann/json.hpp"
#include "tests/collector/simulate/expected_findings.h"

namespace gpuprobe::simulate {
namespace {

// In the order of Phase.
constexpr const char* kPhases[] = {"other",    "input",     "h2d",          "forward",
                                   "backward", "optimizer", "communication"};

constexpr size_t Index(Phase phase) { return static_cast<size_t>(phase); }

// The phase of idle time that ends with work of this phase. The copy of a step's input belongs to forward,
// but where ranges say what does, and is in none.
Phase WaitingFor(Phase work, bool annotated) {
  if (work == Phase::kCopyIn && !annotated) return Phase::kForward;
  const bool computes = work == Phase::kForward || work == Phase::kBackward || work == Phase::kOptimizer;
  return computes ? work : Phase::kOther;
}

bool IsCompute(const DeviceWork& work) {
  return work.kind == DeviceWork::Kind::kCompute || work.kind == DeviceWork::Kind::kMemset;
}

template <typename Filter>
Intervals IntervalsOf(const std::vector<DeviceWork>& work, Filter wanted) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (const DeviceWork& w : work) {
    if (wanted(w)) parts.emplace_back(w.start_ns, w.end_ns);
  }
  return Intervals(std::move(parts));
}

// nccl-tests: algorithm bandwidth to bus bandwidth, and the bytes that the former is computed from.
double BusBytes(CollectiveOp op, uint64_t bytes, double ranks) {
  const auto argument = static_cast<double>(bytes);
  switch (op) {
    case CollectiveOp::kAllReduce:
      return argument * 2 * (ranks - 1) / ranks;
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
      return argument * (ranks - 1);
    case CollectiveOp::kBroadcast:
    case CollectiveOp::kSend:
    case CollectiveOp::kRecv:
      break;
  }
  return argument;
}

}  // namespace

Truth::Truth(const TrainingJob& job) : job_(job), ranks_(static_cast<size_t>(job.ranks)) {}

void Truth::OnStep(int rank, int step) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.segments.push_back({.step = step, .work = {}});
  // A segment's work is known only with the next segment, because work launched later may run earlier, on
  // another stream.
  if (r.segments.size() > 2) Measure(r);
}

void Truth::OnDeviceWork(int rank, const DeviceWork& work) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.segments.back().work.push_back(work);
}

void Truth::OnHostInterval(int rank, HostCause cause, int64_t start_ns, int64_t end_ns) {
  ranks_[static_cast<size_t>(rank)].host.push_back({cause, start_ns, end_ns});
}

void Truth::OnCall(const FinishedCall& call) {
  int64_t last_ns = 0;
  int last_rank = 0;
  for (const auto& [rank, arrival_ns] : call.arrivals) {
    if (arrival_ns <= last_ns) continue;
    last_ns = arrival_ns;
    last_rank = rank;
  }
  int64_t waited_ns = 0;
  int64_t rank_ns = 0;
  for (const auto& [rank, arrival_ns] : call.arrivals) {
    waited_ns += last_ns - arrival_ns;
    rank_ns += call.end_ns - arrival_ns;
    ranks_[static_cast<size_t>(rank)].waited[call.step] += last_ns - arrival_ns;
  }
  ranks_[static_cast<size_t>(last_rank)].blame[call.step] += waited_ns;
  if (call.step < job_.warmup.steps) return;
  Calls& calls = calls_[{call.communicator, call.op, call.bytes}];
  ++calls.calls;
  calls.transfer_ns += call.end_ns - last_ns;
  calls.rank_ns += rank_ns;
  calls.kernels += call.arrivals.size();
}

void Truth::Finish() {
  for (Rank& rank : ranks_) {
    while (!rank.segments.empty()) Measure(rank);
  }
}

void Truth::Measure(Rank& rank) {
  const Segment& segment = rank.segments.front();
  Step step{.step = segment.step};
  step.start_ns = rank.end_ns;
  step.end_ns = rank.end_ns;
  if (rank.end_ns < 0) {
    step.start_ns = INT64_MAX;
    for (const DeviceWork& work : segment.work) step.start_ns = std::min(step.start_ns, work.start_ns);
  }
  for (const DeviceWork& work : segment.work) step.end_ns = std::max(step.end_ns, work.end_ns);
  std::vector<DeviceWork> work;
  for (const Segment& s : rank.segments) work.insert(work.end(), s.work.begin(), s.work.end());

  const Intervals window({{step.start_ns, step.end_ns}});
  const Intervals compute = IntervalsOf(work, IsCompute).Within(window);
  const Intervals comm = IntervalsOf(work, [](const DeviceWork& w) {
                           return w.kind == DeviceWork::Kind::kCollective;
                         }).Within(window);
  const Intervals copies =
      IntervalsOf(work, [](const DeviceWork& w) { return w.kind == DeviceWork::Kind::kCopy; }).Within(window);
  const Intervals exposed = comm.Without(compute);
  const Intervals copying = copies.Without(compute).Without(comm);
  const Intervals idle = window.Without(compute).Without(comm).Without(copies);
  step.compute_ns = compute.Length();
  step.comm_ns = comm.Length();
  step.exposed_comm_ns = exposed.Length();
  step.copy_ns = copying.Length();
  step.idle_ns = idle.Length();
  MeasureIdle(rank, idle, work, step);
  for (const Phase phase : {Phase::kOther, Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    step.phase_ns[Index(phase)] +=
        IntervalsOf(work, [&](const DeviceWork& w) { return IsCompute(w) && w.phase == phase; })
            .Within(window)
            .Length();
  }
  step.phase_ns[Index(Phase::kCommunication)] += step.exposed_comm_ns;
  const int64_t copied_in =
      IntervalsOf(
          work,
          [](const DeviceWork& w) { return w.kind == DeviceWork::Kind::kCopy && w.phase == Phase::kCopyIn; })
          .Within(copying)
          .Length();
  step.phase_ns[Index(Phase::kCopyIn)] += copied_in;
  step.phase_ns[Index(Phase::kInput)] += step.input_ns;
  step.phase_ns[Index(Phase::kOther)] += step.copy_ns - copied_in;

  if (step.step >= job_.warmup.steps) MeasureCalls(segment, compute, step);
  rank.end_ns = step.end_ns;
  rank.steps.push_back(step);
  rank.segments.pop_front();
  while (!rank.host.empty() && rank.host.front().end_ns < step.start_ns) rank.host.pop_front();
}

void Truth::MeasureCalls(const Segment& segment, const Intervals& compute, const Step& step) {
  const DeviceWork* backward = nullptr;
  std::vector<const DeviceWork*> data;
  for (const DeviceWork& w : segment.work) {
    if (w.phase == Phase::kBackward && IsCompute(w) &&
        (backward == nullptr || w.launch_ns < backward->launch_ns))
      backward = &w;
    if (w.kind == DeviceWork::Kind::kCollective && w.stream == kDataStream) data.push_back(&w);
  }
  if (backward == nullptr) return;
  std::stable_sort(data.begin(), data.end(),
                   [](const DeviceWork* a, const DeviceWork* b) { return a->launch_ns < b->launch_ns; });
  const auto hidden = [&compute](const DeviceWork& w) {
    return compute.Within(Intervals({{w.start_ns, w.end_ns}})).Length();
  };
  if (places_.size() < data.size()) places_.resize(data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    Place& place = places_[i];
    ++place.steps;
    place.after_backward_ns += data[i]->start_ns - backward->start_ns;
    place.time_ns += data[i]->end_ns - data[i]->start_ns;
    place.hidden_ns += hidden(*data[i]);
  }
  forward_compute_ns_ +=
      IntervalsOf(segment.work,
                  [](const DeviceWork& w) { return IsCompute(w) && w.phase == Phase::kForward; })
          .Within(Intervals({{step.start_ns, step.end_ns}}))
          .Length();
  for (const DeviceWork& w : segment.work) {
    if (w.kind == DeviceWork::Kind::kCollective && w.launch_ns < backward->launch_ns)
      forward_exposed_ns_ += w.end_ns - w.start_ns - hidden(w);
  }
}

void Truth::MeasureIdle(const Rank& rank, const Intervals& idle, const std::vector<DeviceWork>& work,
                        Step& step) const {
  std::vector<std::tuple<int64_t, int64_t, Phase>> launches;  // by start of the work
  launches.reserve(work.size());
  for (const DeviceWork& w : work) launches.emplace_back(w.start_ns, w.launch_ns, w.phase);
  std::sort(launches.begin(), launches.end());
  for (const auto& [start, end] : idle.parts()) {
    const auto next =
        std::lower_bound(launches.begin(), launches.end(), std::tuple(end, INT64_MIN, Phase::kOther));
    const int64_t launch = next == launches.end() ? end : std::clamp(std::get<1>(*next), start, end);
    int64_t& awaited = step.phase_ns[Index(
        next == launches.end() ? Phase::kOther : WaitingFor(std::get<2>(*next), job_.nvtx))];
    awaited += end - start;
    step.launch_gap_ns += end - launch;
    if (launch == start) continue;
    bool blocked = false;
    std::vector<std::pair<int64_t, int64_t>> waiting;
    for (const HostInterval& host : rank.host) {
      if (host.cause == HostCause::kSync && host.start_ns <= start && host.end_ns > start) blocked = true;
      if (host.cause == HostCause::kInput) waiting.emplace_back(host.start_ns, host.end_ns);
    }
    const int64_t input = Intervals(std::move(waiting)).Within(Intervals({{start, launch}})).Length();
    const bool is_input = 2 * input > launch - start;
    (is_input ? step.input_ns : blocked ? step.sync_ns : step.host_bound_ns) += launch - start;
    if (is_input) awaited -= launch - start;
  }
}

double Truth::MeanStepNs() const {
  double ns = 0;
  double steps = 0;
  for (const Rank& rank : ranks_) {
    for (const Step& step : rank.steps) {
      if (step.step < job_.warmup.steps) continue;
      ns += static_cast<double>(step.end_ns - step.start_ns);
      ++steps;
    }
  }
  return steps > 0 ? ns / steps : 0;
}

double Truth::StepOfEqualRanksNs(const Simulation& simulation) const {
  TrainingJob job = job_;
  job.slow.by = SlowBy::kNothing;
  job.input.spread = 0;
  Truth truth(job);
  Simulation without(job, simulation.options(), &truth);
  if (!without.Run([](int, int64_t, std::string_view, bool) { return absl::OkStatus(); }).ok()) return 0;
  truth.Finish();
  return truth.MeanStepNs();
}

std::string Truth::Json(std::string_view scenario, const Simulation& simulation) const {
  nlohmann::ordered_json out;
  const Expected& expected = ExpectedOf(scenario);
  out["scenario"] = scenario;
  out["findings"] = {{"first", expected.first}, {"further", expected.further}};
  out["ranks"] = job_.ranks;
  out["warmup_steps"] = job_.warmup.steps;
  out["hung"] = simulation.hung();
  if (job_.hang.by != HangBy::kNothing) {
    out["hang"] = {{"kind", job_.hang.by == HangBy::kMissingRank ? "missing-rank"
                            : job_.hang.by == HangBy::kMismatch  ? "mismatch"
                                                                 : "all-issued"},
                   {"rank", job_.hang.rank},
                   {"step", job_.hang.step}};
  }
  if (job_.slow.by != SlowBy::kNothing) {
    out["slow"] = {{"rank", job_.slow.rank},
                   {"ranks", job_.slow.ranks},
                   {"factor", job_.slow.factor},
                   {"steps", nlohmann::json::array()}};
    for (int step = job_.warmup.steps; step < job_.steps; ++step) {
      if (IsSlow(job_, job_.slow.rank, step)) out["slow"]["steps"].push_back(step);
    }
  }
  if (job_.slow.by != SlowBy::kNothing || job_.input.spread > 0)
    out["step_of_equal_ranks_ns"] = StepOfEqualRanksNs(simulation);
  if (expected.parameters > 0)
    out["model_work"] = {{"parameters", expected.parameters}, {"tokens_per_step", expected.tokens_per_step}};
  if (job_.other.ranks > 0) {
    out["other"] = {{"ranks", job_.other.ranks}, {"device", job_.other.device}, {"nccl", job_.other.nccl}};
  }
  out["memory"] = {
      {"leak_bytes_per_step", job_.memory.leak_bytes},
      {"held_bytes", job_.held_bytes()},
      {"activation_bytes", job_.memory.activation_bytes},
      {"fragment_bytes", job_.memory.fragment_bytes},
      {"weight_bytes", job_.weight_bytes()},
      {"frozen_bytes", job_.memory.frozen_bytes},
      {"optimizer_bytes", job_.optimizer_bytes()},
      {"layers", job_.layers},
      {"layer_gradient_bytes", job_.gradient_bytes() / static_cast<uint64_t>(job_.layers / job_.pipeline)},
      {"tensors", job_.memory.tensors},
      {"refused", job_.memory.refuses_in_step >= 0}};
  if (job_.pipeline > 1) {
    const double p = job_.pipeline;
    const double m = job_.microbatches;
    out["pipeline"] = {{"stages", p}, {"microbatches", m}, {"ideal_bubble", (p - 1) / (m + p - 1)}};
  }
  out["link"] = {{"alpha_ns", job_.link.alpha_ns}, {"beta_gbytes_per_s", job_.link.beta_bytes_per_ns}};
  for (const auto& [key, calls] : calls_) {
    const auto& [number, op, bytes] = key;
    const NodeCommunicator& communicator = simulation.communicators()[static_cast<size_t>(number)];
    const auto ranks = static_cast<double>(communicator.members.size());
    const double bus = BusBytes(op, bytes, ranks);
    out["collectives"].push_back(
        {{"comm", communicator.hash},
         {"kind", communicator.name},
         {"op", std::string(NameOf(op))},
         {"argument_bytes", bytes},
         {"ranks", communicator.members.size()},
         {"calls", calls.calls},
         {"transfer_ns", static_cast<double>(calls.transfer_ns) / static_cast<double>(calls.calls)},
         {"time_ns", static_cast<double>(calls.rank_ns) / static_cast<double>(calls.kernels)},
         {"busbw_gbytes_per_s",
          bus * static_cast<double>(calls.kernels) / static_cast<double>(calls.rank_ns)},
         {"transfer_busbw_gbytes_per_s",
          bus * static_cast<double>(calls.calls) / static_cast<double>(calls.transfer_ns)}});
  }
  for (const Place& place : places_) {
    const auto steps = static_cast<double>(place.steps);
    out["data_calls"].push_back({{"after_backward_ns", static_cast<double>(place.after_backward_ns) / steps},
                                 {"time_ns", static_cast<double>(place.time_ns) / steps},
                                 {"hidden_ns", static_cast<double>(place.hidden_ns) / steps}});
  }
  const int64_t forward_ns = forward_compute_ns_ + forward_exposed_ns_;
  out["forward_communication_share"] =
      forward_ns == 0 ? 0.0 : static_cast<double>(forward_exposed_ns_) / static_cast<double>(forward_ns);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    const RankClock& clock = simulation.streams()[i].description().clock;
    nlohmann::ordered_json shown = {{"rank", i},
                                    {"clock_offset_ns", clock.offset_ns},
                                    {"clock_drift", clock.drift},
                                    {"clock_step_ns", clock.step_ns}};
    const auto sum = [&](const std::map<int, int64_t>& by_step) {
      int64_t all = 0;
      for (const auto& [step, ns] : by_step) all += step >= job_.warmup.steps ? ns : 0;
      return all;
    };
    const RankSettings& settings = simulation.settings(static_cast<int>(i));
    shown["pinned_gbytes_per_s"] = settings.pcie_bytes_per_ns;
    shown["blame_ns"] = sum(rank.blame);
    shown["waited_ns"] = sum(rank.waited);
    shown["blame_by_step_ns"] = rank.blame;
    for (const Step& step : rank.steps) {
      nlohmann::ordered_json row = {{"start_ns", clock.Realtime(step.start_ns)},
                                    {"end_ns", clock.Realtime(step.end_ns)},
                                    {"total_ns", step.end_ns - step.start_ns}};
      if (step.step < 0) {
        row["what"] = step.step == Simulation::kSetup ? "setup" : "evaluation";
        shown["between"].push_back(row);
        continue;
      }
      row["step"] = step.step;
      row["compute_ns"] = step.compute_ns;
      row["comm_ns"] = step.comm_ns;
      row["exposed_comm_ns"] = step.exposed_comm_ns;
      row["copy_ns"] = step.copy_ns;
      row["idle_ns"] = step.idle_ns;
      row["host_bound_ns"] = step.host_bound_ns;
      row["input_ns"] = step.input_ns;
      row["sync_ns"] = step.sync_ns;
      row["launch_gap_ns"] = step.launch_gap_ns;
      for (size_t p = 0; p < step.phase_ns.size(); ++p) row["phase_ns"][kPhases[p]] = step.phase_ns[p];
      const double joint = static_cast<double>(step.compute_ns + step.exposed_comm_ns);
      const auto compute = static_cast<double>(step.compute_ns);
      const auto comm = static_cast<double>(step.comm_ns);
      const double best = compute + comm - std::max(compute, comm);
      row["overlap_efficiency"] = best == 0 ? 1.0 : (compute + comm - joint) / best;
      shown["steps"].push_back(row);
    }
    out["by_rank"].push_back(shown);
  }
  return out.dump(1);
}

}  // namespace gpuprobe::simulate
