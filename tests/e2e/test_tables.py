"""Tables of a run: `gpuprobe export --format sqlite|csv|steps` and `gpuprobe query` hold what the export's lines and report.json hold."""
import csv
import io
import json
import os
import re
import sqlite3
from collections import Counter, defaultdict

import harness
from documented import commands_of
from harness import GPUPROBE, SOURCE

SQL_DOC = os.path.join(SOURCE, "docs", "sql.md")


def flat(value):
    """A member of an exported row as a table holds it."""
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value, separators=(",", ":")) if isinstance(value, (list, dict)) else value


WORK = ("kernel", "memcpy", "memset", "graph_run", "collective")
IN_TABLES_ONLY = {"step", "phase", "class", "symbol"}


def as_exported(kind, row):
    """A table's row without what only tables have."""
    row = dict(row)
    if kind == "kernel":
        row["name"] = row["symbol"]
    return {key: value for key, value in row.items() if kind not in WORK or key not in IN_TABLES_ONLY}


class Tables(harness.EndToEndTest):

    def simulate(self, scenario="healthy-nvtx", *arguments, ranks=4, steps=20):
        out = self.path(f"{scenario}-{len(os.listdir(self.folder))}")
        self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--out", out, "--ranks", str(ranks), "--steps", str(steps), *arguments])
        return out

    def database(self, run):
        path = self.path(f"run-{len(os.listdir(self.folder))}.sqlite")
        self.run_well([GPUPROBE, "export", run, "--format", "sqlite", "--out", path])
        connection = sqlite3.connect(path)
        connection.row_factory = sqlite3.Row
        self.addCleanup(connection.close)
        return connection

    def query(self, run, sql, form="jsonl"):
        out = self.run_well([GPUPROBE, "query", run, sql, "--format", form]).stdout.decode()
        return [json.loads(line) for line in out.splitlines()] if form == "jsonl" else out

    def rows_by_kind(self, run):
        rows = defaultdict(list)
        for row in self.export(run):
            rows[row.pop("kind")].append(row)
        return rows

    def test_database_has_every_exported_row(self):
        run = self.simulate()
        database = self.database(run)
        rows = self.rows_by_kind(run)
        self.assertLessEqual({"kernel", "memcpy", "collective", "launch", "range", "alloc"}, rows.keys())
        for kind, exported in rows.items():
            with self.subTest(kind=kind):
                stored = Counter(tuple((key, value) for key, value in sorted(as_exported(kind, row).items()) if value is not None)
                                 for row in database.execute(f'SELECT * FROM "{kind}"'))
                self.assertEqual(stored, Counter(tuple(sorted((key, flat(value)) for key, value in row.items())) for row in exported))

    def test_csv_has_the_same_rows(self):
        run = self.simulate()
        folder = self.path("csv")
        self.run_well([GPUPROBE, "export", run, "--format", "csv", "--out", folder])
        for kind, exported in self.rows_by_kind(run).items():
            with open(os.path.join(folder, kind + ".csv"), newline="", encoding="utf-8") as file:
                stored = Counter(tuple(sorted((key, value) for key, value in as_exported(kind, row).items() if value)) for row in csv.DictReader(file))
            expected = Counter(tuple(sorted((key, "true" if value is True else str(flat(value))) for key, value in row.items() if value not in ("", None)))
                               for row in exported)
            self.assertEqual(stored, expected, kind)

    def test_totals_equal_the_report(self):
        run = self.simulate()
        database = self.database(run)
        report = self.report(run)
        for rank in report["ranks"]:
            count, total = database.execute("SELECT count(*), sum(end_ns - start_ns) FROM kernel WHERE rank = ?", (rank["rank"],)).fetchone()
            self.assertEqual((count, total), (rank["kernels"]["count"], rank["kernels"]["total_ns"]))
            for direction, copies in rank["copies"].items():
                if copies["small"] == 0:
                    found = database.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM memcpy WHERE rank = ? AND direction = ?",
                                             (rank["rank"], direction)).fetchone()
                    self.assertEqual(tuple(found), (copies["count"], copies["bytes"]))
        for kernel in report["top_kernels"]:
            row = database.execute("SELECT time_ns_count, time_ns_total, share FROM report_top_kernels WHERE name = ?", (kernel["name"],)).fetchone()
            self.assertEqual(tuple(row), (kernel["time_ns"]["count"], kernel["time_ns"]["total"], kernel["share"]))
        calls = sum(c["calls"] for c in report["collectives"])
        self.assertEqual(database.execute("SELECT count(*) FROM collective WHERE captured IS NULL").fetchone()[0], calls)
        self.assertEqual(database.execute("SELECT steps_time_ns_mean FROM report").fetchone()[0], report["steps"]["time_ns"]["mean"])
        self.assertEqual([row["id"] for row in database.execute("SELECT id FROM report_findings")], [f["id"] for f in report["findings"]])
        counted = database.execute("SELECT count(*) FROM step GROUP BY rank").fetchall()
        self.assertEqual([row[0] for row in counted], [rank["steps"]["count"] for rank in report["ranks"]])
        mean = database.execute("SELECT avg(total_ns) FROM step WHERE NOT warmup").fetchone()[0]
        self.assertAlmostEqual(mean, report["steps"]["time_ns"]["mean"], delta=1)

    def test_work_has_the_step_and_phase_that_the_report_counts_it_to(self):
        """What ran in a step, by its rows, is what the step's row says: how many operations, until when, and for how long."""
        for scenario, options in (("healthy-nvtx", ()), ("healthy", ()), ("healthy", ("--graph",)), ("straggler-kernels", ("--slow-rank", "2"))):
            with self.subTest(scenario=scenario, options=options):
                database = self.database(self.simulate(scenario, *options))
                tables = " UNION ALL ".join(f"SELECT rank, step, phase, start_ns, end_ns FROM {table}" for table in ("kernel", "memcpy", "memset"))
                work = defaultdict(list)
                for row in database.execute(f"SELECT * FROM ({tables}) WHERE step IS NOT NULL"):
                    work[row["rank"], row["step"]].append(row)
                steps = database.execute("SELECT * FROM step").fetchall()
                self.assertEqual(set(work), {(step["rank"], step["step"]) for step in steps})
                for step in steps:
                    of_step = work[step["rank"], step["step"]]
                    self.assertEqual(len(of_step), step["operations"])
                    self.assertEqual(max(row["end_ns"] for row in of_step), step["end_ns"])
                    busy, until = 0, 0
                    for row in sorted(of_step, key=lambda row: row["start_ns"]):
                        busy += max(0, row["end_ns"] - max(row["start_ns"], until))
                        until = max(until, row["end_ns"])
                    self.assertAlmostEqual(busy, step["compute_ns"] + step["exposed_comm_ns"] + step["copy_ns"], delta=step["total_ns"] * 0.01)
                phases = {row["phase"] for rows in work.values() for row in rows}
                self.assertLessEqual({"forward", "backward", "optimizer"}, phases)
                self.assertLessEqual({"gemm", "attention", "collective"}, {row[0] for row in database.execute("SELECT DISTINCT class FROM kernel")})

    def test_waits_of_steps_are_the_reports(self):
        run = self.simulate("straggler-kernels", "--slow-rank", "2")
        database = self.database(run)
        means = dict(database.execute("SELECT rank, avg(caused_wait_ns) FROM step_waits JOIN step USING (rank, step) WHERE NOT warmup GROUP BY rank").fetchall())
        report = self.report(run)
        for rank in report["ranks"]:
            said = rank["wait"]["caused_per_step_ns"]
            self.assertAlmostEqual(means[rank["rank"]], said, delta=max(0.01 * said, 1000), msg=rank["rank"])
        self.assertEqual(max(means, key=means.get), 2)

    def test_a_database_is_kept_for_the_next_question(self):
        run = self.simulate("healthy", ranks=8, steps=120)
        kept = os.path.join(self.path("home"), ".cache", "gpuprobe", "query")
        sql = "SELECT count(*) AS kernels FROM kernel"
        first = self.query(run, sql)
        name, = os.listdir(kept)
        self.assertEqual(os.stat(kept).st_mode & 0o777, 0o700)
        with sqlite3.connect(os.path.join(kept, name)) as database:
            database.execute("DELETE FROM kernel WHERE rank > 0")
        database.close()
        self.assertLess(self.query(run, sql)[0]["kernels"], first[0]["kernels"], "it is what is asked")
        self.assertEqual(self.query(run + "/", sql), self.query(run, sql), "the same run")
        self.assertEqual(os.listdir(kept), [name])
        log = next(os.path.join(run, file) for file in os.listdir(run) if file.endswith(".gpr"))
        os.utime(log, (1, 1))
        self.assertEqual(self.query(run, sql), first, "the run is another one")
        self.assertEqual(len(os.listdir(kept)), 2)
        self.query(run, sql + " ", "table")
        self.assertEqual(len(os.listdir(kept)), 2)

    def test_databases_are_bounded_and_only_of_whole_runs(self):
        run = self.simulate("healthy", ranks=8, steps=60)
        kept = os.path.join(self.path("home"), ".cache", "gpuprobe", "query")
        log = next(os.path.join(run, file) for file in os.listdir(run) if file.endswith(".gpr"))
        for second in range(1, 11):
            os.utime(log, (second, second))
            self.query(run, "SELECT 1 AS one")
        self.assertEqual(len(os.listdir(kept)), 8)
        for name in os.listdir(kept):
            os.remove(os.path.join(kept, name))
        with open(log, "r+b") as file:
            file.truncate(os.path.getsize(log) - 7)
        self.assertEqual(self.run_program([GPUPROBE, "query", run, "SELECT 1 AS one"]).stdout, b"one\n  1\n")
        self.assertEqual(os.listdir(kept), [], "the damage is reported each time")
        os.chmod(kept, 0o777)
        self.query(run, "SELECT 1 AS one")
        self.assertEqual(os.listdir(kept), [], "others may write there")

    def test_a_wrong_column_is_said_before_anything_is_read(self):
        finished = self.run_program([GPUPROBE, "query", "nowhere", "SELECT k.late_ns FROM kernel AS k"])
        self.assertEqual(finished.returncode, 1)
        self.assertRegex(finished.stderr.decode(), r"no such column: k\.late_ns; kernel has rank, pid, device")
        finished = self.run_program([GPUPROBE, "query", "nowhere", "SELECT start_n FROM kernel"])
        self.assertIn("no such column: start_n; did you mean start_ns?", finished.stderr.decode())
        finished = self.run_program([GPUPROBE, "query", "nowhere", "SELECT start_ns FROM kernel"])
        self.assertIn("nowhere", finished.stderr.decode())

    def test_every_column_has_a_meaning(self):
        run = self.simulate()
        said = self.run_well([GPUPROBE, "query", run, "--schema", "--format", "jsonl"]).stdout.decode().splitlines()
        for table in map(json.loads, said):
            columns = [json.loads(line) for line in
                       self.run_well([GPUPROBE, "query", run, "--schema", table["name"], "--format", "jsonl"]).stdout.decode().splitlines()]
            self.assertEqual([column["column"] for column in columns], table["columns"].split(", "))
            if table["type"] == "table":
                self.assertEqual([column["column"] for column in columns if not column["meaning"] or not column["type"]], [], table["name"])
        finished = self.run_program([GPUPROBE, "query", run, "--schema", "kernels"])
        self.assertEqual(finished.returncode, 1)
        self.assertIn("no table kernels; did you mean kernel?", finished.stderr.decode())

    def test_tables_exist_even_without_rows(self):
        """A query that works for one run works for every run."""
        run = self.simulate("healthy", ranks=1)
        names = {row["name"]: row["columns"].split(", ") for row in map(json.loads, self.run_well(
            [GPUPROBE, "query", run, "--schema", "--format", "jsonl"]).stdout.decode().splitlines())}
        for table in ("kernel", "memcpy", "memset", "graph_run", "sync", "alloc", "free", "small_allocations", "pool", "tensor", "tensor_free",
                      "range", "launch", "communicator", "collective", "step", "report", "report_findings"):
            self.assertIn(table, names)
        self.assertLessEqual({"captured", "replay", "algorithm", "result", "start_ns"}, set(names["collective"]))
        self.assertLessEqual({"stream_name", "device_name", "graph_node", "grid"}, set(names["kernel"]))
        self.assertLessEqual({"fields", "payload", "category_name", "unclosed"}, set(names["range"]))

    def test_step_timings(self):
        run = self.simulate()
        lines = [json.loads(line) for line in self.run_well([GPUPROBE, "export", run, "--format", "steps"]).stdout.decode().splitlines()]
        finished = self.run_well([GPUPROBE, "report", run, "--json", "--steps"])
        records = {(rank["rank"], step["index"]): step for rank in json.loads(finished.stdout)["ranks"] for step in rank["steps"]["records"]}
        seconds = defaultdict(dict)
        for line in lines:
            self.assertEqual(list(line), ["step", "phase", "seconds", "rank", "world_size"])
            self.assertEqual(line["world_size"], 4)
            seconds[line["rank"], line["step"]][line["phase"]] = line["seconds"]
        self.assertEqual(seconds.keys(), records.keys())
        for key, record in records.items():
            self.assertAlmostEqual(seconds[key].pop("step") * 1e9, record["end_ns"] - record["start_ns"], delta=1)
            self.assertEqual({phase: round(value * 1e9) for phase, value in seconds[key].items()}, record["phases"])

    def test_summary_is_flat_and_equals_the_report(self):
        run = self.simulate()
        with open(os.path.join(run, "summary.json"), encoding="utf-8") as file:
            summary = json.load(file)
        report = self.report(run)
        self.assertGreaterEqual(len(summary), 24)
        self.assertTrue(all(key.startswith("gpuprobe/") and isinstance(value, (int, float)) for key, value in summary.items()), summary)
        for name, value in (("step_seconds_mean", report["steps"]["time_ns"]["mean"] / 1e9), ("steps", report["steps"]["count"]),
                            ("exposed_communication_seconds_per_step", report["steps"]["exposed_comm_ns"]["mean"] / 1e9),
                            ("kernels", sum(rank["kernels"]["count"] for rank in report["ranks"])),
                            ("records", report["trust"]["records"]), ("coverage", report["trust"]["coverage"]),
                            ("warnings", sum(f["severity"] == "warning" for f in report["findings"])),
                            ("device_memory_peak_bytes", max(d["high_water_bytes"] for r in report["ranks"] for d in r["device_memory"]))):
            self.assertAlmostEqual(summary["gpuprobe/" + name], value, places=12, msg=name)

    def test_query_prints_tables_csv_and_lines(self):
        run = self.simulate()
        sql = "SELECT rank, count(*) AS kernels, NULL AS none, 'a,\"b' AS text FROM kernel GROUP BY rank"
        lines = self.query(run, sql)
        self.assertEqual([list(line) for line in lines], [["rank", "kernels", "none", "text"]] * 4)
        self.assertEqual([line["rank"] for line in lines], [0, 1, 2, 3])
        self.assertEqual(lines[0]["none"], None)
        rows = list(csv.reader(io.StringIO(self.query(run, sql, "csv"), newline="")))
        self.assertEqual(rows[0], ["rank", "kernels", "none", "text"])
        self.assertEqual(rows[1], ["0", str(lines[0]["kernels"]), "", 'a,"b'])
        table = self.query(run, sql, "table").splitlines()
        self.assertEqual(len(table), 5)
        self.assertRegex(table[0], r"^rank +kernels +none +text$")

    def test_statements_are_read_from_a_file(self):
        run = self.simulate(steps=10)
        path = self.path("questions.sql")
        with open(path, "w", encoding="utf-8") as file:
            file.write("-- how many; and which\nSELECT count(*) AS n\nFROM step; SELECT max(step) AS last FROM step")
        with open(path, "rb") as file:
            self.assertEqual(self.run_well([GPUPROBE, "query", run, "--format", "csv"], stdin=file).stdout, b"n\r\n40\r\nlast\r\n9\r\n")
        with open(path, "w", encoding="utf-8") as file:
            file.write("SELECT late FROM step; SELECT 1")
        with open(path, "rb") as file:
            finished = self.run_program([GPUPROBE, "query", run], stdin=file)
        self.assertEqual((finished.returncode, finished.stdout), (1, b""), "none is answered after one that is wrong")
        self.assertIn("no such column: late", finished.stderr.decode())

    def test_one_step_says_what_took_longer_in_it(self):
        run = self.simulate("straggler-kernels", "--slow-rank", "2", "--slow-every", "30", "--slow-for", "1", "--slow-factor", "3", "--slow-from", "0", steps=90)
        slow = self.query(run, "SELECT step, mean_ns FROM step_times JOIN (SELECT DISTINCT step FROM step WHERE NOT warmup) USING (step) ORDER BY mean_ns DESC LIMIT 1")[0]
        text = self.run_well([GPUPROBE, "report", run, "--step", str(slow["step"])]).stdout.decode()
        first, ranks, changes = text.split("\n\n")
        self.assertRegex(first, rf"^Step {slow['step']} of \S+ takes {slow['mean_ns'] / 1e6:.1f} ms, the mean of 4 ranks; the median step takes [\d.]+ ms\.$")
        self.assertEqual([line.split()[0] for line in ranks.splitlines()[1:]][0], "2", "who made the others wait is first")
        self.assertEqual(sorted(line.split()[0] for line in ranks.splitlines()[1:]), ["0", "1", "2", "3"])
        rows = re.findall(r"^ +(\S+) +(\w+) (.+?)  +([\d.]+ [mun]s) +([\d.]+ [mun]s) +\+([\d.]+ [mun]s)$", changes, re.M)
        self.assertGreater(len(rows), 3, changes)
        units = {"ns": 1, "us": 1e3, "ms": 1e6}
        for who, kind, name, here, usual, by in rows:
            here, usual, by = (float(number) * units[unit] for number, unit in (words.split() for words in (here, usual, by)))
            self.assertEqual((who, kind), ("2", "kernel"), name)
            # Its other steps are slow, too, one in thirty.
            self.assertAlmostEqual(here / usual, 3 / (1 + 2 * 2 / 88), delta=0.2)
            self.assertAlmostEqual(by, here - usual, delta=0.02 * here)
        quiet = self.query(run, "SELECT step FROM step_times WHERE step > 5 ORDER BY mean_ns LIMIT 1")[0]["step"]
        self.assertIn("Nothing that a rank did took longer", self.run_well([GPUPROBE, "report", run, "--step", str(quiet)]).stdout.decode())
        warm = self.run_well([GPUPROBE, "report", run, "--step", "0"]).stdout.decode()
        self.assertIn("It belongs to the warm-up", warm.replace("\n", " "))
        self.assertRegex(warm, r"(?m)^ *all 4  idle: launches nothing")

    def test_documented_queries_are_right(self):
        """Each example of docs/sql.md against the same computed from the exported records and the report, without SQL."""
        run = self.simulate("straggler-kernels", "--slow-rank", "2", "--nvtx")
        rows, report = self.rows_by_kind(run), self.report(run)
        names = {row["symbol"]: row["name"] for row in self.query(run, "SELECT DISTINCT symbol, name FROM kernel")}
        for kernel in rows["kernel"]:
            kernel["name"], kernel["ns"] = names[kernel["name"]], kernel["end_ns"] - kernel["start_ns"]
        steps = [{"rank": rank["rank"], **step} for rank in json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--steps"]).stdout)["ranks"]
                 for step in rank["steps"]["records"]]
        by_name, by_rank = defaultdict(list), defaultdict(list)
        for kernel in rows["kernel"]:
            by_name[kernel["name"]].append(kernel["ns"])
        longest = max(by_name, key=lambda name: sum(by_name[name]))
        for kernel in rows["kernel"]:
            if kernel["name"] == longest:
                by_rank[kernel["rank"]].append(kernel["ns"])
        launched = {(row["rank"], row["correlation"]): row for row in rows["launch"]}
        ranges = {(row["rank"], row["id"]): row["name"] for row in rows["range"]}
        calls, waited, delays, gaps, in_range, copied, allocated = (defaultdict(list) for _ in range(7))
        for call in rows["collective"]:
            if "start_ns" in call and call["comm"] != "unknown":
                calls[call["comm"], call["seq"]].append(call)
        for (_, seq), of_call in calls.items():
            took = sorted(call["end_ns"] - call["start_ns"] for call in of_call)
            if len(took) > 1:
                waited["all"].append((of_call[0]["op"], seq, of_call[0]["bytes"], took[0] / 1e3, (took[-1] - took[0]) / 1e3))
        streams = defaultdict(list)
        for kernel in rows["kernel"]:
            launch = launched[kernel["rank"], kernel["correlation"]]
            delays[kernel["name"]].append(kernel["start_ns"] - launch["time_ns"])
            streams[kernel["rank"], kernel["device"], kernel["stream"]].append(kernel)
            name = ranges.get((kernel["rank"], launch["range"] or launch.get("fallback_range", 0)))
            if name is not None:
                in_range[name].append(kernel["ns"])
        for (rank, _, _), kernels in streams.items():
            kernels.sort(key=lambda kernel: kernel["start_ns"])
            gaps[rank] += [later["start_ns"] - earlier["end_ns"] for earlier, later in zip(kernels, kernels[1:]) if later["start_ns"] > earlier["end_ns"]]
        for copy in rows["memcpy"]:
            copied[copy["direction"]].append((copy["bytes"], copy["end_ns"] - copy["start_ns"]))
        for kind, sign in (("alloc", 1), ("free", -1)):
            for row in rows[kind]:
                if row["memory"] == "device" and "failed" not in row:
                    allocated[row["rank"]].append((row["time_ns"], sign * row["bytes"]))
        peaks = {}
        for rank, changes in allocated.items():
            level = peaks[rank] = 0
            for _, change in sorted(changes):
                level += change
                peaks[rank] = max(peaks[rank], level)
        steady = [step for step in steps if not step["warmup"]]

        def mean_of_rank(rank, *keys):
            values = [step[key] for step in steady if step["rank"] == rank for key in keys]
            return sum(values) / len(values) / 1e6

        by_step = defaultdict(list)
        for step in steps:
            by_step[step["index"]].append(step["end_ns"] - step["start_ns"])
        ranks = range(4)
        expected = {
            "AS total_ms, mean_ns": sorted(((name, len(ns), sum(ns) / 1e6, sum(ns) / len(ns) / 1e3) for name, ns in by_name.items()),
                                                  key=lambda row: -row[2])[:5],
            "FROM kernel_by_rank": sorted(((rank, sum(ns) / len(ns) / 1e3) for rank, ns in by_rank.items()), key=lambda row: -row[1]),
            "FROM step WHERE NOT warmup": [(rank, sum(step["end_ns"] - step["start_ns"] for step in steady if step["rank"] == rank)
                                            / sum(step["rank"] == rank for step in steady) / 1e6,
                                            *(mean_of_rank(rank, key) for key in ("compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns"))) for rank in ranks],
            "FROM step_times": sorted(((step, max(ns) / 1e6, sum(ns) / len(ns) / 1e6) for step, ns in by_step.items()), key=lambda row: -row[1])[:10],
            "FROM collective_by_call": sorted(waited["all"], key=lambda row: -row[4])[:10],
            "FROM copy_totals": sorted((direction, sum(size for size, _ in copies) / 1e9, sum(size for size, _ in copies) / sum(ns for _, ns in copies))
                                       for direction, copies in copied.items()),
            "FROM launch_delays": sorted(((name, sum(ns > 1e6 for ns in waits), max(waits) / 1e6) for name, waits in delays.items() if max(waits) > 1e6),
                                         key=lambda row: -row[2])[:10],
            "AS gaps_ms": [(rank, sum(gaps[rank]) / 1e6) for rank in ranks],
            "JOIN range": sorted(((name, len(ns), sum(ns) / 1e6) for name, ns in in_range.items()), key=lambda row: -row[2]),
            "AS peak_bytes": [(rank, peaks[rank]) for rank in ranks],
            "FROM report_findings": [(f["severity"], f["id"], f["statement"], f["cost_ns_per_step"] and f["cost_ns_per_step"] / 1e6) for f in report["findings"]],
        }
        sums = {(kernel["class"], kernel["phase"]): kernel["ns"] for kernel in self.query(
            run, "SELECT class, phase, sum(end_ns - start_ns) AS ns FROM kernel WHERE step IS NOT NULL GROUP BY class, phase")}
        expected["FROM kernel_time"] = sorted(((*key, ns / 1e6 / len(steps)) for key, ns in sums.items()), key=lambda row: -row[2])
        self.assertGreater(sum(len(ns) for ns in in_range.values()), 0.95 * len(rows["kernel"]), "backward's kernels are in ranges, too")
        for sql in self.documented_queries():
            known = [key for key in expected if key in sql]
            if "step_waits" in sql:  # test_waits_of_steps_are_the_reports
                continue
            with self.subTest(sql=sql):
                self.assertEqual(len(known), 1)
                found = [tuple(row.values()) for row in self.query(run, sql)]
                self.assertEqual(len(found), len(expected[known[0]]))
                for row, right in zip(found, expected[known[0]]):
                    for value, wanted in zip(row, right):
                        if isinstance(wanted, float):
                            self.assertAlmostEqual(value, wanted, delta=1e-9 * abs(wanted), msg=(row, right))
                        else:
                            self.assertEqual(value, wanted, (row, right))

    def documented_queries(self):
        with open(SQL_DOC, encoding="utf-8") as file:
            return re.findall(r"^```sql\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)

    def test_documented_queries_run(self):
        """Each example of docs/sql.md gives an answer."""
        run = self.simulate("straggler-kernels", "--slow-rank", "2", "--nvtx")
        with open(SQL_DOC, encoding="utf-8") as file:
            text = file.read()
        queries = self.documented_queries()
        self.assertGreaterEqual(len(queries), 8)
        database = self.database(run)
        for sql in queries:
            with self.subTest(sql=sql):
                self.assertTrue(database.execute(sql).fetchall())
                self.assertTrue(self.query(run, sql))
        views = {row[0] for row in database.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")}
        self.assertEqual(views, set(re.findall(r"^\| `(\w+)` \|.*\|$", text.partition("## Views")[2].partition("\n## ")[0], re.MULTILINE)))
        for view in views:
            rows = database.execute(f"SELECT * FROM {view}").fetchall()
            self.assertTrue(rows or view == "host_places", view)  # the program may have had no gap

    def test_documented_commands_run(self):
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy-nvtx", "--ranks", "2", "--steps", "20", "--out", os.path.join(self.cwd, "my-run")])
        commands = commands_of("sql.md")
        self.assertGreaterEqual(len(commands), 7)
        for arguments in commands:
            with self.subTest(" ".join(arguments)):
                finished = self.run_well([GPUPROBE, *arguments])
                self.assertTrue(finished.stdout or "--out" in arguments)


class Refusals(harness.EndToEndTest):

    def refused(self, *arguments, says, code):
        finished = self.run_program([GPUPROBE, *arguments])
        self.assertEqual((finished.returncode, finished.stdout), (code, b""), str(finished))
        self.assertIn(says, finished.stderr.decode())

    def test_what_is_refused(self):
        run = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--out", run, "--ranks", "2", "--steps", "5"])
        self.refused("query", run, says="needs a SELECT", code=2)
        self.refused("report", run, "--step", "5", says="no step 5 is kept: they go from 0 to 4", code=1)
        self.refused("report", run, run, "--step", "1", says="--step is of one run", code=2)
        self.refused("report", run, "--step", "-1", says="--step", code=2)
        self.refused("query", run, "SELECT a FROM nowhere", says="no such table: nowhere", code=1)
        self.refused("query", run, "SELECT 1; SELECT 2", says="one statement at a time", code=1)
        self.refused("query", run, "DELETE FROM kernel", says="only SELECT", code=1)
        self.refused("export", run, "--format", "sqlite", says="needs --out", code=2)
        self.refused("export", run, "--format", "jsonl", "--out", "x", says="is printed", code=2)
        self.refused("export", self.cwd, "--format", "sqlite", "--out", self.path("a.sqlite"), says="not a run directory", code=1)
        taken = self.path("taken.sqlite")
        with open(taken, "w", encoding="utf-8") as file:
            file.write("somebody's")
        self.refused("export", run, "--format", "sqlite", "--out", taken, says="exists", code=1)
        self.refused("export", run, "--format", "sqlite", "--out", "/dev/null/x", says="/dev/null/x", code=1)
        self.refused("export", run, "--format", "csv", "--out", "/dev/null/x", says="/dev/null/x", code=1)


if __name__ == "__main__":
    harness.main()
