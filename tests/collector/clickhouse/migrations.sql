-- migration 1
CREATE DATABASE IF NOT EXISTS gpuprobe;

CREATE TABLE IF NOT EXISTS gpuprobe.schema_migrations
(
  `number` UInt32,
  `applied` DateTime('UTC') DEFAULT now(),
  `version` String
)
ENGINE = MergeTree
ORDER BY number;

CREATE TABLE IF NOT EXISTS gpuprobe.jobs
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `updated` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this was so',
  `hub` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'host of the hub that wrote it',
  `run` String CODEC(ZSTD(1)) COMMENT 'its directory at the hub',
  `state` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'running, hangs or over',
  `begun` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when its first host reported',
  `ended` Nullable(DateTime64(9, 'UTC')) CODEC(ZSTD(1)) COMMENT 'when it was over; NULL: it is not',
  `hosts` Array(String) CODEC(ZSTD(1)) COMMENT 'names of its hosts',
  `world_size` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'as its launcher says; 0: not known',
  `ranks` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'that have reported',
  `gpus` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'on which they compute; 0: not known',
  `gpu_name` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'of the first one',
  `cuda_driver` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'CUDA version of the driver',
  `nccl` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'version of NCCL',
  `steps` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'that all ranks have done',
  `revision` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'of its steps: earlier ones in `steps` and its sums do not count',
  `step_ns` Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'mean time of a step, without the warm-up; NULL: none was found',
  `gpu_seconds` Float64 CODEC(ZSTD(1)) COMMENT 'its ranks times how long each was recorded',
  `finding` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the first finding so far; empty: none',
  `statement` String CODEC(ZSTD(1)) COMMENT 'what it says'
)
ENGINE = ReplacingMergeTree(updated)
PARTITION BY toYYYYMM(begun)
ORDER BY (cluster, job, attempt, user)
TTL toDateTime(begun) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each job; the last row counts';

CREATE TABLE IF NOT EXISTS gpuprobe.ranks
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `updated` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this was so',
  `begun` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'first event of the process',
  `rank` Int32 CODEC(T64, ZSTD(1)) COMMENT '-1: not known',
  `pid` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'its process',
  `host` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its host',
  `device` Int32 CODEC(T64, ZSTD(1)) COMMENT 'ordinal of the GPU with most of its kernels; -1: none',
  `gpu_uuid` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'of that GPU',
  `gpu_name` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'of that GPU',
  `probe` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'version of the probe',
  `steps` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'that it has done',
  `measured_steps` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'complete ones after the warm-up: what the sums are over',
  `step_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of their times',
  `compute_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of the time with kernels',
  `exposed_comm_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of the time with nothing but NCCL\'s kernels',
  `copy_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of the time with nothing but copies',
  `idle_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of the time with nothing',
  `caused_wait_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long the mean of the others waited for it',
  `waited_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long it waited for others in collectives',
  `kernels` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'number of kernels',
  `kernel_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of their times',
  `records` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'that it has sent',
  `lost_records` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'that are known to be lost'
)
ENGINE = ReplacingMergeTree(updated)
PARTITION BY toYYYYMM(begun)
ORDER BY (cluster, job, attempt, user, rank, pid, device)
TTL toDateTime(begun) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each rank of a job; the last row counts. Sums are over its measured steps';

CREATE TABLE IF NOT EXISTS gpuprobe.steps
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `revision` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'grows where the job\'s steps are counted anew; `jobs` has the one that counts',
  `step` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'its number, the same on all ranks',
  `rank` Int32 CODEC(T64, ZSTD(1)) COMMENT '-1: not known',
  `device` Int32 CODEC(T64, ZSTD(1)) COMMENT 'ordinal of the GPU, where a process drives several; else -1',
  `host` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the rank\'s host',
  `start` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when it began on the device',
  `total_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long it took',
  `compute_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'time with kernels, without NCCL\'s',
  `exposed_comm_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'time with nothing but NCCL\'s kernels',
  `copy_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'time with nothing but copies',
  `host_bound_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: the host was launching, and came late',
  `input_wait_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: the host waited for input',
  `sync_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: the host was blocked in a synchronising call',
  `memory_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: the host allocated or released memory',
  `pause_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: the host launched nothing',
  `launch_gap_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: launched, and not started',
  `unknown_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'idle: no launch was seen',
  `comm_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'time with NCCL\'s kernels, whatever else ran',
  `h2d_phase_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of the step: copies of its input',
  `forward_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of the step: the forward pass',
  `backward_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of the step: the backward pass',
  `optimizer_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of the step: the optimizer',
  `operations` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'kernels, copies and memsets',
  `lost_operations` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'of which no record came',
  `error_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'by how much its beginning or end may be off for that',
  `warmup` Bool CODEC(ZSTD(1)) COMMENT 'much longer than later ones: in no mean',
  `incomplete` Bool CODEC(ZSTD(1)) COMMENT 'its parts are estimates'
)
ENGINE = ReplacingMergeTree(revision)
PARTITION BY toYYYYMMDD(start)
ORDER BY (cluster, job, attempt, user, step, rank, device)
TTL toDateTime(start) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each rank and step, some steps after it was done. The parts add up to `total_ns`';

CREATE TABLE IF NOT EXISTS gpuprobe.findings
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `updated` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when this was so',
  `finding` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its id (docs/findings)',
  `subject` String CODEC(ZSTD(1)) COMMENT 'the ranks that it is about: `3`, `0,4`; empty: all',
  `severity` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'error, warning or info',
  `statement` String CODEC(ZSTD(1)) COMMENT 'what was concluded',
  `evidence` String CODEC(ZSTD(1)) COMMENT 'from which numbers',
  `advice` String CODEC(ZSTD(1)) COMMENT 'what to do about it',
  `cost_ns_per_step` Nullable(Float64) CODEC(ZSTD(1)) COMMENT 'how much shorter a step would be; NULL: not known',
  `lost_gpu_seconds` Float64 CODEC(ZSTD(1)) COMMENT 'estimated: that cost times the steps and ranks so far; 0: not known',
  `first_step` Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'from which on it holds; NULL: from the first',
  `last_step` Nullable(UInt64) CODEC(ZSTD(1)) COMMENT 'up to which; NULL: to the last',
  `ranks` Array(Int32) CODEC(ZSTD(1)) COMMENT 'that it is about; empty: all',
  `hosts` Array(String) CODEC(ZSTD(1)) COMMENT 'their hosts; empty: it is about all ranks',
  `gpu_uuids` Array(String) CODEC(ZSTD(1)) COMMENT 'their GPUs; empty: it is about all ranks',
  `opened` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when it was first so',
  `closed` Nullable(DateTime64(9, 'UTC')) CODEC(ZSTD(1)) COMMENT 'when it was no more so; NULL: it is',
  `at_end` Bool CODEC(ZSTD(1)) COMMENT 'it is in the report of the whole job'
)
ENGINE = ReplacingMergeTree(updated)
PARTITION BY toYYYYMM(opened)
ORDER BY (cluster, job, attempt, user, finding, subject)
TTL toDateTime(opened) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each finding of a job and what it is about; the last row counts. It opens when two reports in a row have it, and closes when three in a row do not';

CREATE TABLE IF NOT EXISTS gpuprobe.levels
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `time` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when',
  `rank` Int32 CODEC(T64, ZSTD(1)) COMMENT '-1: not known',
  `host` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the rank\'s host',
  `device` Int32 CODEC(T64, ZSTD(1)) COMMENT 'ordinal of the GPU',
  `gpu_uuid` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'of the GPU',
  `memory_live_bytes` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'what the process holds there',
  `memory_high_bytes` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'the most that it has held there',
  `memory_capacity_bytes` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of the GPU; 0: not known',
  `clock_mhz` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'of its multiprocessors, as NVML says; 0: not asked',
  `power_w` Float64 CODEC(ZSTD(1)) COMMENT 'as NVML says; 0: not asked',
  `temperature_c` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'as NVML says; 0: not asked',
  `limited_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long so far heat or power kept its clock down',
  `gpu_errors` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'Xid errors so far'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (cluster, job, attempt, user, time, rank, device)
TTL toDateTime(time) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each rank, GPU and minute: how they were then';

CREATE TABLE IF NOT EXISTS gpuprobe.collectives
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `time` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the minute',
  `window_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long it was',
  `rank` Int32 CODEC(T64, ZSTD(1)) COMMENT '-1: not known',
  `host` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the rank\'s host',
  `communicator` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its hash, the same on all of its ranks',
  `communicator_ranks` UInt32 CODEC(T64, ZSTD(1)) COMMENT 'its size',
  `operation` LowCardinality(String) CODEC(ZSTD(1)) COMMENT '`AllReduce`; of a group of several: joined by `+`',
  `size_bytes` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'of one call, or of a group of calls; 0: several sizes',
  `calls` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'in the window',
  `bytes` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'that these were called with',
  `time_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of their GPU times',
  `wait_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'the part in which it waited for other ranks',
  `transfer_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'the rest, of those that could be compared'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (cluster, job, attempt, user, time, communicator, rank)
TTL toDateTime(time) + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each rank, communicator, operation, size and minute in which it was called';

CREATE TABLE IF NOT EXISTS gpuprobe.kernels
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `time` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'end of the minute',
  `window_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how long it was',
  `rank` Int32 CODEC(T64, ZSTD(1)) COMMENT '-1: not known',
  `host` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the rank\'s host',
  `device` Int32 CODEC(T64, ZSTD(1)) COMMENT 'ordinal of the GPU',
  `kernel` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name; empty: all the others',
  `calls` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'in the window',
  `time_ns` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'sum of their times'
)
ENGINE = MergeTree
PARTITION BY toYYYYMMDD(time)
ORDER BY (cluster, job, attempt, user, time, kernel, rank)
TTL toDateTime(time) + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'one for each rank, kernel and minute; of the kernels that took longest in it, the others are one row';

CREATE TABLE IF NOT EXISTS gpuprobe.losses
(
  `cluster` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'the name that its hub was given (`--cluster`)',
  `job` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'its name, as its launcher tells all hosts',
  `attempt` UInt16 CODEC(ZSTD(1)) COMMENT 'from 1: which job of this name it is, as its hub counts',
  `user` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'whose it is: a user of the hub, or whose hub it reports to',
  `time` DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)) COMMENT 'when that was noticed',
  `what` LowCardinality(String) CODEC(ZSTD(1)) COMMENT 'rows of a table, or `records` that a program\'s probe has lost',
  `why` LowCardinality(String) CODEC(ZSTD(1)) COMMENT '`spool_full`, `refused`, `disk`, or why the probe lost them',
  `count` UInt64 CODEC(T64, ZSTD(1)) COMMENT 'how many'
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (cluster, job, attempt, user, time)
TTL toDateTime(time) + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000
COMMENT 'what could not be written here, or was lost before';

CREATE TABLE IF NOT EXISTS gpuprobe.step_minutes
(
  `cluster` LowCardinality(String),
  `job` LowCardinality(String),
  `attempt` UInt16,
  `user` LowCardinality(String),
  `revision` UInt32,
  `time` DateTime('UTC') CODEC(Delta, ZSTD(1)),
  `host` LowCardinality(String),
  `rank` Int32,
  `device` Int32,
  `steps` SimpleAggregateFunction(sum, UInt64),
  `total_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `compute_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `exposed_comm_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `copy_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `host_bound_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `input_wait_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `sync_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `memory_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `pause_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `launch_gap_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `unknown_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `min_total_ns` SimpleAggregateFunction(min, UInt64) CODEC(T64, ZSTD(1)),
  `max_total_ns` SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
  `total_ns_quantiles` AggregateFunction(quantilesTDigest(0.5, 0.99), UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (cluster, job, attempt, user, revision, time, host, rank, device)
TTL time + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS gpuprobe.step_minutes_view TO gpuprobe.step_minutes AS
SELECT cluster, job, attempt, user, revision, toStartOfMinute(start) AS time, host, rank, device,
  count() AS steps,
  sum(steps.total_ns) AS total_ns,
  sum(steps.compute_ns) AS compute_ns,
  sum(steps.exposed_comm_ns) AS exposed_comm_ns,
  sum(steps.copy_ns) AS copy_ns,
  sum(steps.host_bound_ns) AS host_bound_ns,
  sum(steps.input_wait_ns) AS input_wait_ns,
  sum(steps.sync_ns) AS sync_ns,
  sum(steps.memory_ns) AS memory_ns,
  sum(steps.pause_ns) AS pause_ns,
  sum(steps.launch_gap_ns) AS launch_gap_ns,
  sum(steps.unknown_ns) AS unknown_ns,
  min(steps.total_ns) AS min_total_ns,
  max(steps.total_ns) AS max_total_ns,
  quantilesTDigestState(0.5, 0.99)(steps.total_ns) AS total_ns_quantiles
FROM gpuprobe.steps
WHERE NOT warmup AND NOT incomplete
GROUP BY cluster, job, attempt, user, revision, time, host, rank, device;

CREATE TABLE IF NOT EXISTS gpuprobe.step_hours
(
  `cluster` LowCardinality(String),
  `job` LowCardinality(String),
  `attempt` UInt16,
  `user` LowCardinality(String),
  `revision` UInt32,
  `time` DateTime('UTC') CODEC(Delta, ZSTD(1)),
  `host` LowCardinality(String),
  `rank` Int32,
  `device` Int32,
  `steps` SimpleAggregateFunction(sum, UInt64),
  `total_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `compute_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `exposed_comm_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `copy_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `host_bound_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `input_wait_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `sync_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `memory_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `pause_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `launch_gap_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `unknown_ns` SimpleAggregateFunction(sum, UInt64) CODEC(T64, ZSTD(1)),
  `min_total_ns` SimpleAggregateFunction(min, UInt64) CODEC(T64, ZSTD(1)),
  `max_total_ns` SimpleAggregateFunction(max, UInt64) CODEC(T64, ZSTD(1)),
  `total_ns_quantiles` AggregateFunction(quantilesTDigest(0.5, 0.99), UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (cluster, job, attempt, user, revision, time, host, rank, device)
TTL time + INTERVAL 730 DAY
SETTINGS ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS gpuprobe.step_hours_view TO gpuprobe.step_hours AS
SELECT cluster, job, attempt, user, revision, toStartOfHour(start) AS time, host, rank, device,
  count() AS steps,
  sum(steps.total_ns) AS total_ns,
  sum(steps.compute_ns) AS compute_ns,
  sum(steps.exposed_comm_ns) AS exposed_comm_ns,
  sum(steps.copy_ns) AS copy_ns,
  sum(steps.host_bound_ns) AS host_bound_ns,
  sum(steps.input_wait_ns) AS input_wait_ns,
  sum(steps.sync_ns) AS sync_ns,
  sum(steps.memory_ns) AS memory_ns,
  sum(steps.pause_ns) AS pause_ns,
  sum(steps.launch_gap_ns) AS launch_gap_ns,
  sum(steps.unknown_ns) AS unknown_ns,
  min(steps.total_ns) AS min_total_ns,
  max(steps.total_ns) AS max_total_ns,
  quantilesTDigestState(0.5, 0.99)(steps.total_ns) AS total_ns_quantiles
FROM gpuprobe.steps
WHERE NOT warmup AND NOT incomplete
GROUP BY cluster, job, attempt, user, revision, time, host, rank, device;

