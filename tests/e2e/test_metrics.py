"""Metrics as Prometheus sees them: promtool's checks, the alert rules in their scenarios, and every query of the dashboard against a real Prometheus.

scripts/prometheus-env.sh unpacks the programs; they may also be on PATH. Without them everything here is skipped. OpenMetrics is also read by the strict parser of
scripts/analysis-env.sh.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request

import harness
from harness import GPUPROBE, SOURCE, wait_until

SKIPPED = 77
FOLDER = os.environ.get("GPUPROBE_TEST_PROMETHEUS") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "prometheus")
SEARCH = f"{os.path.join(FOLDER, 'bin')}:{os.environ['PATH']}"
PROMTOOL, PROMETHEUS = (shutil.which(name, path=SEARCH) for name in ("promtool", "prometheus"))
RULES = os.path.join(SOURCE, "samples", "prometheus")
DASHBOARD = os.path.join(SOURCE, "samples", "grafana", "gpuprobe.json")
PARSER = os.path.join(os.environ.get("GPUPROBE_ANALYSIS_ENV") or os.path.join(os.path.dirname(FOLDER), "analysis-env"), "bin", "python")
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
# Prints each family's name, type, unit, and how many samples it has; raises where the text is not OpenMetrics.
PARSE = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as families
print(json.dumps([[f.name, f.type, f.unit, [[s.name, s.labels, s.value] for s in f.samples]] for f in families(sys.stdin.read())]))
"""
SLOW = 5  # the rank at fault in the scenario


def queries():
    """(title, expression) of each query of the dashboard."""
    with open(DASHBOARD, encoding="utf-8") as file:
        dashboard = json.load(file)
    return [(panel["title"], target["expr"].replace("$job", "training")) for panel in dashboard["panels"] for target in panel["targets"]]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Metrics(harness.EndToEndTest):

    def promtool(self, *arguments, stdin=None):
        done = subprocess.run([PROMTOOL, *arguments], input=stdin, capture_output=True, timeout=harness.LIMIT_S, check=False)
        self.assertEqual(done.returncode, 0, f"{done.stdout.decode()}{done.stderr.decode()}")
        self.assertNotIn(b"FAILED", done.stdout + done.stderr)
        return done.stdout + done.stderr

    def recording(self):
        """A collector that serves, and a job of 8 ranks that runs as slowly as a real one. Returns the port and the job."""
        collector = harness.Collector(self, arguments=["--http", "127.0.0.1:0"])
        port = int(wait_until(lambda: re.search(rb"http://127\.0\.0\.1:(\d+)", collector.program.so_far()), "address")[1])
        job = self.start([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--ranks", "8", "--steps", "1000000", "--real-time", "--socket", collector.socket])
        return collector, port, job

    def end_program(self, program):
        program.signal(15)
        program.wait()

    def end(self, collector, *programs):
        for program in programs:
            program.signal(15)
            program.wait()
        collector.program.signal(15)
        collector.program.wait()

    def test_rules(self):
        self.promtool("check", "rules", os.path.join(RULES, "gpuprobe.rules.yml"))
        self.promtool("test", "rules", os.path.join(RULES, "gpuprobe.tests.yml"))
        with open(os.path.join(RULES, "gpuprobe.rules.yml"), encoding="utf-8") as file:
            alerts = re.findall(r"- alert: (\w+)", file.read())
        with open(os.path.join(RULES, "gpuprobe.tests.yml"), encoding="utf-8") as file:
            tests = file.read()
        scenarios = tests.count("- interval:") - 1  # the last is of recording rules
        for alert in alerts:
            self.assertEqual(tests.count(f"alertname: {alert}\n"), scenarios, "each scenario says of each alert whether it fires")
            self.assertEqual(len(re.findall(rf"alertname: {alert}\n        exp_alerts:", tests)), 1)

    def scrape(self, port, accept):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=harness.LIMIT_S) as answer:
            return answer.headers["Content-Type"], answer.read().decode()

    def test_open_metrics_says_the_same_as_the_text_of_prometheus(self):
        if not os.path.exists(PARSER) or subprocess.run([PARSER, "-c", "import prometheus_client"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no prometheus_client: run scripts/analysis-env.sh")
        out = self.path("recorded")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--ranks", "8", "--steps", "40", "--out", out])
        served = self.start([GPUPROBE, "report", out, "--serve", "127.0.0.1:0"])
        port = int(wait_until(lambda: re.search(rb"http://127\.0\.0\.1:(\d+)", served.so_far()), "address")[1])
        content_type, plain = self.scrape(port, "text/plain")
        self.assertEqual(content_type, "text/plain; version=0.0.4; charset=utf-8")
        content_type, text = self.scrape(port, OPEN_METRICS)
        self.assertEqual(content_type, OPEN_METRICS + "; charset=utf-8")
        self.assertTrue(text.endswith("\n# EOF\n"))
        parsed = subprocess.run([PARSER, "-c", PARSE], input=text, capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
        self.assertEqual(parsed.returncode, 0, parsed.stderr[-2000:])
        families = json.loads(parsed.stdout)
        for name, kind, unit, samples in families:
            self.assertEqual(unit, next((u for u in ("seconds", "bytes", "ratio", "hertz", "watts", "celsius") if name.endswith("_" + u)), ""), name)
            for sample, _, _ in samples:
                self.assertTrue(sample == name + "_total" if kind == "counter" else sample.startswith(name), sample)
        # The same samples as in the other format, but for what moves between two requests.
        moving = ("gpuprobe_http_", "gpuprobe_collector_cpu", "gpuprobe_collector_resident")
        ours = {(sample, *sorted(value for key, value in labels.items() if key != "le")): value for _, _, _, samples in families for sample, labels, value in samples
                if not sample.startswith(moving) and "le" not in labels}
        theirs = {}
        for line in plain.splitlines():
            found = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if found and not line.startswith(("#", *moving)) and "le=" not in line:
                theirs[(found[1], *sorted(re.findall(r'="((?:[^"\\]|\\.)*)"', found[2] or "")))] = float(found[3])
        self.assertGreater(len(ours), 150)
        self.assertEqual(ours.keys(), theirs.keys())
        for key, value in ours.items():
            self.assertAlmostEqual(value, theirs[key], delta=1e-9 * max(1, abs(value)), msg=key)
        self.end_program(served)

    def test_a_real_prometheus_answers_every_query_of_the_dashboard(self):
        collector, port, job = self.recording()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=harness.LIMIT_S) as answer:
            self.promtool("check", "metrics", stdin=answer.read())
        prometheus_port = free_port()
        config = self.path("prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [os.path.join(RULES, "gpuprobe.rules.yml")],
                       "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}, file)
        self.promtool("check", "config", config)
        prometheus = self.start([PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={self.path('data')}", f"--web.listen-address=127.0.0.1:{prometheus_port}",
                                 "--log.level=error"])

        def ask(expression):
            url = f"http://127.0.0.1:{prometheus_port}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
            try:
                with urllib.request.urlopen(url, timeout=harness.LIMIT_S) as answer:
                    return [(sample["metric"], float(sample["value"][1])) for sample in json.load(answer)["data"]["result"]]
            except OSError:
                self.assertTrue(prometheus.alive(), prometheus.so_far())
                return []

        # A rate needs two samples, and a step is counted after the warm-up.
        wait_until(lambda: any(value == value for _, value in ask("gpuprobe:step_seconds:mean5m")), "times of steps in Prometheus")
        self.assertGreaterEqual(len(queries()), 14)
        for title, expression in queries():
            with self.subTest(title, expression=expression):
                wait_until(lambda expression=expression: ask(expression), f"data for {title}: {expression}")
        # The rank that the alert would name, five minutes later.
        late = wait_until(lambda: [metric["rank"] for metric, value in ask("gpuprobe:rank_caused_wait:ratio5m > 0.05")], "the late rank")
        self.assertEqual(late, [str(SLOW)])
        states = {metric["__name__"]: value for metric, value in ask('{__name__=~"gpuprobe_hangs|gpuprobe_ranks|gpuprobe_rank_halted"}')}
        self.assertEqual(states, {"gpuprobe_hangs": 0, "gpuprobe_ranks": 8, "gpuprobe_rank_halted": 0})
        self.end(collector, job, prometheus)


if __name__ == "__main__":
    if not PROMTOOL or not PROMETHEUS:
        print(f"skipped: no prometheus in {FOLDER} or on PATH; scripts/prometheus-env.sh unpacks it")
        sys.exit(SKIPPED)
    harness.main()
