"""Rows of a hub's jobs in ClickHouse: against the run's own tables, with a server that is away, busy, forgets to answer, and is too old.

The server is ClickHouse's current engine (scripts/clickhouse-env.sh); without it the test is skipped, and says so (77).
"""
import glob
import http.server
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

import clickhouse_server
import harness
from harness import DDP_TRAIN, GPUPROBE, SOURCE

SECRET = "a-secret-of-hosts-and-their-hub"
PASSWORD = "a-password-of-the-server"
SLOW_STEPS = ["--layers", "24", "--batch", "256"]  # some 10 ms each
PARTS = ["compute_ns", "exposed_comm_ns", "copy_ns", "host_bound_ns", "input_wait_ns", "sync_ns", "memory_ns", "pause_ns", "launch_gap_ns", "unknown_ns"]


class ClickHouse(clickhouse_server.WithClickHouse):

    def start_hub(self, *options, port=0, **env):
        hub = self.start([GPUPROBE, "hub", "--listen", f"127.0.0.1:{port}", "--out", self.path("jobs"), "--clickhouse", self.url, *options],
                         env={"GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, **env})
        harness.wait_until(lambda: b"GPUPROBE_HUB=" in hub.so_far() or not hub.alive(), "hub")
        self.assertTrue(hub.alive(), hub.so_far().decode())
        self.port = re.search(r"GPUPROBE_HUB=\S+:(\d+)", hub.so_far().decode())[1]
        return hub

    def start_job(self, *arguments, name="a job", **env):
        script = " & ".join(f"RANK={rank} LOCAL_RANK={rank} {DDP_TRAIN} {' '.join(arguments)}" for rank in (0, 1)) + " & wait"
        self.runs = getattr(self, "runs", 0) + 1
        return self.start([GPUPROBE, "run", "--out", self.path(f"run-{self.runs}"), "--", "bash", "-c", script], devices=2,
                          env={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": name, "DDP_ID_FILE": self.path("id"),
                               "GPUPROBE_HUB": f"127.0.0.1:{self.port}", "GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, **env})

    def over(self, hub, jobs=1):
        harness.wait_until(lambda: hub.so_far().count(b"gpuprobe: over:") == jobs, "the end of the job")

    def settled(self):
        """All rows are at the server."""
        harness.wait_until(lambda: not glob.glob(self.path("jobs", "clickhouse-spool", "*.round")) and self.ask("SELECT count() FROM gpuprobe.jobs WHERE state = 'over'")[0][0] > 0, "rows")

    def run_of(self, attempt):
        (name,), = self.ask(f"SELECT run FROM gpuprobe.jobs FINAL WHERE attempt = {attempt}")
        return self.path("jobs", name)

    def local(self, sql, run):
        done = self.run_program([GPUPROBE, "query", "--format", "jsonl", run, sql])
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return [list(json.loads(line).values()) for line in done.stdout.splitlines()]

    def check_steps(self, run):
        """Each step of each rank, as the run's own tables have it, once."""
        columns = f"step, rank, total_ns, comm_ns, forward_ns, backward_ns, optimizer_ns, operations, warmup, incomplete, {', '.join(PARTS)}"
        told = self.ask(f"SELECT {columns} FROM gpuprobe.steps ORDER BY step, rank")
        recorded = self.local(f"SELECT {columns} FROM step ORDER BY step, rank", run)
        self.assertGreater(len(recorded), 100)
        self.assertEqual([[int(value) for value in row] for row in told], [[int(value) for value in row] for row in recorded])

    def answers(self):
        return self.questions(job="127.0.0.1:29500 a job", attempt=2)

    def check_questions(self):
        """Of two attempts of a job, in the second of which rank 1 is slow."""
        answers = self.answers()
        self.assertEqual(len(answers), 8)
        self.assertEqual(answers["GPUs were at"], [], "in one attempt only")
        self.assertEqual(answers["jobs are sic"], [], "they are over")
        causes = {row[0]: row[1:] for row in answers["lost in a mo"]}
        self.assertEqual(causes["straggler-slow-gpu"][0], 1)
        self.assertGreater(causes["straggler-slow-gpu"][2], 10, "% of all GPU time")
        # A step takes what a busy machine lets it take; what a GPU computes in it does not depend on that.
        (_, first, step_ms, _, compute_ms, *_), (_, second, second_step_ms, slower, second_compute_ms, *_) = answers["how much a j"]
        self.assertEqual((first, second), (1, 2))
        self.assertAlmostEqual(slower, 100 * (second_step_ms / step_ms - 1), delta=0.2)
        self.assertGreater(second_compute_ms, 1.5 * compute_ms)
        for attempt, mean_ms in ((1, step_ms), (2, second_step_ms)):
            (mean_ns,), = self.local("SELECT avg(total_ns) FROM step WHERE NOT warmup AND NOT incomplete", self.run_of(attempt))
            self.assertAlmostEqual(mean_ms, mean_ns / 1e6, delta=0.001 * mean_ms)
        self.assertEqual(answers["rank of a jo"][0][0], 1)
        self.assertGreater(answers["rank of a jo"][0][3], 10 * answers["rank of a jo"][1][3])
        hours = answers["long steps t"]
        self.assertTrue(hours and all(row[4][0] <= row[4][1] <= row[3] for row in hours), hours)
        self.assertTrue(answers["kernels take"], "on average over the ranks")
        self.assertEqual(answers["was lost"], [])

    def check_dashboard(self):
        """The queries of samples/grafana/gpuprobe-clickhouse.json, with what Grafana puts in for its macros and variables: all of them answer, and those have rows for which there is something."""
        with open(os.path.join(SOURCE, "samples", "grafana", "gpuprobe-clickhouse.json"), encoding="utf-8") as file:
            dashboard = json.load(file)

        def answer(sql):
            sql = re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 >= toDateTime(now() - 3600) AND \1 <= toDateTime(now() + 60)", sql)
            sql = sql.replace("${job:singlequote}", "'127.0.0.1:29500 a job'").replace("${attempt}", "2")
            self.assertNotIn("$", sql)
            return self.ask(sql)
        for variable in dashboard["templating"]["list"][1:]:
            self.assertTrue(answer(variable["query"]["rawSql"]), variable["name"])
        answers = {panel["title"]: answer(panel["targets"][0]["rawSql"]) for panel in dashboard["panels"]}
        empty = [title for title, rows in answers.items() if not rows]
        self.assertEqual(empty, ["Open findings"], "all jobs are over")
        (uuid, _, jobs, findings, _), = answers["GPUs at fault in several jobs"]
        self.assertEqual((jobs, findings), (2, ["straggler-slow-gpu"]))
        self.assertEqual(answers["Ranks for which the others wait"][0][:3], [1, self.ask("SELECT host FROM gpuprobe.ranks LIMIT 1")[0][0], uuid])
        self.assertEqual([row[0] for row in answers["Attempts"]], [3, 2, 1])
        self.assertEqual([answers["Jobs running"], answers["Jobs that hang"]], [[[0]], [[0]]])
        for row in answers["Where a step's time goes"]:
            same, = (each for each in answers["Time of a step"] if each[0] == row[0])
            self.assertLess(sum(row[1:]), same[3] * 1.001)
            self.assertGreater(sum(row[1:]), same[1] / 2)

    def test_the_rows_of_a_job_are_what_its_run_says(self):
        self.start_server()
        hub = self.start_hub("--cluster", "green")
        self.start_job("--steps", "150", *SLOW_STEPS, GPUSIM_SLOW="rank=1,factor=4").wait(harness.LIMIT_S)
        self.over(hub)
        self.settled()
        run, = (path for path in glob.glob(self.path("jobs", "*")) if not path.endswith("spool"))
        with open(os.path.join(run, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.check_steps(run)
        job, = self.ask("SELECT cluster, attempt, state, run, ranks, world_size, gpus, steps, step_ns, finding, statement, ended >= begun FROM gpuprobe.jobs FINAL")
        first = report["findings"][0]
        self.assertEqual(job[:8], ["green", 1, "over", os.path.basename(run), 2, 2, 2, report["steps"]["count"]])
        self.assertAlmostEqual(job[8] / report["steps"]["time_ns"]["mean"], 1, delta=0.02)
        self.assertEqual(job[9:], [first["id"], first["statement"], 1])
        # Sums of windows are the whole.
        kernels = dict(self.ask("SELECT rank, sum(calls) FROM gpuprobe.kernels GROUP BY rank"))
        self.assertEqual(kernels, {rank["rank"]: rank["kernels"]["count"] for rank in report["ranks"]})
        ranks = self.ask("SELECT rank, steps, kernels, gpu_uuid, caused_wait_ns > waited_ns FROM gpuprobe.ranks FINAL ORDER BY rank")
        self.assertEqual([row[:3] for row in ranks], [[rank["rank"], rank["steps"]["count"], rank["kernels"]["count"]] for rank in report["ranks"]])
        self.assertEqual([row[3] for row in ranks], [device["uuid"] for device in report["conditions"]["devices"]])
        self.assertEqual([row[4] for row in ranks], [0, 1], "rank 1 makes the other wait")
        calls = self.ask("SELECT rank, sum(calls) FROM gpuprobe.collectives GROUP BY rank ORDER BY rank")
        self.assertEqual(calls, [[rank["rank"], sum(each["calls"] for each in rank["collectives"])] for rank in report["ranks"]])
        # What a materialised view adds up.
        hours = self.ask("SELECT sum(steps), sum(total_ns), sum(compute_ns) FROM gpuprobe.step_hours")
        self.assertEqual(hours, self.ask("SELECT count(), sum(total_ns), sum(compute_ns) FROM gpuprobe.steps WHERE NOT warmup AND NOT incomplete"))
        findings = self.ask("SELECT finding, severity, statement, ranks, closed IS NULL FROM gpuprobe.findings FINAL WHERE at_end")
        self.assertEqual(sorted(findings), sorted([each["id"], each["severity"], each["statement"], each["about"]["ranks"], 1] for each in report["findings"]))
        self.assertEqual(self.ask("SELECT finding, gpu_uuids FROM gpuprobe.findings FINAL WHERE finding LIKE 'straggler%'"),
                         [["straggler-slow-gpu", [report["conditions"]["devices"][1]["uuid"]]]])
        self.assertEqual(self.ask("SELECT what, why, count FROM gpuprobe.losses"), [])

    def test_a_server_that_is_away_busy_and_forgets_to_answer_loses_and_doubles_nothing(self):
        self.start_server()
        self.behave("down")
        hub = self.start_hub()
        self.assertRegex(hub.so_far().decode(), r"gpuprobe: ClickHouse: http://127.0.0.1:\d+ does not answer \(.*\); rows wait in \S+/clickhouse-spool\n")
        job = self.start_job("--steps", "100000", *SLOW_STEPS)
        spool = self.path("jobs", "clickhouse-spool")
        harness.wait_until(lambda: len(glob.glob(os.path.join(spool, "*.round"))) > 3, "rows in the spool")
        # What a hub leaves that is killed, the next one sends.
        hub.signal(signal.SIGKILL)
        hub.wait(harness.LIMIT_S)
        left = {name for name in os.listdir(spool) if name.endswith(".round")}
        self.behave("late")
        again = self.start_hub(port=self.port)
        harness.wait_until(lambda: b"does not answer" in again.so_far(), "an answer that was lost")
        self.behave("busy")
        harness.wait_until(lambda: b"Too many simultaneous queries" in again.so_far(), "a server with too much to do")
        self.behave("well")
        harness.wait_until(lambda: b"gpuprobe: ClickHouse has all rows again" in again.so_far(), "the rows")
        self.assertFalse(left & set(os.listdir(spool)))
        for pid in harness.processes_of_session(job.pid):
            if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                os.kill(pid, signal.SIGTERM)
        job.wait(harness.LIMIT_S)
        self.over(again)
        self.settled()
        self.assertEqual(self.ask("SELECT count() FROM gpuprobe.steps"), self.ask("SELECT uniqExact(step, rank) FROM gpuprobe.steps"))
        self.assertEqual(self.ask("SELECT sum(steps) FROM gpuprobe.step_hours"), self.ask("SELECT countIf(NOT warmup AND NOT incomplete) FROM gpuprobe.steps"))
        run, = (path for path in glob.glob(self.path("jobs", "*")) if not path.endswith("spool"))
        recorded = self.local("SELECT count(*), max(step) FROM step", run)
        self.assertEqual(self.ask("SELECT what, why, count FROM gpuprobe.losses"), [])
        self.assertEqual(self.ask("SELECT count(), max(step) FROM gpuprobe.steps"), recorded)
        for table, recorded in (("kernels", "kernel"), ("collectives", "collective")):
            self.assertEqual(self.ask(f"SELECT rank, sum(calls) FROM gpuprobe.{table} GROUP BY rank ORDER BY rank"), self.local(f"SELECT rank, count(*) FROM {recorded} GROUP BY rank ORDER BY rank", run), table)
        self.assertEqual(self.ask("SELECT job, attempt, state FROM gpuprobe.jobs FINAL"), [["127.0.0.1:29500 a job", 1, "over"]])
        self.assertEqual(self.ask("SELECT what, why, count FROM gpuprobe.losses"), [])

    def test_findings_open_while_the_job_runs_and_attempts_are_told_apart(self):
        self.start_server("writer", PASSWORD)
        hub = self.start_hub(CLICKHOUSE_USER="writer", CLICKHOUSE_PASSWORD=PASSWORD)
        self.start_job("--steps", "150", *SLOW_STEPS).wait(harness.LIMIT_S)
        self.over(hub)
        job = self.start_job("--steps", "100000", *SLOW_STEPS, GPUSIM_SLOW="rank=1,factor=4")
        found = harness.wait_until(lambda: self.ask("SELECT attempt, ranks, at_end, closed IS NULL, lost_gpu_seconds > 0 FROM gpuprobe.findings FINAL WHERE finding = 'straggler-slow-gpu'"),
                                   "the finding")
        self.assertEqual(found, [[2, [1], 0, 1, 1]])
        steps = self.ask("SELECT attempt, uniqExact(rank), max(step) > 0 FROM gpuprobe.steps GROUP BY attempt ORDER BY attempt")
        self.assertEqual(steps, [[1, 2, 1], [2, 2, 1]])
        self.assertEqual(self.ask("SELECT attempt, state FROM gpuprobe.jobs FINAL ORDER BY attempt"), [[1, "over"], [2, "running"]])
        for pid in harness.processes_of_session(job.pid):
            if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                os.kill(pid, signal.SIGTERM)
        job.wait(harness.LIMIT_S)
        self.over(hub, jobs=2)
        harness.wait_until(lambda: self.ask("SELECT count() FROM gpuprobe.jobs FINAL WHERE state = 'over'") == [[2]], "the second end")
        # The rows that were written live and those at the end are one series.
        self.assertEqual(self.ask("SELECT count(), count(DISTINCT step), max(step) + 1 FROM gpuprobe.steps WHERE attempt = 2 AND rank = 0")[0][1:],
                         self.ask("SELECT count(), max(step) + 1 FROM gpuprobe.steps FINAL WHERE attempt = 2 AND rank = 0")[0])
        self.check_questions()
        self.start_job("--steps", "150", *SLOW_STEPS, GPUSIM_SLOW="rank=1,factor=4").wait(harness.LIMIT_S)
        self.over(hub, jobs=3)
        (uuid, host, jobs, findings, _), = harness.wait_until(lambda: self.answers()["GPUs were at"], "a repeat offender")
        self.assertEqual((jobs, findings), (2, ["straggler-slow-gpu"]))
        self.assertEqual(self.ask("SELECT DISTINCT gpu_uuid, host FROM gpuprobe.ranks WHERE rank = 1"), [[uuid, host]])
        self.check_dashboard()
        # The password is not handed on, and stands nowhere.
        environment = harness.read_proc(hub.pid, "environ") + harness.read_proc(hub.pid, "cmdline")
        self.assertIn(b"CLICKHOUSE_PASSWORD", environment, "as it was given")
        self.assertNotIn(PASSWORD.encode(), hub.so_far())

    def test_what_it_refuses(self):
        self.start_server("writer", PASSWORD)

        def refused(code, words, *options, **env):
            done = self.run_program([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--out", self.path("jobs"), *options], env={"GPUPROBE_HUB_TOKEN": SECRET, **env})
            said = done.stderr.decode()
            self.assertEqual((done.returncode, said.count("\n")), (code, 1), said)
            self.assertRegex(said, words)
        known = {"CLICKHOUSE_USER": "writer", "CLICKHOUSE_PASSWORD": PASSWORD}
        refused(1, "Authentication failed", "--clickhouse", self.url)
        self.behave("old")
        refused(1, "ClickHouse 18.16.1 is too old: gpuprobe needs 22.8 or newer", "--clickhouse", self.url, **known)
        refused(1, "ClickHouse 18.16.1 is too old: gpuprobe needs 22.8 or newer", "--clickhouse", self.url, "--migrate", **known)
        self.behave("well")
        refused(2, "must be http://HOST:8123 or https://HOST:8443", "--clickhouse", "ch:8123")
        refused(2, "set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD instead", "--clickhouse", "http://me:secret@ch:8123")
        refused(2, "must be letters, digits and _", "--clickhouse", self.url, "--clickhouse-database", "x;DROP")
        refused(2, "--clickhouse", "--clickhouse-database", "x")
        refused(1, "does not answer", "--clickhouse", "http://127.0.0.1:1", "--migrate")
        refused(0, "has all tables in other", "--clickhouse", self.url, "--migrate", "--clickhouse-database", "other", **known)
        refused(0, "has all tables in other", "--clickhouse", self.url, "--migrate", "--clickhouse-database", "other", **known)
        self.assertEqual(self.ask("SELECT number FROM other.schema_migrations"), [[1]])
        shown = self.run_program([GPUPROBE, "hub", "--clickhouse", "http://ch:8123", "--dry-run"])
        with open(os.path.join(SOURCE, "tests", "collector", "clickhouse", "migrations.sql"), encoding="utf-8") as file:
            self.assertEqual(shown.stdout.decode(), file.read(), "a migration that was released never changes: add another one")
        replicated = self.run_program([GPUPROBE, "hub", "--clickhouse", "http://ch:8123", "--dry-run", "--clickhouse-replicas", "green"]).stdout.decode()
        self.assertIn("CREATE TABLE IF NOT EXISTS gpuprobe.steps ON CLUSTER green", replicated)
        self.assertIn("ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/gpuprobe/steps', '{replica}', revision)", replicated)

    def test_rows_of_several_users(self):
        """Two users of a hub call their jobs the same. The engine has no users, so a user's policy is its own user's filter, and the statements are only parsed."""
        policies = self.run_program([GPUPROBE, "hub", "--clickhouse", "http://ch:8123", "--row-policies", "gpuprobe,grafana"]).stdout.decode().split(";\n")[:-1]
        filters = {table: rule for policy in policies for table, rule in re.findall(r"own_rows ON gpuprobe\.(\w+) FOR SELECT USING (.*) TO ALL EXCEPT gpuprobe,grafana$", policy)}
        self.assertEqual((len(filters), len(policies)), (10, 31))
        os.makedirs(self.path("server"))
        with open(self.path("server", "config.xml"), "w", encoding="utf-8") as file:
            file.write(f"<clickhouse><user_directories><users_xml><path>{self.path('server', 'users.xml')}</path></users_xml></user_directories></clickhouse>")
        with open(self.path("server", "users.xml"), "w", encoding="utf-8") as file:
            rules = "".join(f"<{table}><filter>{rule}</filter></{table}>" for table, rule in filters.items())
            file.write("<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default><password></password><networks><ip>::/0</ip></networks><profile>default</profile>"
                       f"<quota>default</quota><databases><gpuprobe>{rules}</gpuprobe></databases></default></users></clickhouse>")
        tokens = {user: f"the-hub-token-of-{user}" for user in ("default", "alice")}
        with open(self.path("users"), "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("".join(f"{user} {token}\n" for user, token in tokens.items()))
        self.start_server()
        for policy in policies:
            self.assertTrue(self.post("/", f"EXPLAIN AST {policy}".encode()), policy)
        hub = self.start_hub("--users", self.path("users"))
        jobs = {user: self.start_job("--steps", "150", GPUPROBE_HUB_TOKEN=token, DDP_ID_FILE=self.path(f"id-{user}")) for user, token in tokens.items()}
        for job in jobs.values():
            job.wait(harness.LIMIT_S)
        self.over(hub, 2)
        self.settled()
        harness.wait_until(lambda: self.ask("SELECT sum(rows) FROM system.parts WHERE database = 'gpuprobe' AND table = 'steps' AND active")[0][0] >= 2 * 2 * 149, "steps of both")
        for table in sorted(filters):
            users = self.ask(f"SELECT user, count() FROM gpuprobe.{table} GROUP BY user")
            self.assertEqual([user for user, _ in users], ["default"] if table != "losses" else [], table)
        (name, attempt, run, steps), = self.ask("SELECT job, attempt, run, steps FROM gpuprobe.jobs FINAL")
        self.assertEqual((name, attempt, run.split("/")[0]), ("127.0.0.1:29500 a job", 1, "default"))
        sums = "count(*), sum(total_ns), sum(operations)"
        self.assertEqual(self.ask(f"SELECT {sums} FROM gpuprobe.steps FINAL"), [[int(value) for value in row] for row in self.local(f"SELECT {sums} FROM step", self.path("jobs", run))])
        self.assertGreaterEqual(self.ask("SELECT sum(rows) FROM system.parts WHERE database = 'gpuprobe' AND table = 'jobs' AND active")[0][0], 2, "one of each")
        self.assertGreater(steps, 100)
        # Neither's rows took the place of the other's.
        self.post("/", b"OPTIMIZE TABLE gpuprobe.jobs FINAL")
        self.assertEqual(self.ask("SELECT sum(rows) FROM system.parts WHERE database = 'gpuprobe' AND table = 'jobs' AND active"), [[2]])

    def test_a_certificate_is_checked(self):
        """That of a server which claims to have all tables."""
        key, certificate = self.path("key.pem"), self.path("certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "1", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True, timeout=60)

        class Server(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                asked = self.rfile.read(int(self.headers["Content-Length"]))
                said = b"26.9.2.1\n" if b"version()" in asked else b"1\n"
                self.send_response(200)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        server.handle_error = lambda *_: None  # a client that refuses it
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            ask = [GPUPROBE, "hub", "--clickhouse", f"https://localhost:{server.server_port}", "--migrate"]
            unknown, known = self.run_program(ask), self.run_program(ask, env={"SSL_CERT_FILE": certificate})
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
        self.assertEqual((unknown.returncode, known.returncode), (1, 0), known.stderr)
        self.assertIn(b"does not answer (SSLServerVerification)", unknown.stderr)

    def test_every_column_is_there(self):
        """Those of a server whose tables the migrations made, and no others, as docs/clickhouse.md lists them."""
        self.start_server()
        self.run_program([GPUPROBE, "hub", "--clickhouse", self.url, "--migrate"])
        columns = self.ask("SELECT table, name, comment FROM system.columns WHERE database = 'gpuprobe' AND comment != '' ORDER BY table, position")
        with open(os.path.join(SOURCE, "docs", "clickhouse.md"), encoding="utf-8") as file:
            document = file.read()
        listed = [(table, *row) for table, rows in re.findall(r"### `(\w+)`\n(.*?)(?=\n#|\Z)", document, re.DOTALL) for row in re.findall(r"^\| `(\w+)` \| [^|]+ \| (.*) \|$", rows, re.MULTILINE)]
        self.assertEqual(sorted(listed), sorted(tuple(row) for row in columns))
        self.assertEqual(subprocess.run([sys.executable, os.path.join(SOURCE, "tests", "e2e", "clickhouse_tables.py")], check=False, timeout=60).returncode, 0)


if __name__ == "__main__":
    clickhouse_server.skip_without()
    unittest.main()
