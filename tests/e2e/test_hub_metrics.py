"""What a hub tells Prometheus: its own health, the jobs that are not over, and the ranks for which others wait.

The rules' scenarios, every query of the dashboard against a real Prometheus, and alerts that fire for a real straggler and for nobody else. scripts/prometheus-env.sh
unpacks the programs; without them everything here is skipped.
"""
import http.server
import json
import os
import re
import ssl
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

import harness
import test_metrics
from harness import GPUPROBE, SOURCE, wait_until
from test_metrics import PROMETHEUS, PROMTOOL, RULES

DASHBOARD = os.path.join(SOURCE, "samples", "grafana", "gpuprobe-hub.json")
SECRET = "a-secret-of-hosts-and-their-hub"
TOKEN = "a-token-of-the-metrics-of-a-hub"
LATE, WELL, SHORT = "late:29500 late", "well:29500 well", "short:29500 short"
RANKS = 18
SLOW = 5  # the rank at fault in the scenario


class DcgmExporter(http.server.BaseHTTPRequestHandler):
    """One series in dcgm-exporter's words, of the GPU of the rank at fault."""

    def do_GET(self):  # pylint: disable=invalid-name
        text = f'DCGM_FI_DEV_POWER_USAGE{{gpu="5",UUID="{self.server.uuid}",device="nvidia5",modelName="NVIDIA H100",hostname="elsewhere"}} 310.5\n'
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class HubMetrics(harness.EndToEndTest):

    def start_hub(self, *options, **env):
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", self.path("jobs"), *options],
                         env={"GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, **env})
        wait_until(lambda: b"jobs: http://" in hub.so_far() or not hub.alive(), "hub")
        self.assertTrue(hub.alive(), hub.so_far().decode())
        self.hub_port = re.search(r"GPUPROBE_HUB=\S+:(\d+)", hub.so_far().decode())[1]
        self.url = re.search(r"jobs: (http://\S+)", hub.so_far().decode())[1]
        return hub

    def start_job(self, name, scenario, *options):
        """A simulated job in a real recording that goes to the hub."""
        address, run = name.split()
        return self.start([GPUPROBE, "run", "--", "sh", "-c", f'exec {GPUPROBE} simulate --scenario {scenario} --socket "$GPUPROBE_SOCKET" {" ".join(options)}'],
                          env={"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": address.split(":")[0], "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": run,
                               "GPUPROBE_HUB": f"127.0.0.1:{self.hub_port}", "GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder, "GPUPROBE_OUT": self.path(run)})

    def post_without_the_secret(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        request = urllib.request.Request(f"https://127.0.0.1:{self.hub_port}/v1/hub", data=b"x", headers={"X-Gpuprobe-Signature": "00"})
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=20, context=context)  # pylint: disable=consider-using-with
        self.assertEqual(refused.exception.code, 403)

    def metrics(self, accept="text/plain", **headers):
        """(status, content type, text)"""
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}/metrics", headers={"Accept": accept, **headers}), timeout=20) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    def series(self, name):
        """[(labels, value)] of a metric."""
        found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", self.metrics()[2], re.MULTILINE)
        return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in found]

    def value(self, name, **labels):
        values = [value for of, value in self.series(name) if labels.items() <= of.items()]
        return values[0] if len(values) == 1 else None

    def end(self, *programs):
        for program in programs:
            program.signal(15)
        for program in programs:
            program.wait()

    def test_rules(self):
        promtool = test_metrics.Metrics.promtool
        promtool(self, "check", "rules", os.path.join(RULES, "gpuprobe-hub.rules.yml"))
        promtool(self, "test", "rules", os.path.join(RULES, "gpuprobe-hub.tests.yml"))
        alerts = re.findall(r"- alert: (\w+)", harness.read_file(os.path.join(RULES, "gpuprobe-hub.rules.yml")).decode())
        tests = harness.read_file(os.path.join(RULES, "gpuprobe-hub.tests.yml")).decode()
        for alert in alerts:
            self.assertEqual(tests.count(f"alertname: {alert}\n"), tests.count("- interval:"), "each scenario says of each alert whether it fires")
            self.assertEqual(len(re.findall(rf"alertname: {alert}\n        exp_alerts:", tests)), 1)

    def test_who_may_read_and_what_it_refuses(self):
        self.start_hub("--metrics", "job", GPUPROBE_HTTP_TOKEN=TOKEN)
        self.assertEqual(self.metrics()[0], 401)
        self.assertEqual(self.metrics(Authorization=f"Bearer {TOKEN}")[0], 200)
        status, kind, text = self.run_refused("--metrics", "all")
        self.assertEqual((status, kind), (2, b""), text)

    def check_levels(self, hub):
        """Of another hub that goes on with the same jobs."""
        self.assertEqual(len({labels["rank"] for labels, _ in self.series("gpuprobe_rank_up") if labels["job"] == LATE}), 16)
        self.assertLessEqual(len(re.findall(rf'^gpuprobe_\w+{{job="{LATE}".*rank="{SLOW}"', self.metrics()[2], re.MULTILINE)), 12)
        for level, ranks in (("job", 0), ("ranks", RANKS)):
            self.end(hub)
            hub = self.start_hub("--metrics", level)
            wait_until(lambda: self.value("gpuprobe_ranks", job=LATE) == RANKS, "all ranks")
            self.assertEqual(len({labels["rank"] for labels, _ in self.series("gpuprobe_rank_up") if labels["job"] == LATE}), ranks, level)
        return hub

    def run_refused(self, *options):
        refused = self.run_program([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", self.path("jobs"), *options], env={"GPUPROBE_HUB_TOKEN": SECRET})
        return refused.returncode, refused.stdout, refused.stderr

    def test_a_real_prometheus_names_the_straggler_and_nobody_else(self):
        clickhouse = test_metrics.free_port()  # where nobody listens, so that rows wait
        hub = self.start_hub("--clickhouse", f"http://127.0.0.1:{clickhouse}", CLICKHOUSE_PASSWORD="")
        short = self.start_job(SHORT, "straggler-kernels", "--ranks", "8", "--steps", "60")
        options = ("--steps", "1000000", "--real-time")
        jobs = [self.start_job(LATE, "straggler-kernels", "--ranks", str(RANKS), *options), self.start_job(WELL, "compute-bound", "--ranks", "8", *options)]
        self.post_without_the_secret()
        wait_until(lambda: {labels["job"]: value for labels, value in self.series("gpuprobe_ranks")}.items() >= {LATE: RANKS, WELL: 8}.items(), "both jobs")
        info = wait_until(lambda: (of := {labels["rank"]: labels for labels, _ in self.series("gpuprobe_rank_info") if labels["job"] == LATE}) and str(SLOW) in of and of, "the GPU of the rank at fault")
        self.assertEqual(info[str(SLOW)].keys(), {"job", "attempt", "host", "rank", "device", "UUID"})
        self.assertRegex(info[str(SLOW)]["UUID"], r"^GPU-[0-9a-f]{8}-")
        self.prometheus = self.start_prometheus(info[str(SLOW)]["UUID"])
        for accept in ("text/plain", test_metrics.OPEN_METRICS):
            status, kind, text = self.metrics(accept)
            self.assertEqual((status, kind.split(";")[0]), (200, accept.split(";")[0]))
            self.assertEqual(text.endswith("\n# EOF\n"), accept != "text/plain")
        test_metrics.Metrics.promtool(self, "check", "metrics", stdin=self.metrics()[2].encode())
        self.assertNotRegex(self.metrics()[2], r'kernel=|step="')
        short.wait(harness.LIMIT_S)
        # The first alert to fire, and the joined power: of the rank at fault, and of its job.
        fired = wait_until(lambda: self.ask('ALERTS{alertstate="firing", alertname="GpuprobeStraggler"}'), "the alert")
        self.assertEqual([(metric["job"], metric["rank"]) for metric, _ in fired], [(LATE, str(SLOW))])
        for title, expression in self.queries():
            with self.subTest(title, expression=expression):
                wait_until(lambda expression=expression: self.ask(expression), f"data for {title}: {expression}")
        (metric, power), = self.ask("gpuprobe_rank_info * on(UUID) group_left() max by (UUID) (DCGM_FI_DEV_POWER_USAGE)" + f' and on(job) gpuprobe_ranks{{job="{LATE}"}}')
        self.assertEqual((metric["job"], metric["rank"], power), (LATE, str(SLOW), 310.5))
        # The hub's own health.
        self.assertEqual([self.value("gpuprobe_hub_jobs", state=state) for state in ("open", "over")], [2, 1])
        self.assertEqual(self.value("gpuprobe_hub_clickhouse_up"), 0)
        self.assertGreater(min(self.value(name) for name in ("gpuprobe_hub_rows_waiting", "gpuprobe_hub_spool_bytes", "gpuprobe_hub_posts_total", "gpuprobe_hub_received_bytes_total",
                                                             "gpuprobe_hub_cpu_seconds_total", "gpuprobe_hub_resident_memory_bytes", "gpuprobe_hub_disk_free_bytes")), 0)
        self.assertEqual(self.value("gpuprobe_hub_refused_total", reason="secret"), 1)
        for age in ("gpuprobe_job_data_age_seconds", "gpuprobe_job_read_age_seconds"):
            self.assertLess(max(value for _, value in self.series(age)), 30)
        # Two alerts besides are true: ClickHouse is away only since a moment ago, so no spool fills, but a stranger was refused.
        firing = {(metric["alertname"], metric.get("job"), metric.get("reason")) for metric, _ in self.ask('ALERTS{alertstate="firing"}')}
        self.assertLessEqual(firing, {("GpuprobeStraggler", LATE, None), ("GpuprobeHubRefuses", "gpuprobe-hub", "secret")})
        self.end(self.prometheus)
        self.end(*jobs, self.check_levels(hub))

    def start_prometheus(self, uuid):
        exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), DcgmExporter)
        exporter.uuid = uuid
        threading.Thread(target=exporter.serve_forever, daemon=True).start()
        self.addCleanup(exporter.server_close)
        self.addCleanup(exporter.shutdown)
        rules = []
        for name in ("gpuprobe.rules.yml", "gpuprobe-hub.rules.yml"):
            rules.append(self.path(name))
            with open(rules[-1], "w", encoding="utf-8") as file:  # as shipped, but impatient
                file.write(re.sub(r"\bfor: \w+", "for: 2s", re.sub(r"\[5m\]", "[15s]", harness.read_file(os.path.join(RULES, name)).decode())))
        config = self.path("prometheus.yml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": rules,
                       "scrape_configs": [{"job_name": "gpuprobe-hub", "honor_labels": True, "static_configs": [{"targets": [self.url.removeprefix("http://")]}]},
                                          {"job_name": "dcgm", "static_configs": [{"targets": [f"127.0.0.1:{exporter.server_port}"]}]}]}, file)
        test_metrics.Metrics.promtool(self, "check", "config", config)
        self.prometheus_port = test_metrics.free_port()
        return self.start([PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={self.path('data')}", f"--web.listen-address=127.0.0.1:{self.prometheus_port}", "--log.level=error"])

    def queries(self):
        dashboard = json.loads(harness.read_file(DASHBOARD))
        return [(panel["title"], target["expr"].replace("$job", LATE)) for panel in dashboard["panels"] for target in panel["targets"]]

    def ask(self, expression):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus_port}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=20) as answer:
                return [(sample["metric"], float(sample["value"][1])) for sample in json.load(answer)["data"]["result"]]
        except OSError:
            self.assertTrue(self.prometheus.alive(), self.prometheus.so_far())
            return []


if __name__ == "__main__":
    if not PROMTOOL or not PROMETHEUS:
        print(f"skipped: no prometheus in {test_metrics.FOLDER} or on PATH; scripts/prometheus-env.sh unpacks it")
        sys.exit(test_metrics.SKIPPED)
    harness.main()
