"""What an hour of a job costs in ClickHouse: bytes a rank and hour by table, rows a second, and how long the documented questions take.

clickhouse_figures.py [--hosts 8] [--steps 1800]: a job of eight ranks a host with steps of two seconds, rolled up as its hosts would, which a real hub then writes to ClickHouse's engine (scripts/clickhouse-env.sh) at once.
"""
import argparse
import glob
import os
import sys
import time

import clickhouse_server
import cluster_day
import harness
from harness import GPUPROBE

OPTIONS = argparse.Namespace(hosts=8, steps=1800)


class Figures(clickhouse_server.WithClickHouse):

    def test_figures(self):
        run = self.path("jobs", "20261128T120000Z-an-hour")
        begun = time.monotonic()
        done = self.run_program([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--ranks", "16", "--slow-rank", "11", "--work", "110", "--steps", str(OPTIONS.steps), "--hosts", str(OPTIONS.hosts), "--out", run], limit=900)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        with open(os.path.join(run, "job.txt"), "w", encoding="utf-8") as file:
            file.write("an hour\n1\n")
        print(f"simulated in {time.monotonic() - begun:.0f} s")
        self.start_server()
        # The simulated hour was long ago: what is removed after some time would be gone at once.
        self.run_program([GPUPROBE, "hub", "--clickhouse", self.url, "--migrate"])
        for table, in self.ask("SELECT name FROM system.tables WHERE database = 'gpuprobe' AND create_table_query LIKE '%TTL%'"):
            self.post("/", f"ALTER TABLE gpuprobe.`{table}` REMOVE TTL".encode())
        begun = time.monotonic()
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--out", self.path("jobs"), "--clickhouse", self.url], env={"GPUPROBE_HUB_TOKEN": cluster_day.SECRET, "HOME": self.folder})
        harness.wait_until(lambda: b"gpuprobe: over:" in hub.so_far(), "the report", limit=600)
        spool = os.path.join(self.path("jobs"), "clickhouse-spool", "*.round")
        harness.wait_until(lambda: self.ask("SELECT count() FROM gpuprobe.jobs WHERE state = 'over'") != [[0]] and self.ask("SELECT count() FROM gpuprobe.ranks") != [[0]] and not glob.glob(spool),
                           "rows", limit=600)
        took = time.monotonic() - begun
        (seconds, ranks, step_ms), = self.ask("SELECT gpu_seconds, ranks, step_ns / 1e6 FROM gpuprobe.jobs FINAL")
        hours = seconds / 3600
        print(f"{ranks} ranks, {hours:.1f} rank-hours, steps of {step_ms:.0f} ms")
        for table, in self.ask("SELECT name FROM system.tables WHERE database = 'gpuprobe' AND engine LIKE '%MergeTree'"):
            self.post("/", f"OPTIMIZE TABLE gpuprobe.`{table}` FINAL".encode())
        parts = self.ask("SELECT table, sum(rows), sum(bytes_on_disk) FROM system.parts WHERE database = 'gpuprobe' AND active GROUP BY table ORDER BY 3 DESC")
        for table, rows, size in parts:
            print(f"  {table:24} {rows:10,} rows {size / 1024:10,.0f} KiB {size / 1000 / hours:10.2f} KB a rank and hour")
        rows, size = sum(row[1] for row in parts), sum(row[2] for row in parts)
        print(f"  all: {size / 1000 / hours:.1f} KB a rank and hour; {rows:,} rows in {took:.0f} s, of which a hub waits 30 s")
        for question, sql in clickhouse_server.documented_questions("an hour", 1):
            begun = time.monotonic()
            answer = self.ask(sql)
            print(f"  {1000 * (time.monotonic() - begun):6.0f} ms, {len(answer)} rows: {question}")


if __name__ == "__main__":
    clickhouse_server.skip_without()
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1800)
    OPTIONS = parser.parse_args()
    import unittest
    unittest.main(argv=sys.argv[:1])
