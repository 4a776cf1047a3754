// What report.json consists of, as `gpuprobe help report-types` prints it.

export interface DeviceCondition {
  host: string; ordinal: number; name: string; uuid: string; memory_bytes: number; memory_gbytes_per_s: number | null;
}
export interface SharedDevice {
  host: string; ordinal: number; ranks: number[]; processes: string[];
}
export interface StrayMemoryUser {
  process: string; rank: number | null; peak_bytes: number; held_bytes: number;
}
export interface StrayMemory {
  host: string; ordinal: number; owner: string; users: StrayMemoryUser[];
}
export interface IdleDevice {
  host: string; ordinal: number; peak_bytes: number; held_bytes: number; kernels: number;
}
export interface DuplicateRank {
  rank: number; pids: number[];
}
export interface StepsRecorded {
  marker: string; start: number; stop: number | null; every: number; begun: number; recorded: number;
}
export interface CapturedWindow {
  first_step: number | null; last_step: number | null; start_ns: number; end_ns: number; ranks: number[];
}
export interface OnDemand {
  level: string; steps_by: string | null; windows: CapturedWindow[];
}
export interface Conditions {
  job: string; hosts: string[]; step_marker: string | null; devices: DeviceCondition[]; devices_used: number; differing: string[];
  shared_devices: SharedDevice[]; stray_memory: StrayMemory[]; idle_devices: IdleDevice[]; duplicate_ranks: DuplicateRank[];
  cuda_driver: string | null; cuda_runtime: string | null; cupti: string | null; nccl: string | null; probe_version: string;
  collector_version: string; command_line: string[]; start_ns: number; duration_ns: number; world_size: number | null; ranks_heard: number;
  ranks_expected: number | null; steps_recorded: StepsRecorded | null; on_demand: OnDemand | null;
}
export interface CuptiDefect {
  defect: string; left_out: string; source: string;
}
export interface OwnCostOverhead {
  what: string; count: number; total_ns: number;
}
export interface OwnCost {
  own_fraction: number | null; own_sampling: number; launches: number; launch_fraction: number | null; expected_cupti_least: number | null;
  expected_cupti_most: number | null; cupti_overhead_fraction: number | null; overheads: OwnCostOverhead[]; memory_peak_bytes: number;
  memory_limit_bytes: number;
}
export interface CutOff {
  who: string; last_data_ns: number; by: 'process' | 'collector';
}
export interface Attached {
  who: string; ran_ns: number; earlier_allocations: number; earlier_communicators: number;
}
export interface Trust {
  records: number; lost: Record<string, number>; coverage: number | null; outside_window: number; unknown_kinds: Record<string, number>;
  unknown_functions: Record<string, number>; other_unknown_functions: number;
  detail: {level: 'full' | 'graphs' | 'ended' | 'off'; reductions: number; reduced_ns: number}; yielded: {times: number; ns: number};
  cupti_defects: CuptiDefect[]; timing_source: 'none' | 'cupti_activity' | 'mixed'; overhead_fraction: number | null; cost: OwnCost;
  host_time_error_ns: number; clock_step_ns: number; device_clock_ahead_ns: number; batches_missing: number; recorded_elsewhere: number;
  device_records_unattributed: number; device_records_late: number; invalid_times: number; range_pops_without_push: number;
  range_ends_without_start: number; ranges_unclosed: number; misnamed_kernels: number; other_names: number; unrecorded_frames: number;
  detail_since_ns: number | null; ranks_without_detail: number; cut_off: CutOff[]; attached: Attached[]; exit_incomplete: string[];
  damaged_logs: string[];
}
export interface StepErrors {
  total_ns: number; compute_ns: number; comm_ns: number; exposed_comm_ns: number; copy_ns: number; idle_ns: number; overlap_efficiency: number | null;
}
export interface Statistics {
  count: number; total: number; mean: number; std: number; min: number; p50: number; p95: number; p99: number; max: number; quantiles_exact: boolean;
}
export interface StepsPhase {
  name: 'input' | 'h2d' | 'forward' | 'backward' | 'optimizer' | 'communication' | 'other'; source: 'inferred' | 'nvtx' | 'mixed';
  time_ns: Statistics; idle_ns: Statistics;
}
export interface StepRecord {
  index: number; start_ns: number; end_ns: number; first_launch_ns: number; operations: number; compute_ns: number; comm_ns: number;
  exposed_comm_ns: number; copy_ns: number; idle_ns: number;
  idle: {host_bound_ns: number; input_ns: number; sync_ns: number; memory_ns: number; pause_ns: number; launch_gap_ns: number; unknown_ns: number};
  phases: {input: number; h2d: number; forward: number; backward: number; optimizer: number; communication: number; other: number}; warmup: boolean;
  incomplete: boolean; lost_operations: number; clock_step_ns: number; error_ns: number;
}
export interface Steps {
  count: number; warmup_count: number; behind: number; incomplete_count: number; estimated: boolean; errors: StepErrors | null;
  source: 'none' | 'marker' | 'nvtx' | 'collectives' | 'kernels' | 'optimizer'; confidence: number; time_ns: Statistics; compute_ns: Statistics;
  comm_ns: Statistics; exposed_comm_ns: Statistics; overlapped_comm_ns: Statistics; copy_ns: Statistics; idle_ns: Statistics;
  idle: {host_bound_ns: Statistics; input_ns: Statistics; sync_ns: Statistics; memory_ns: Statistics; pause_ns: Statistics; launch_gap_ns: Statistics; unknown_ns: Statistics};
  overlap_efficiency: number | null; hidden_comm_share: number | null; phases: StepsPhase[]; records?: StepRecord[];
}
export interface PythonFrame {
  function: string; file: string; line: number | null;
}
export interface HostPlace {
  no_cpu: boolean; lock_held: boolean; task: 'unknown' | 'loads' | 'saves' | 'compiles' | 'logs' | 'empties_cache' | 'optimizes'; call: string | null;
  memory_call: boolean; system_call: string | null; file: string | null; python: PythonFrame[]; other_lines: number; ns_per_step: number;
  share: number; samples: number; of_samples: number;
}
export interface HostTime {
  cause: 'host_bound' | 'input' | 'sync' | 'memory' | 'pause' | 'blocked' | 'between'; ns_per_step: number; not_sampled_ns_per_step: number;
  other_ns_per_step: number; samples: number; places: HostPlace[];
}
export interface Halt {
  kind: 'stopped' | 'traced' | 'frozen' | 'ended'; since_ns: number; signal: string | null; exit_code: number | null; out_of_memory: boolean;
  tracer: string | null;
}
export interface LastCall {
  communicator: string; ranks: number | null; operation: string; sequence: number; peer: number | null; bytes: number; entered_ns: number;
  left_ns: number | null; result: number; calls: number;
}
export interface LastThread {
  tid: number; main: boolean; ranges: string[]; ranges_not_known: number; launches: number; launched_ns: number | null;
}
export interface LastFailure {
  kind: string; call: string; code: number; bytes: number | null; at_ns: number;
}
export interface LastStack {
  at_ns: number; tid: number; call: string | null; python: PythonFrame[];
}
export interface LastMoments {
  ring: string; unreadable: string | null; job: string | null; attempt: string | null; host: string; rank: number | null; pid: number;
  process_start_ns: number | null; seen_ns: number; ended_ns: number | null; collector_ended: boolean; calls: LastCall[]; threads: LastThread[];
  failures: LastFailure[]; stack: LastStack | null; torn: number; threads_left_out: number; communicators_left_out: number;
}
export interface Stop {
  kind: 'stopped' | 'traced' | 'frozen' | 'ended'; since_ns: number; signal: string | null; exit_code: number | null; out_of_memory: boolean;
  tracer: string | null; until_ns: number;
}
export interface HostLoad {
  observed_s: number; cpus: number; waits_for_cpu: number; throttled: number; quota_cpus: number | null; major_faults_per_s: number;
  memory_stall: number; swapped_bytes: number; uninterruptible: number; waits_for: string | null; wait_channel: string | null;
}
export interface SummarisedLimitedClock {
  limit: 'unknown' | 'power_cap' | 'thermal' | 'hardware_thermal' | 'power_brake' | 'hardware_slowdown' | 'sync_boost' | 'clocks_set'; share: number;
}
export interface SummarisedGpuError {
  time_ns: number; xid: number;
}
export interface SummarisedGpuHealth {
  observed_s?: number; busy_s?: number; clock_mhz: number | null; lowest_clock_mhz: number | null; limited: SummarisedLimitedClock[];
  power_w: number | null; max_clock_mhz: number | null; power_limit_w: number | null; temperature_c: number | null; ecc_corrected: number;
  ecc_uncorrected: number; remap_pending?: boolean; remap_failed?: boolean; pcie_replays?: number; pcie_generation: number | null;
  pcie_lanes: number | null; max_pcie_generation?: number | null; max_pcie_lanes?: number | null; error_count: number; errors: SummarisedGpuError[];
}
export interface Copy {
  count: number; bytes: number; busy_ns: number; gbytes_per_s: number; small: number;
}
export interface Sync {
  count: number; duration_ns: number;
}
export interface SummarisedCausedWait {
  caused_ns?: number; caused_mean_ns?: number; caused_per_step_ns: number | null; caused_per_step_error_ns?: number | null; compared_share?: number;
  estimated_share?: number; pairs?: {compared: number; caused_ns: number; caused_per_step_ns: number | null; waited_ns: number} | null;
  waited_ns: number; last_arrivals?: number; steps?: number; steps_blamed?: number; first_blamed_step?: number | null;
  last_blamed_step?: number | null;
}
export interface SteadyCalls {
  compared_plans: number; plans_per_step: number | null; transfer_ns: number; transfer_std_ns: number; wait_ns: number;
}
export interface CollectiveRanAs {
  algorithm: string; protocol: string; channels: number; calls: number;
}
export interface Collective {
  op: string; comm: string; comm_name: string | null; comm_ranks: number | null; heard_ranks: number | null; fused: boolean; calls_per_plan: number;
  size_bytes: number | null; calls: number; failed_calls: number; untimed_calls: number; unlaunched_calls: number; bytes: number; time_ns: Statistics;
  algbw_gbytes_per_s: number | null; busbw_gbytes_per_s: number | null; transfer_busbw_gbytes_per_s: number | null; peak_share: number | null;
  wait_ns: number | null; transfer_mean_ns: number | null; compared_plans: number; steady: SteadyCalls | null; algorithm: string | null;
  protocol: string | null; channels: number | null; ran_as: CollectiveRanAs[];
}
export interface MemoryHeld {
  bytes: number; path: string | null;
}
export interface SummarisedMemory {
  high_water_bytes: number; high_water_error_bytes?: number; high_water_at_ns?: number | null; high_water_range?: string | null;
  high_water_path?: string | null; largest?: MemoryHeld[]; live_bytes?: number; allocations?: number; frees?: number; small?: number; failed?: number;
  largest_failed_bytes?: number;
}
export interface MemoryByStepsPhase {
  name: 'input' | 'h2d' | 'forward' | 'backward' | 'optimizer' | 'communication' | 'other'; steps: number; mean_peak_bytes: number;
  peak_bytes: number;
}
export interface MemoryBySteps {
  step_peak_bytes: Statistics; phases: MemoryByStepsPhase[];
}
export interface MemoryLifetimesPart {
  lifetime: 'before_steps' | 'first_steps' | 'first_steps_backward' | 'from_forward' | 'from_backward' | 'within_phase' | 'kept' | 'other' | 'nccl' | 'workspace';
  bytes: number;
}
export interface MemoryLifetimesHolding {
  what: string;
  lifetime: 'before_steps' | 'first_steps' | 'first_steps_backward' | 'from_forward' | 'from_backward' | 'within_phase' | 'kept' | 'other' | 'nccl' | 'workspace';
  bytes: number; evidence: string | null; inferred: boolean;
}
export interface MemoryLifetimesGrowth {
  size_bytes: number | null; phase: string; allocations_per_step: number; bytes_per_step: number;
}
export interface MemoryLifetimes {
  why_not: string | null; steps: number; peak_step: number; peak_at_ns: number; peak_bytes: number; parts: MemoryLifetimesPart[];
  from_backward_bytes_per_step: number; holdings: MemoryLifetimesHolding[]; growth: MemoryLifetimesGrowth[]; unknown_frees: number;
  missed_frees: number; not_followed: number;
}
export interface MemoryTrend {
  held_bytes: number; within_step_bytes: number; peak_bytes: number; growth_bytes_per_step: number | null; steps_until_full: number | null;
}
export interface PytorchMemory {
  device: number; allocated_bytes: number; reserved_bytes: number; peak_allocated_bytes: number; peak_reserved_bytes: number;
  fragmentation_bytes: number | null; refusals: number; last_refused_bytes: number | null; last_refused_path: string | null;
  last_refused_allocated_bytes: number | null; last_refused_reserved_bytes: number | null; by_step: MemoryBySteps | null;
  lifetimes: MemoryLifetimes | null; trend: MemoryTrend | null;
}
export interface Pool {
  pool: number; device: number; used_bytes: number; reserved_bytes: number; at_ns: number; used_high_water_bytes: number;
  used_high_water_at_ns: number | null; reserved_high_water_bytes: number; reserved_high_water_at_ns: number | null; release_threshold_bytes: number;
  trims: number; destroyed: boolean;
}
export interface DeviceMemory {
  device: number; source: string; capacity_bytes: number | null; high_water_bytes: number; high_water_error_bytes: number;
  high_water_at_ns: number | null; at_high_water: Record<string, number>; by_step: MemoryBySteps | null; lifetimes: MemoryLifetimes | null;
  trend: MemoryTrend | null; live_bytes: number;
}
export interface Refusal {
  time_ns: number; memory: 'unknown' | 'pageable' | 'host_pinned' | 'device' | 'managed' | 'pool' | 'array' | 'vmm' | 'graph'; asked_bytes: number;
  device: number; path: string | null; live_bytes: Record<string, number>; device_live_bytes: number; capacity_bytes: number | null;
  free_at_most_bytes: number | null;
}
export interface Phase {
  name: string; path: string; depth: number; time_ns: Statistics; host_time_ns: Statistics; unclosed: number;
}
export interface SteadyKernel {
  steps: number; calls_per_step: number; time_ns_per_step: number; std_ns: number;
}
export interface Kernel {
  name: string;
  class: 'gemm' | 'convolution' | 'attention' | 'normalisation' | 'elementwise' | 'reduction' | 'optimizer' | 'copy' | 'collective' | 'other';
  share: number; time_ns: Statistics; steady: SteadyKernel | null; grid: number[]; block: number[]; geometries: number;
}
export interface SummarisedStatistics {
  count?: number; total?: number; mean: number; std?: number; min?: number; p50?: number; p95?: number; p99?: number; max?: number;
  quantiles_exact?: boolean;
}
export interface SummarisedSteps {
  count: number; warmup_count?: number; behind?: number; incomplete_count?: number; estimated?: boolean; errors?: StepErrors | null;
  source?: 'none' | 'marker' | 'nvtx' | 'collectives' | 'kernels' | 'optimizer'; confidence?: number; time_ns: SummarisedStatistics;
  compute_ns: SummarisedStatistics; comm_ns?: Statistics; exposed_comm_ns: SummarisedStatistics; overlapped_comm_ns?: Statistics;
  copy_ns: SummarisedStatistics; idle_ns: SummarisedStatistics;
  idle?: {host_bound_ns: Statistics; input_ns: Statistics; sync_ns: Statistics; memory_ns: Statistics; pause_ns: Statistics; launch_gap_ns: Statistics; unknown_ns: Statistics};
  overlap_efficiency?: number | null; hidden_comm_share?: number | null; phases?: StepsPhase[]; records?: StepRecord[];
}
export interface SummarisedRank {
  rank: number | null; host: string; pid: number; device: number | null; gpu: number | null; devices?: number[]; start_ns?: number;
  duration_ns?: number; cut_off: boolean; end?: Halt | null; last_moments?: LastMoments | null; stops?: Stop[]; host_load?: HostLoad | null;
  gpu_health?: SummarisedGpuHealth | null;
  kernels: {count: number; busy_ns: number; total_ns?: number; from_graphs?: number; launch_delay_ns?: Statistics}; copies?: Record<string, Copy>;
  memsets?: {count: number; bytes: number; duration_ns: number}; syncs?: Record<string, Sync>; wait: SummarisedCausedWait;
  sync?: {count: number; blocked_ns: number}; collectives?: Collective[];
  memory: {[key: string]: SummarisedMemory | PytorchMemory[] | Pool[] | undefined; pytorch?: PytorchMemory[]; pools?: Pool[]};
  device_memory?: DeviceMemory[]; out_of_memory?: Refusal[]; phases?: Phase[]; top_kernels?: Kernel[]; steps: SummarisedSteps | null;
  host_time?: HostTime[];
}
export interface KernelClass {
  class: 'gemm' | 'convolution' | 'attention' | 'normalisation' | 'elementwise' | 'reduction' | 'optimizer' | 'copy' | 'collective' | 'other';
  calls: number; total_ns: number; share: number;
}
export interface OptimizerTraffic {
  bytes_per_step: number; time_ns_per_step: number; gbytes_per_s: number; peak_gbytes_per_s: number | null;
}
export interface Pageable {
  count: number; bytes: number; duration_ns: number; share: number; gbytes_per_s: number; pinned_gbytes_per_s: number | null; copies_per_step: number;
  ns_per_step: number;
}
export interface Compute {
  kernels: number; total_ns: number; classes: KernelClass[]; short_kernels: {below_ns: number; count: number; total_ns: number};
  optimizer_traffic: OptimizerTraffic | null; pageable_copies: Record<string, Pageable>; host_peak_gbytes_per_s: number | null;
}
export interface DriverCallStartup {
  calls: number; total_ns: number;
}
export interface DriverCall {
  function: string; calls: number; total_ns: number; failed: number; nccl_ns: number; longest_ns: number; longest_start_ns: number;
  startup: DriverCallStartup | null;
}
export interface Utilisation {
  mfu: number | null; hfu: number | null; flops_per_step: number; formula: string; type: 'bf16' | 'fp16' | 'tf32' | 'fp32' | 'fp8'; devices: number;
  peak_flops: number | null; peak_source: string | null; missing: string | null;
}
export interface CausedWait {
  caused_ns: number; caused_mean_ns: number; caused_per_step_ns: number | null; caused_per_step_error_ns: number | null; compared_share: number;
  estimated_share: number; pairs: {compared: number; caused_ns: number; caused_per_step_ns: number | null; waited_ns: number} | null;
  waited_ns: number; last_arrivals: number; steps: number; steps_blamed: number; first_blamed_step: number | null; last_blamed_step: number | null;
}
export interface LimitedClock {
  limit: 'unknown' | 'power_cap' | 'thermal' | 'hardware_thermal' | 'power_brake' | 'hardware_slowdown' | 'sync_boost' | 'clocks_set'; share: number;
}
export interface GpuError {
  time_ns: number; xid: number;
}
export interface GpuHealth {
  observed_s: number; busy_s: number; clock_mhz: number | null; lowest_clock_mhz: number | null; limited: LimitedClock[]; power_w: number | null;
  max_clock_mhz: number | null; power_limit_w: number | null; temperature_c: number | null; ecc_corrected: number; ecc_uncorrected: number;
  remap_pending: boolean; remap_failed: boolean; pcie_replays: number; pcie_generation: number | null; pcie_lanes: number | null;
  max_pcie_generation: number | null; max_pcie_lanes: number | null; error_count: number; errors: GpuError[];
}
export interface Stretch {
  first_step: number; last_step: number;
}
export interface Straggler {
  rank: number | null; gpu: string | null; host: string; device: number | null;
  cause: 'slow_kernels' | 'more_work' | 'late_launch' | 'late_input' | 'slow_copies' | 'unknown'; slowdown: number; extra_ns: number; kernel: string;
  kernel_mean_ns: number; kernel_elsewhere_ns: number; wait_ns: number; others_wait_mean_ns: number; cause_ns_per_step: number; work_ratio: number;
  kernel_calls_per_step: number; kernel_calls_elsewhere: number; wait: CausedWait; lost_ns_per_step: number; throughput_loss: number;
  persistent: boolean; host_load: HostLoad | null; usual_host_load: HostLoad | null; gpu_health?: GpuHealth | null;
  usual_gpu_health?: GpuHealth | null; late_steps: number | null; compared_steps: number; host_places?: HostPlace[]; since_step: number | null;
  stretch: Stretch | null;
}
export interface LongStepsContent {
  compute_ns: number; exposed_comm_ns: number; copy_ns: number; host_bound_ns: number; input_ns: number; sync_ns: number; memory_ns: number;
  pause_ns: number; pause_after_copy_ns: number;
}
export interface LongStepsStep {
  step: number; time_ns: number; last_rank: number | null; late_by_ns: number;
}
export interface LongSteps {
  compared_steps: number; usual_ns: number; cost_ns_per_step: number; period: number | null; content: LongStepsContent; host_places?: HostPlace[];
  steps: LongStepsStep[];
}
export interface GrowthLine {
  first: number; last: number;
}
export interface StepGrowthPart {
  part: 'total' | 'compute' | 'exposed_comm' | 'overlapped_comm' | 'copy' | 'idle' | 'host_bound' | 'input' | 'sync' | 'memory' | 'pause' | 'launch_gap';
  growth_ns: number;
}
export interface StepGrowth {
  steps: number; mean_ns: number; total_ns: GrowthLine; parts: StepGrowthPart[]; rank: number | null; kernel: string | null;
  kernel_ns: GrowthLine | null;
}
export interface ClockOffset {
  rank: number | null; host: string; offset_ns: number; drift_ppm: number | null; residual_ns: number; stepped_ns: number; samples: number;
}
export interface Clock {
  reference: string | null; ranks: ClockOffset[];
}
export interface NetworkSlow {
  op: string; size_bytes: number; comm_ranks: number; usual_ns: number; slow_ns: number; since_step: number | null; elsewhere_ns: number | null;
  elsewhere_slow_ns: number | null; hosts: string[];
}
export interface Network {
  hosts: number; gbytes_per_s: number | null; reference_gbytes_per_s: number | null; slow: NetworkSlow | null;
}
export interface BucketsSize {
  size_bytes: number; calls_per_step: number; transfer_ns: number; transfer_busbw_gbytes_per_s: number | null;
}
export interface CallTiming {
  place: number; size_bytes: number; after_backward_ns: number | null; time_ns: number; hidden_share: number | null;
}
export interface Buckets {
  op: string; comm: string; calls_per_step: number; bytes_per_step: number; transfer_ns_per_step: number; sizes: BucketsSize[]; order: CallTiming[];
}
export interface BucketAdvice {
  bucket_bytes: number; exposed_ns: number; fitted: boolean;
}
export interface ForwardCommunication {
  op: string; comm_ranks: number; calls_per_step: number; time_ns_per_step: number; exposed_ns_per_step: number; share_of_forward: number;
}
export interface ExposedCalls {
  op: string; comm_ranks: number;
  role: 'hybrid sharded data parallel (HSDP)' | 'fully sharded data parallel (FSDP, ZeRO stage 3)' | 'data parallel with sharded optimizer state (ZeRO stage 1 or 2)' | 'sharded data parallel (FSDP, ZeRO)' | 'tensor parallel' | 'tensor and sequence parallel' | 'expert parallel (all-to-all)' | 'context parallel (ring)' | 'pipeline' | 'data parallel (DDP)' | 'tensor or grouped data parallel' | null;
  in_forward: boolean; calls_per_step: number; time_ns_per_step: number; exposed_ns_per_step: number;
}
export interface Pipeline {
  stages: number; microbatches: number; bubble: number; least_bubble: number; collective_ns_per_step: number; exposed_collective_ns_per_step: number;
}
export interface LinkModelSize {
  size_bytes: number; calls: number; measured_ns: number; predicted_ns: number; tree_ns: number | null;
}
export interface LinkModel {
  op: string; comm: string; comm_ranks: number; alpha_ns: number; alpha_error_ns: number; beta_gbytes_per_s: number; beta_error_gbytes_per_s: number;
  r2: number; mean_relative_error: number; worst_relative_error: number; hop_alpha_ns: number | null; hop_alpha_error_ns: number | null;
  half_bandwidth_bytes: number | null; latency_seen: boolean; bandwidth_seen: boolean; sizes: LinkModelSize[];
}
export interface Communication {
  transfer_ns_per_step: number | null; exposed_transfer_ns_per_step: number | null; waited_ns_per_step: number | null;
  exposed_wait_ns_per_step: number | null; link_peak_gbytes_per_s: number | null; link_peak_source: string | null; network: Network | null;
  unheard_share: number;
  pattern: ('hybrid sharded data parallel (HSDP)' | 'fully sharded data parallel (FSDP, ZeRO stage 3)' | 'data parallel with sharded optimizer state (ZeRO stage 1 or 2)' | 'sharded data parallel (FSDP, ZeRO)' | 'tensor parallel' | 'tensor and sequence parallel' | 'expert parallel (all-to-all)' | 'context parallel (ring)' | 'pipeline' | 'data parallel (DDP)' | 'tensor or grouped data parallel')[];
  bytes_share: Record<string, number>; buckets: Buckets | null; bucket_advice: BucketAdvice | null; forward: ForwardCommunication[];
  exposed: ExposedCalls[]; pipeline: Pipeline | null; alpha_beta: LinkModel[];
}
export interface BetweenRanks {
  total_ns: number | null; compute_ns: number | null; exposed_comm_ns: number | null; copy_ns: number | null; idle_ns: number | null;
}
export interface TracedRank {
  rank: number | null; pid: number; calls: number; steps: number; step_ns: number | null; longest_step_ns: number | null; timed_calls: number;
  gpu_ns: number | null; compared_calls: number; last_calls: number; late_ns: number; late_share: number; early_ns: number;
}
export interface RaisedDetail {
  decided_ns: number; reason: string; rank: number | null; ranks: number[]; outcome: string; failed: boolean;
}
export interface CallTrace {
  compared_by: string | null; ranks: TracedRank[]; late_rank: number | null; statement: string; raises: RaisedDetail[];
}
export interface CommunicatorOperation {
  calls: number; bytes: number;
}
export interface Communicator {
  comm: string; name: string | null; ranks: number | null; ranks_heard: number; members: number[]; hosts: number; ranks_per_host: number[] | null;
  ran_as: string | null; parent: string | null; made_by: string | null; made_ns: number | null; states: Record<string, number>; calls: number;
  bytes: number; operations: Record<string, CommunicatorOperation>;
}
export interface HangReplay {
  number: number; collectives: number; ended: number; communicators: number;
}
export interface HangTransfer {
  rank: number | null; peer: number | null; counterpart: string; others_waiting: number;
}
export interface CallShape {
  op: string; count: number | null; datatype: string | null; bytes: number; root: number | null;
}
export interface HangRankReplays {
  launches: number; last_launch_ago_ns: number | null;
}
export interface HangRank {
  rank: number | null; host: string; pid: number; state: 'not_issued' | 'launched_nothing' | 'waiting' | 'issued_otherwise' | 'halted' | 'idle';
  issued: CallShape | null; ended: boolean;
  last_call: {op: string; comm: string; seq: number; issued_ago_ns: number | null; done_ago_ns: number | null; captured: boolean} | null;
  launches_since: number | null; last_launch_ago_ns: number | null; silent_ns: number | null; blocked_in: string | null; open_range: string | null;
  replays: HangRankReplays | null; refused: {result: number; ago_ns: number} | null; halt: Halt | null; host_load: HostLoad | null;
  python: PythonFrame[];
}
export interface HangLink {
  kind: 'queued' | 'not_issued' | 'follows' | 'same_work' | 'exited'; who: string; call: string | null; other: string | null;
}
export interface Hang {
  kind: 'missing_rank' | 'mismatch' | 'all_issued' | 'circular' | 'extra_call' | 'creation' | 'no_work'; comm: string; comm_name: string | null;
  comm_ranks: number; seq: number; op: string; count: number | null; datatype: string | null; bytes: number; root: number | null;
  replay: HangReplay | null; transfer: HangTransfer | null; since_ns: number; waiting_ns: number; over: boolean; issued: number; not_heard: number;
  culprit_known: boolean; ranks: HangRank[]; ranks_left_out: number; links: HangLink[]; links_left_out: number; extra_calls: number;
  absent: string | null; steps: number | null; idle: boolean; mismatches_after: number; earlier_work_unfinished: boolean;
}
export interface PastHang {
  kind: 'missing_rank' | 'mismatch' | 'all_issued' | 'circular' | 'extra_call' | 'creation' | 'no_work'; comm: string; comm_name: string | null;
  comm_ranks: number; seq: number; op: string; count: number | null; datatype: string | null; bytes: number; root: number | null;
  replay: HangReplay | null; transfer: HangTransfer | null; since_ns: number; waiting_ns: number; over: boolean; issued: number; not_heard: number;
  culprit_known: boolean; ranks: HangRank[]; ranks_left_out: number; links: HangLink[]; links_left_out: number; extra_calls: number;
  absent: string | null; steps: number | null; idle: boolean; mismatches_after: number; earlier_work_unfinished: boolean; until_ns: number;
}
export interface FindingSubject {
  ranks: number[]; first_step: number | null; last_step: number | null; steps: number[];
}
export interface Finding {
  id: string; severity: 'info' | 'warning' | 'error'; statement: string; evidence: string; advice: string; cost_ns_per_step: number | null;
  about: FindingSubject;
}
export interface Report {
  schema_version: number; conditions: Conditions; trust: Trust; steps: Steps | null; host_time?: HostTime[]; ranks_in: string | null;
  ranks: SummarisedRank[]; collectives: Collective[]; phases: Phase[]; top_kernels: Kernel[]; compute: Compute; driver_calls: DriverCall[];
  utilisation: Utilisation | null; stragglers: Straggler[]; long_steps: LongSteps | null; step_growth: StepGrowth | null; clock: Clock;
  communication: Communication; between_ranks: BetweenRanks; call_trace: CallTrace | null; communicators: Communicator[]; hangs: Hang[];
  past_hangs: PastHang[]; findings: Finding[];
}
export type PictureName = 'bubble' | 'buckets' | 'caused_wait' | 'compute' | 'compute_by_gpu' | 'compute_by_rank' | 'copies' | 'coverage' | 'exposed' | 'gpus' | 'idle_gpus' | 'idle_input' | 'idle_launch' | 'idle_memory' | 'idle_pause' | 'idle_sync' | 'leak' | 'lifelines' | 'memory' | 'network' | 'overhead' | 'ranks' | 'reserved' | 'standstill' | 'step_times' | 'waits_for_cpu' | 'warmup' | 'whole_step';
