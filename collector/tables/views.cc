#include "collector/tables/views.h"

namespace gpuprobe::tables {

std::span<const View> Views() {
  static constexpr View kViews[] = {
      {"kernel_totals", "which kernels take the time",
       "SELECT name, class, count(*) AS calls, sum(end_ns - start_ns) AS total_ns, avg(end_ns - start_ns) "
       "AS mean_ns, min(end_ns - start_ns) AS min_ns, max(end_ns - start_ns) AS max_ns FROM kernel GROUP BY "
       "name, class"},
      {"kernel_time", "what kind of work takes the time, in which phase of a step",
       "SELECT rank, class, phase, count(*) AS calls, sum(end_ns - start_ns) AS total_ns FROM kernel GROUP "
       "BY rank, class, phase"},
      {"kernel_by_rank", "which rank runs a kernel slower than the others",
       "SELECT name, rank, count(*) AS calls, sum(end_ns - start_ns) AS total_ns, avg(end_ns - start_ns) AS "
       "mean_ns "
       "FROM kernel GROUP BY name, rank"},
      {"collective_totals", "which collectives take the time, by operation, communicator and size",
       "SELECT op, comm, bytes, count(*) AS calls, sum(end_ns - start_ns) AS total_ns, "
       "avg(end_ns - start_ns) AS mean_ns FROM collective WHERE captured IS NULL GROUP BY op, comm, bytes"},
      {"collective_by_call", "who came last to a collective: one row for each call, over its ranks",
       "SELECT comm, seq, replay, op, bytes, count(*) AS ranks, min(end_ns - start_ns) AS transfer_ns, "
       "max(end_ns - start_ns) - min(end_ns - start_ns) AS longest_wait_ns FROM collective "
       "WHERE start_ns IS NOT NULL AND comm <> 'unknown' GROUP BY comm, seq, replay, op, bytes"},
      {"collective_waits", "who waited in each collective, and for whom: one row for each call and rank",
       "SELECT rank, step, comm, seq, replay, op, bytes, start_ns, end_ns, duration_ns - least_ns AS "
       "waited_ns, CASE WHEN duration_ns = least_ns THEN 1.0 * (all_ns - ranks * least_ns) / (ranks - "
       "last_ranks) / last_ranks END AS caused_wait_ns FROM (SELECT *, sum(duration_ns = least_ns) OVER "
       "call AS last_ranks FROM (SELECT rank, step, comm, seq, replay, op, bytes, start_ns, end_ns, end_ns "
       "- start_ns AS duration_ns, min(end_ns - start_ns) OVER call AS least_ns, sum(end_ns - start_ns) "
       "OVER call AS all_ns, count(*) OVER call AS ranks FROM collective WHERE start_ns IS NOT NULL AND "
       "comm <> 'unknown' AND op NOT IN ('Send', 'Recv') WINDOW call AS (PARTITION BY comm, seq, replay)) "
       "WINDOW call AS (PARTITION BY comm, seq, replay))"},
      {"step_waits", "who was late in which step: how long each rank waited, and made each other rank wait",
       "SELECT step, rank, sum(waited_ns) AS waited_ns, coalesce(sum(caused_wait_ns), 0) AS caused_wait_ns "
       "FROM collective_waits WHERE step IS NOT NULL GROUP BY step, rank"},
      {"copy_totals", "how much is copied, in which direction, how fast",
       "SELECT rank, direction, count(*) AS copies, sum(bytes) AS bytes, sum(end_ns - start_ns) AS total_ns, "
       "1.0 * sum(bytes) / nullif(sum(end_ns - start_ns), 0) AS gbytes_per_s FROM memcpy GROUP BY rank, "
       "direction"},
      {"launch_delays", "how long work waits between its launch and its start",
       "SELECT kernel.rank AS rank, kernel.name AS name, launch.time_ns AS launch_ns, kernel.start_ns AS "
       "start_ns, "
       "kernel.start_ns - launch.time_ns AS delay_ns FROM kernel JOIN launch ON launch.rank = kernel.rank "
       "AND launch.pid = kernel.pid AND launch.correlation = kernel.correlation"},
      {"host_places", "what the host does while it launches nothing: lines of the program, by thread",
       "SELECT rank, thread, own_file, own_line, function, call, system_call, about, count(*) AS samples, "
       "sum(time_ns - since_ns) AS total_ns, 1.0 * sum(time_ns - since_ns) / "
       "nullif(sum(sum(time_ns - since_ns)) OVER (PARTITION BY rank, thread), 0) AS share "
       "FROM host_sample WHERE in_gap GROUP BY rank, thread, own_file, own_line, function, call, "
       "system_call, "
       "about"},
      {"step_times", "how long each step takes, over the ranks",
       "SELECT step, count(*) AS ranks, avg(total_ns) AS mean_ns, min(total_ns) AS min_ns, max(total_ns) AS "
       "max_ns, "
       "avg(compute_ns) AS compute_ns, avg(exposed_comm_ns) AS exposed_comm_ns, avg(copy_ns) AS copy_ns, "
       "avg(idle_ns) AS idle_ns FROM step GROUP BY step"},
  };
  return kViews;
}

std::span<const char* const> Indexes() {
  static constexpr const char* kIndexes[] = {
      "CREATE INDEX launch_correlation ON launch (correlation)",
  };
  return kIndexes;
}

}  // namespace gpuprobe::tables
