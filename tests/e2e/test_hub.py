"""A job on hosts that share nothing but a network: the host where its launcher lets ranks meet collects and shows all of them."""
import glob
import json
import os
import re
import signal
import time
import unittest

import harness
import hub_job
from harness import GPUPROBE
from hub_job import PORT, TOKEN


class Hub(hub_job.HubJob):

    def test_one_report_where_ranks_meet(self):
        said = self.record(GPUSIM_SLOW="rank=3,factor=4")
        run = self.run_of("n1")
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said["n1"])
        self.assertIn(f"{os.path.relpath(run, self.home('n1'))}/report.html", said["n1"])
        here = os.path.relpath(self.run_of("n2"), self.home("n2"))
        # A job may be over before the first line.
        self.assertRegex(said["n2"], f"^(gpuprobe: n1 shows all hosts of this job\n)?gpuprobe: recorded in {here}; n1 reports on all hosts\n$")
        report = self.report(run)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        with self.undisturbed(report):
            self.assertTrue(report["findings"][0]["id"].startswith("straggler"), said["n1"])
            self.assertIn("rank 3", report["findings"][0]["statement"].lower())
        self.assert_no_loss(report)
        # Nothing was lost on the way: what n2 has is what n1 has of it, to the byte.
        for path in glob.glob(os.path.join(self.run_of("n2"), "*.gpr")):
            self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(run, "n2", os.path.basename(path))))
        self.assertFalse(os.path.exists(os.path.join(run, "n2", "live.json")))
        # It is what one would say who has all directories.
        apart = json.loads(self.run_well([GPUPROBE, "report", os.path.join(run, "n1"), self.run_of("n2"), "--json"]).stdout)
        self.assertEqual(apart["findings"], report["findings"])

    def test_a_rank_of_another_host_is_named_live(self):
        programs = {name: self.start_host(name, options=("--hang-after", "3"), arguments=("--steps", "100000")) for name in self.holders}

        def ranks():
            runs = glob.glob(os.path.join(self.home("n1"), "gpuprobe-runs", "*"))
            seen = self.run_program([GPUPROBE, "top", "--once", "--json"], cwd=self.home("n1"))
            status = json.loads(seen.stdout) if runs and seen.returncode == 0 else {"ranks": []}
            return status["ranks"] if len(status["ranks"]) == 4 and all(rank["steps"] > 0 for rank in status["ranks"]) else []

        seen = harness.wait_until(ranks, "all ranks in top")
        harness.wait_until(lambda: programs["n2"].so_far() == b"gpuprobe: n1 shows all hosts of this job\n", "who shows the job")
        pid = next(rank["pid"] for rank in seen if rank["rank"] == 3)
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        harness.wait_until(lambda: "HANG  Rank 3 has been stopped" in programs["n1"].so_far().decode(), "hang")
        print(f"named after {time.monotonic() - stopped:.1f} s, the limit is 3 s")
        os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: "DEAD  Rank 3 was killed by SIGKILL" in programs["n1"].so_far().decode(), "death")
        self.end(programs, seen[:3])
        hang, = (finding for finding in self.report(self.run_of("n1"))["findings"] if finding["id"].startswith("hang"))
        # Which of its states the statement has depends on when the other ranks ended; the evidence then has the other one.
        self.assertRegex(hang["statement"] + hang["evidence"], "([Rr]ank 3 has been stopped|[Rr]ank 3 was killed|its process was killed by SIGKILL)")

    def test_the_page_has_all_hosts(self):
        programs = {name: self.start_host(name, options=("--http", "0.0.0.0:0"), arguments=("--steps", "100000"), GPUPROBE_HTTP_TOKEN=TOKEN) for name in self.holders}
        harness.wait_until(lambda: b"gpuprobe: live: http://" in programs["n1"].so_far(), "page")
        url = re.search(rb"live: http://0.0.0.0(:\d+)", programs["n1"].so_far())[1].decode()

        def top(place, token=TOKEN, options=("--json",)):
            return self.run_on("n2", [GPUPROBE, "top", place, "--once", *options], env={"GPUPROBE_HTTP_TOKEN": token})

        def ranks():
            seen = top(f"http://n1{url}")
            return seen.returncode == 0 and [rank["rank"] for rank in json.loads(seen.stdout)["ranks"]] == [0, 1, 2, 3]

        harness.wait_until(ranks, "all ranks on the page")
        self.assertIn(b"4 ranks", top(f"http://n1{url}/", options=()).stdout)
        fetch = "import json, sys, urllib.request\nrequest = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]})\nsys.stdout.write(urllib.request.urlopen(request).read().decode())"

        def documents():
            report = json.loads(self.run_on("n2", ["/usr/bin/python3", "-c", fetch, f"http://n1{url}/api/report", TOKEN]).stdout)
            return {rank["host"] for rank in report["ranks"] if rank["kernels"]["count"] > 0} == {"n1", "n2"} and len(report["ranks"]) == 4 and report
        report = harness.wait_until(documents, "all hosts in the documents")
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])
        served = self.run_on("n2", [GPUPROBE, "report", f"http://n1{url}"], env={"GPUPROBE_HTTP_TOKEN": TOKEN})
        self.assertEqual(served.returncode, 0, str(served))
        self.assertIn(b"gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", served.stdout)
        self.assertEqual(len(json.loads(self.run_on("n2", [GPUPROBE, "report", f"http://n1{url}", "--json"], env={"GPUPROBE_HTTP_TOKEN": TOKEN}).stdout)["ranks"]), 4)
        counted = self.run_on("n2", [GPUPROBE, "query", f"http://n1{url}", "SELECT DISTINCT rank FROM kernel ORDER BY rank"], env={"GPUPROBE_HTTP_TOKEN": TOKEN})
        self.assertEqual((counted.stdout.split(), counted.stderr), ([b"rank", b"0", b"1", b"2", b"3"], b""))
        for place, token, line in ((f"http://n1{url}", "", f"http://n1{url} asks for a token: set GPUPROBE_HTTP_TOKEN"), ("http://n1:1", TOKEN, "http://n1:1 does not answer"),
                                   (f"http://n1:{PORT}", TOKEN, f"http://n1:{PORT} does not answer over HTTP: it serves no run of gpuprobe's")):
            refused = top(place, token)
            self.assertEqual((refused.returncode, refused.stderr.decode()), (1, f"gpuprobe: top: {line}\n"))
        self.end(programs)

    def test_what_a_cut_network_held_up_arrives_afterwards(self):
        programs = {name: self.start_host(name, arguments=("--steps", "100000")) for name in self.holders}
        harness.wait_until(lambda: self.mirrored()[0] > 0, "n2's records on n1")
        self.unplug("n2")
        before = self.mirrored()[0]
        harness.wait_until(lambda: self.mirrored()[1] > before + 100_000, "records that n1 lacks")
        self.assertLess(*self.mirrored())
        self.unplug("n2", plugged=True)
        harness.wait_until(lambda: self.mirrored()[0] > before + 100_000, "the records on n1")
        self.end(programs)
        self.assertIn(b"n1 reports on all hosts", programs["n2"].so_far())
        for path in glob.glob(os.path.join(self.run_of("n2"), "*.gpr")):
            self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(self.run_of("n1"), "n2", os.path.basename(path))))

    def test_a_hub_that_dies_costs_the_others_nothing_but_the_view(self):
        programs = {name: self.start_host(name, arguments=("--steps", "3000")) for name in self.holders}
        harness.wait_until(lambda: self.mirrored()[0] > 0, "n2's records on n1")
        os.kill(self.collector_of(programs["n1"], "n1"), signal.SIGKILL)
        finished = {name: program.wait(harness.LIMIT_S) for name, program in programs.items()}
        self.assertEqual([program.returncode for program in finished.values()], [0, 0], str(finished))
        said = finished["n2"].stderr.decode()
        self.assertIn("gpuprobe: 2 of 4 ranks on ", said)
        self.assertRegex(said, r"gpuprobe: this host's part of the job, which is not all at n1:9461 \(n1:9461 does not answer\); with the other hosts' directories beside it: "
                               r"gpuprobe report gpuprobe-runs/\S+ DIR \.\.\.\n$")
        # As n1 left it, and n2's own: all that was recorded.
        n1, n2 = os.path.join(self.run_of("n1"), "n1"), self.run_of("n2")
        report = json.loads(self.run_well([GPUPROBE, "report", n1, n2, "--json"]).stdout)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])

    def test_a_slow_link_through_a_tunnel(self):
        tunnel = self.start_on("n2", ["/usr/bin/python3", os.path.join(harness.SOURCE, "tests", "e2e", "programs", "slow_tunnel.py"), str(PORT), f"n1:{PORT}"])
        harness.wait_until(lambda: tunnel.finished().stdout == b"ready\n", "tunnel")
        programs = {"n1": self.start_host("n1", arguments=("--steps", "5000")), "n2": self.start_host("n2", arguments=("--steps", "5000"), GPUPROBE_HUB=f"127.0.0.1:{PORT}")}
        said = {name: program.wait(harness.LIMIT_S).stderr.decode() for name, program in programs.items()}
        self.assertIn("gpuprobe: 4 ranks on ", said["n1"])
        self.assertIn("; n1 reports on all hosts\n", said["n2"])
        for path in glob.glob(os.path.join(self.run_of("n2"), "*.gpr")):
            self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(self.run_of("n1"), "n2", os.path.basename(path))))
        for pid in harness.processes_of_session(tunnel.pid):
            os.kill(pid, signal.SIGKILL)

    def test_who_has_another_token_is_not_let_in(self):
        programs = {"n1": self.start_host("n1", GPUPROBE_HUB_TOKEN=TOKEN + "n1")}
        harness.wait_until(lambda: f":{PORT}".encode() in self.run_on("n1", ["ss", "-Hltn"]).stdout, "hub")
        programs["n2"] = self.start_host("n2", GPUPROBE_HUB_TOKEN=TOKEN + "n2")
        said = {name: program.wait(harness.LIMIT_S).stderr.decode() for name, program in programs.items()}
        self.assertEqual([program.finished().returncode for program in programs.values()], [0, 0], said)
        self.assertIn("(n1:9461 has another token than this host: both need the same one in GPUPROBE_HUB_TOKEN or ~/.config/gpuprobe/hub-token)", said["n2"])
        self.assertIn("gpuprobe: this host's part of the job", said["n1"])
        self.assertEqual(sorted(os.listdir(self.run_of("n1"))), ["n1"])

    def test_a_token_file_in_a_home_directory_that_hosts_share(self):
        home = self.path("home")
        said = self.record(GPUPROBE_HUB_TOKEN=None, HOME=home)
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said["n1"])
        token = os.path.join(home, ".config", "gpuprobe", "hub-token")
        self.assertEqual(os.stat(token).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(os.path.dirname(token)), ["hub-token"])
        self.assertNotIn(harness.read_file(token).decode().strip(), "".join(said.values()))
        os.chmod(token, 0o644)
        refused = self.record(GPUPROBE_HUB_TOKEN=None, HOME=home)
        for text in refused.values():
            self.assertIn(f"gpuprobe: hosts are not joined: {token} can be read by others, so its token is no secret: chmod 600 {token}\n", text)

    def test_without_a_secret_nothing_listens(self):
        programs = {name: self.start_host(name, arguments=("--steps", "100000"), GPUPROBE_HUB_TOKEN=None, HOME="", XDG_CONFIG_HOME=None) for name in self.holders}
        line = "gpuprobe: hosts are not joined: there is no home directory for a token file; set GPUPROBE_HUB_TOKEN to the same secret on every host\n"
        for program in programs.values():
            harness.wait_until(lambda: line in program.so_far().decode(), "the line")
        self.assertEqual(self.run_on("n1", ["ss", "-Hltn"]).stdout, b"")
        self.end(programs)

    def test_off_is_off_and_nonsense_is_refused(self):
        said = self.record(GPUPROBE_HUB="off")
        for name, text in said.items():
            self.assertIn("gpuprobe: 2 of 4 ranks on ", text)
            self.assertEqual(text.count("\ngpuprobe: "), 0)
        refused = self.start_host("n1", GPUPROBE_HUB="n1:no").wait()
        self.assertEqual((refused.returncode, refused.stderr.decode()),
                         (2, 'gpuprobe: run: GPUPROBE_HUB must be HOST, HOST:PORT or off, got "n1:no"\n'))

    def test_a_directory_that_hosts_share_is_not_written_twice(self):
        out = self.path("shared")
        said = self.record(options=("--out", out))
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said["n1"])
        self.assertIn(f"{out}/report.html", said["n1"])
        self.assertRegex(said["n2"], f"^gpuprobe: recorded in {out}/n2; n1(, where rank 0 is,)? reports on all hosts\n$")
        self.assertEqual(sorted(name for name in os.listdir(out) if os.path.isdir(os.path.join(out, name))), ["n1", "n2"])

    def test_strangers_harm_nothing(self):
        programs = {name: self.start_host(name, options=("--keep", "32MiB"), arguments=("--steps", "100000")) for name in self.holders}
        harness.wait_until(lambda: self.mirrored()[0] > 0, "n2's records on n1")
        attack = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "hub_attack.py")
        told = json.loads(self.run_on("n2", ["/usr/bin/python3", attack, f"n1:{PORT}", TOKEN, "n1:29500 "]).stdout)
        self.assertIn(told.pop("in the clear"), ("RemoteDisconnected", "BadStatusLine", "ConnectionResetError"))
        self.assertEqual(told, {"no signature": 403, "signature of another body": 403, "large body": 413, "no post": 400, "paths": "a file's name is none of a run directory",
                                "another job": "this is the hub of another job", "more than a host may": "a host may have 64 MiB here"})
        before = self.mirrored()[0]
        harness.wait_until(lambda: self.mirrored()[0] > before, "more records of n2")
        self.end(programs)
        self.assertIn(b"4 ranks on ", programs["n1"].so_far())
        run = self.run_of("n1")
        self.assertEqual(sorted(name for name in os.listdir(run) if os.path.isdir(os.path.join(run, name))), ["host-..", "liar", "n1", "n2", "n2-2"])
        self.assertEqual(sorted(os.listdir(os.path.join(run, "n2-2"))), ["garbage.gpr", "mirrored.txt"])
        self.assertFalse(glob.glob(os.path.join(self.home("n1"), "evil*")) + glob.glob(os.path.join(run, "evil*")))

    def test_two_jobs_at_a_time_have_hubs_of_their_own(self):
        first = {name: self.start_host(name, arguments=("--steps", "100000")) for name in self.holders}
        harness.wait_until(lambda: self.mirrored()[0] > 0, "n2's records on n1")
        others = {name: self.path("others", name) for name in self.holders}
        for home in others.values():
            os.makedirs(home)
        second = {name: self.start_host(name, MASTER_PORT="29600", HOME=others[name], DDP_ID_FILE=self.path("id2"), cwd=others[name]) for name in self.holders}
        said = {name: program.wait(harness.LIMIT_S).stderr.decode() for name, program in second.items()}
        self.end(first)
        for text in (said["n1"], first["n1"].so_far().decode()):
            self.assertIn("4 ranks on ", text)


if __name__ == "__main__":
    unittest.main()
