"""A hub's jobs in a terminal: each by its name, as the commands that read a run show it."""
import glob
import json
import os
import shlex
import signal
import unittest
import urllib.parse

import harness
import local_hub
from harness import GPUPROBE


def without_page(report):
    """The last line says where its page is."""
    return [line for line in report.splitlines() if not line.startswith(" page: ")]


class HubJobs(local_hub.LocalHub):

    def wait_for(self, count):
        return harness.wait_until(lambda: (jobs := self.jobs()) and [job["state"] for job in jobs] == ["over"] * count and jobs, f"{count} jobs that are over")

    def shown(self, *command, code=0):
        done = self.run_program([GPUPROBE, *command])
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def refused(self, *command):
        out, error = self.shown(*command, code=1)
        self.assertEqual((out, error.count("\n")), ("", 1), error)
        return error

    def end(self, job):
        for pid in harness.processes_of_session(job.pid):
            if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                os.kill(pid, signal.SIGTERM)
        job.wait(harness.LIMIT_S)

    def test_a_job_by_its_name(self):
        self.start_hub()
        hub = ("--hub", self.url)
        self.assertIn("has no job yet", self.refused("report", *hub))
        self.start_job("pretrain", "--steps", "200", GPUSIM_SLOW="rank=1,factor=4").wait(harness.LIMIT_S)
        self.wait_for(1)
        self.start_job("pretrain", "--steps", "150").wait(harness.LIMIT_S)
        self.start_job("finetune", "--steps", "150").wait(harness.LIMIT_S)
        latest = self.wait_for(3)
        first = next(job for job in latest if job["attempt"] == 1 and "pretrain" in job["name"])
        folder = self.path("jobs", first["id"])
        expected = without_page(self.shown("report", folder)[0])
        # By its name and attempt, a part of the name, the run's folder and its path, and as a URL.
        for given in (f"{first['name']}#1", "pretrain#1", first["id"], folder, f"gpuprobe-runs/{first['id']}/"):
            out, error = self.shown("report", given, *hub)
            self.assertEqual(without_page(out), expected)
            self.assertIn(f" page: {self.url}/jobs/{first['id']}/\n", out)
            self.assertEqual(error, "")
        self.assertEqual(without_page(self.shown("report", f"{self.url}/jobs/{first['id']}/")[0]), expected)
        self.assertIn("straggler-slow-gpu", " ".join(expected))
        report = json.loads(self.shown("report", "--json", "pretrain#1", *hub)[0])
        self.assertEqual(report, json.loads(harness.read_file(os.path.join(folder, "report.json"))))
        # The latest of several attempts, and the newest of all, are said.
        out, error = self.shown("report", "pretrain", *hub)
        self.assertEqual(error, f"gpuprobe: the latest of 2 attempts: {first['name']}#2\n")
        self.assertIn(f"/jobs/{next(job['id'] for job in latest if job['attempt'] == 2)}/", out)
        self.assertEqual(self.shown("report", *hub)[1], f"gpuprobe: the newest job: {latest[0]['name']}#1\n")
        # What it is not.
        self.assertRegex(self.refused("report", "pretrian", *hub), r"has no job 'pretrian'; did you mean pretrain\?")
        self.assertRegex(self.refused("report", "nothing-like-it", *hub), r"has no job 'nothing-like-it'; it has .*finetune.*, .*pretrain")
        self.assertRegex(self.refused("report", "127.0.0.1", *hub), r"'127\.0\.0\.1' could be any of 2 jobs at http://\S+: .*finetune.*, .*pretrain")
        self.assertRegex(self.refused("report", "pretrain#7", *hub), r"there is no attempt 7 of .*pretrain.* at http://\S+: the latest is 2")
        self.assertIn("does not answer", self.refused("report", "pretrain", "--hub", "http://127.0.0.1:1"))
        done = self.run_program([GPUPROBE, "report", "--hub", "pretrain"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("'pretrain' is no URL, such as http://127.0.0.1:9460; name the job before --hub", done.stderr.decode())
        # The other commands, from the job's records.
        sql = "SELECT rank, count(*) AS steps FROM step GROUP BY rank"
        self.assertEqual(self.shown("query", "pretrain#1", sql, *hub)[0], self.shown("query", folder, sql)[0])
        self.assertEqual(self.shown("export", "pretrain#1", "--format", "steps", *hub)[0], self.shown("export", folder, "--format", "steps")[0])
        self.shown("trace", "pretrain#1", "-o", self.path("late.pftrace"), "--around", "straggler-slow-gpu", *hub)
        self.assertGreater(os.path.getsize(self.path("late.pftrace")), 1000)
        compared = json.loads(self.shown("diff", "pretrain#1", "pretrain#2", "--json", *hub)[0])
        self.assertLess(compared["steps"][0]["b"]["mean_ns"], compared["steps"][0]["a"]["mean_ns"])
        self.assertIn("100", self.shown("report", "pretrain#1", "--step", "100", *hub)[0].splitlines()[0])
        self.assertIn("no job that runs", self.refused("top", *hub))
        self.assertEqual(glob.glob(os.path.join(self.folder, "gpuprobe-copy-*")), [])
        # The list says how.
        shown = self.shown("jobs", self.url)[0]
        self.assertIn(f"\nReport of one: gpuprobe report \"{latest[0]['name']}#1\" --hub {self.url}\n", shown)

    def test_a_job_while_it_runs(self):
        self.start_hub()
        hub = ("--hub", self.url)
        job = self.start_job("pretrain", "--steps", "100000", GPUSIM_SLOW="rank=1,factor=4")
        harness.wait_until(lambda: (jobs := self.jobs()) and jobs[0]["step_ns"] and jobs[0]["ranks"] == 2, "steps in the list")
        status = json.loads(self.shown("top", "--once", "--json", *hub)[0])
        self.assertEqual(sorted(rank["rank"] for rank in status["ranks"]), [0, 1])
        report = json.loads(self.shown("report", "--json", "pretrain", *hub)[0])
        self.assertEqual((len(report["ranks"]), [rank for rank in report["ranks"] if rank["cut_off"]]), (2, []))
        self.assertIn("straggler-slow-gpu", [finding["id"] for finding in report["findings"]])
        self.end(job)
        self.wait_for(1)
        self.assertIn("straggler-slow-gpu", self.shown("report", "pretrain", *hub)[0])

    def clone(self, row, count, **changed):
        """As if a job had run so many times more: what a hub that starts reads of one that is over."""
        folder = self.path("jobs", row["id"])
        for number in range(count):
            to = self.path("jobs", f"20261101T{self.cloned:06}Z-clone")
            self.cloned += 1
            os.mkdir(to)
            listed = json.loads(harness.read_file(os.path.join(folder, "listed.json")))
            listed["jobs"][0].update(name=f"clone {self.cloned}", begun_ns=row["begun_ns"] - self.cloned, **changed)
            for name, data in (("listed.json", json.dumps(listed)), ("report.html", ""), ("report.json", "{}"), ("job.txt", f"clone {self.cloned}\n1\n")):
                with open(os.path.join(to, name), "w", encoding="utf-8") as file:
                    file.write(data)

    cloned = 0

    def test_the_record_of_each_gpu_and_host(self):
        """One GPU is slow in four of twenty jobs. Others are named once, or for what is a program's fault."""
        hub = self.start_hub()
        self.assertEqual(self.shown("jobs", "--hosts", self.url)[0], "no job is over yet\n")
        self.start_job("slow", "--steps", "200", GPUSIM_SLOW="rank=1,factor=4").wait(harness.LIMIT_S)
        self.wait_for(1)
        self.start_job("well", "--steps", "150").wait(harness.LIMIT_S)
        rows = {job["name"].split()[-1]: job for job in self.wait_for(2)}
        report = json.loads(harness.read_file(self.path("jobs", rows["slow"]["id"], "report.json")))
        host, = rows["slow"]["hosts"]
        uuids = [device["uuid"] for device in report["conditions"]["devices"]]
        listed = json.loads(harness.read_file(self.path("jobs", rows["slow"]["id"], "listed.json")))
        self.assertEqual(listed["jobs"][0]["gpus"], {host: {uuids[rank["rank"]]: rank["duration_ns"] / 1e9 for rank in report["ranks"]}})
        hub.signal(signal.SIGTERM)
        hub.wait(harness.LIMIT_S)
        # A busy machine may make a rank of either job late.
        late, = [finding for finding in rows["slow"]["findings"] if finding["id"] == "straggler-slow-gpu"]
        for name, findings in (("slow", [late]), ("well", [])):
            path = self.path("jobs", rows[name]["id"], "listed.json")
            listed = json.loads(harness.read_file(path))
            listed["jobs"][0]["findings"] = findings
            with open(path, "w", encoding="utf-8") as file:
                json.dump(listed, file)
        self.clone(rows["slow"], 3)
        self.clone(rows["well"], 12)
        about = {"hosts": [host], "gpu_uuids": [uuids[0]], "lost_gpu_seconds": 1000.0}
        self.clone(rows["well"], 2, findings=[{"id": "memory-leak", **about}])
        self.clone(rows["well"], 1, findings=[{"id": "straggler-slow-gpu", **about}])
        self.start_hub()
        self.assertEqual(len(harness.wait_until(self.jobs, "the list")), 20)
        record = json.loads(self.ask("/api/hosts")[1])
        slow, other = record["gpus"]
        self.assertEqual((slow["gpu_uuid"], slow["host"], slow["jobs_against"], slow["jobs"]), (uuids[1], host, 4, 20))
        self.assertEqual((other["gpu_uuid"], other["jobs_against"], other["jobs"], other["findings"]), (uuids[0], 1, 20, [{"id": "straggler-slow-gpu", "jobs": 1}]))
        self.assertEqual(slow["findings"], [{"id": "straggler-slow-gpu", "jobs": 4}])
        self.assertAlmostEqual(slow["lost_gpu_seconds"], 4 * late["lost_gpu_seconds"], delta=1e-6)
        times = {name: json.loads(harness.read_file(self.path("jobs", rows[name]["id"], "listed.json")))["jobs"][0]["gpus"][host][uuids[1]] for name in rows}
        self.assertAlmostEqual(slow["gpu_seconds"], 4 * times["slow"] + 16 * times["well"], delta=1e-6)
        self.assertEqual(slow["last_seen_ns"], max(job["ended_ns"] for job in rows.values()))
        its, = record["hosts"]
        self.assertEqual((its["host"], its["gpus"], its["jobs_against"], its["jobs"], its["in_use"]), (host, 2, 5, 20, False))
        self.assertEqual(json.loads(self.shown("jobs", "--hosts", "--json", self.url)[0]), record)
        # First on the page, too, and in the terminal.
        page = self.ask("/hosts")[1]
        self.assertLess(page.index(uuids[1]), page.index(uuids[0]))
        self.assertIn("<td>4 of 20</td>", page)
        shown = self.shown("jobs", "--hosts", self.url)[0]
        first, = [line for line in shown.splitlines() if uuids[1] in line]
        self.assertRegex(first, r"4 of 20 .*straggler-slow-gpu \(4\)")
        self.assertLess(shown.index(uuids[1]), shown.index(uuids[0]))
        self.assertEqual([gpu["gpu_uuid"] for gpu in json.loads(self.ask("/api/jobs")[1])["repeat_offenders"]], [uuids[1]])
        # While a job runs, its hosts are in use.
        job = self.start_job("again", "--steps", "100000")
        harness.wait_until(lambda: json.loads(self.ask("/api/hosts")[1])["hosts"][0]["in_use"], "a host in use")
        self.assertRegex(self.shown("jobs", "--hosts", self.url)[0], rf"(?m)^ {host} .* in use ")
        self.end(job)

    def simulate(self, name, *options):
        """A job of four ranks in virtual time, so that its steps are as long as they are said to be."""
        script = f"{GPUPROBE} simulate --scenario compute-bound --ranks 4 --steps 60 {' '.join(options)} --socket $GPUPROBE_SOCKET"
        self.run_well([GPUPROBE, "run", "--", "bash", "-c", script],
                      env={"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": name,
                           "GPUPROBE_HUB": f"127.0.0.1:{self.port}", "GPUPROBE_HUB_TOKEN": local_hub.SECRET, "HOME": self.folder})

    def test_attempts_side_by_side(self):
        """The second attempt's kernels take 3 % longer, the third's as long as the second's."""
        hub = self.start_hub()
        for attempt, options in enumerate((("--seed", "1"), ("--seed", "2", "--work", "1.03"), ("--seed", "3", "--work", "1.03")), 1):
            if attempt == 3:
                hub.signal(signal.SIGTERM)
                hub.wait(harness.LIMIT_S)
                hub = self.start_hub()
            self.simulate("pretrain", *options)
            self.wait_for(attempt)
        name = self.jobs()[0]["name"]
        third, second, first = json.loads(self.shown("jobs", "--attempts", "pretrain", "--json", self.url)[0])["attempts"]
        self.assertEqual([attempt["attempt"] for attempt in (first, second, third)], [1, 2, 3])
        self.assertIsNone(first["steps"]["compared"])
        self.assertEqual(self.jobs()[0]["step_change"], None, "as long as before")
        self.assertAlmostEqual(self.jobs()[1]["step_change"], 0.03, delta=0.003)
        compared = second["steps"]["compared"]
        parts = {part["name"]: part for part in compared["parts"]}
        # As `gpuprobe diff` says of the same runs.
        told = json.loads(self.shown("diff", self.path("jobs", first["id"]), self.path("jobs", second["id"]), "--json")[0])
        for part in told["steps"]:
            mine = parts[part["name"]]
            self.assertAlmostEqual(mine["before_ns"], part["a"]["mean_ns"], delta=1e-6 * part["a"]["mean_ns"] + 1e-6)
            self.assertAlmostEqual(mine["ns"], part["b"]["mean_ns"], delta=1e-6 * part["b"]["mean_ns"] + 1e-6)
        self.assertEqual({name for name, part in parts.items() if part["significant"]}, {"total", "compute"})
        self.assertAlmostEqual(parts["compute"]["ns"] / parts["compute"]["before_ns"], 1.03, delta=0.001)
        self.assertLess(parts["total"]["low_ns"], parts["total"]["ns"] - parts["total"]["before_ns"])
        self.assertLess(parts["total"]["ns"] - parts["total"]["before_ns"], parts["total"]["high_ns"])
        self.assertEqual([part["name"] for part in third["steps"]["compared"]["parts"] if part["significant"]], [])
        self.assertRegex(third["steps"]["compared"]["verdict"], "No significant difference in step time")
        # In the terminal and on the page.
        shown = self.shown("jobs", "--attempts", "pretrain", self.url)[0]
        self.assertRegex(shown, r"(?m)^ +2  over .* \+3\.0 %$")
        self.assertRegex(shown, r"A is attempt 2, B attempt 3\. No significant difference")
        command, = [line.partition(": gpuprobe ")[2] for line in shown.splitlines() if line.startswith("Which rank")]
        self.assertIn("No significant difference", self.shown(*shlex.split(command))[0])
        page = self.ask(f"/attempts?job={urllib.parse.quote(name)}")[1]
        self.assertRegex(page, r"Attempt 2 against 1</h2>\n<p>A is attempt 1, B attempt 2\. B is slower: step time")
        self.assertRegex(page, r"<li>Compute time is 3\.0 % longer")
        self.assertIn(">2 (+3.0 %)</a>", self.ask("/")[1])
        self.assertEqual(self.ask("/attempts?job=nothing")[0], 404)
        self.assertIn("did you mean pretrain?", self.refused("jobs", "--attempts", "pretrian", self.url))
        # What an earlier hub kept, or somebody has written there.
        for text in ("", "[1]", '{"block_steps": 1, "parts": [["x"]]}'):
            with open(self.path("jobs", third["id"], "steps.json"), "w", encoding="utf-8") as file:
                file.write(text)
        self.simulate("pretrain")
        self.wait_for(4)
        fourth = json.loads(self.ask(f"/api/attempts?job={urllib.parse.quote(name)}")[1])["attempts"][0]
        self.assertIsNone(fourth["steps"]["compared"])

    def test_what_is_no_file_of_a_job(self):
        self.start_hub()
        self.start_job("pretrain", "--steps", "100").wait(harness.LIMIT_S)
        row, = self.wait_for(1)
        files = json.loads(self.ask(row["page"] + "api/files")[1])
        self.assertNotIn("goes_on", files)
        self.assertIn(f"{row['hosts'][0]}/rank-0.gpr", [file["name"] for file in files["files"]])
        with open(self.path("secret.gpr"), "w", encoding="utf-8") as file:
            file.write("secret")
        for name in ("../../secret.gpr", "%2e%2e/%2e%2e/secret.gpr", "..%2f..%2fsecret.gpr", "job.txt", "a/b/c.gpr", f"{row['hosts'][0]}/live.json", ""):
            self.assertEqual(self.ask(f"{row['page']}api/files/{name}")[0], 404, name)
        self.assertEqual(self.ask(f"{row['page']}api/status")[0], 404)
        self.assertEqual(self.ask("/jobs/nothing/api/files")[0], 404)


if __name__ == "__main__":
    unittest.main()
