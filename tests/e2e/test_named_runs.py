"""Runs need not be named: the newest one is meant, `gpuprobe runs` lists them, and `run --name` says what a run is called."""
import json
import os
import re

import harness
from harness import DDP_TRAIN, GPUPROBE, SMALL_TRAINING


class NamedRuns(harness.EndToEndTest):

    def gpuprobe(self, *arguments):
        return self.run_well([GPUPROBE, *arguments])

    def record(self, *options):
        """The directory of a run that was recorded where runs go by default."""
        said = self.gpuprobe("run", *options, "--", DDP_TRAIN, *SMALL_TRAINING).stderr.decode()
        return re.search(r"gpuprobe-runs/\S+?(?=/|\s|$)", said)[0].rstrip(".")

    def test_the_newest_run_is_meant_where_none_is_named(self):
        older, newer = self.record("--name", "older"), self.record("--name", "my run: 2")
        self.assertRegex(older, r"^gpuprobe-runs/\d{8}T\d{6}Z-older$")
        self.assertRegex(newer, r"^gpuprobe-runs/\d{8}T\d{6}Z-my.run..2$")
        for command in (["report"], ["report", "--json"], ["query", "SELECT count(*) AS n FROM kernel"], ["query", "--schema"], ["export"],
                        ["trace", "-o", self.path("trace")]):
            with self.subTest(command=command):
                meant, named = self.gpuprobe(*command), None
                self.assertIn(f"gpuprobe: the newest run: {newer}\n", meant.stderr.decode())
                if command[0] != "trace":
                    named = self.gpuprobe(command[0], newer, *command[1:])
                    self.assertEqual(meant.stdout, named.stdout)
        listed = json.loads(self.gpuprobe("runs", "--json").stdout)
        self.assertEqual([(run["directory"], run["state"], run["ranks"]) for run in listed], [(newer, "reported", 1), (older, "reported", 1)])
        report = json.loads(self.gpuprobe("report", older, "--json").stdout)
        self.assertEqual(listed[1]["steps"], report["steps"]["count"])
        self.assertEqual(listed[1]["step_ns"], report["steps"]["time_ns"]["mean"])
        self.assertEqual(listed[1]["finding"], report["findings"][0]["id"])
        screen = self.gpuprobe("runs").stdout.decode()
        self.assertLess(screen.index(newer), screen.index(older))

    def test_a_run_that_is_being_recorded_is_said_to_be(self):
        program = self.start([GPUPROBE, "run", "--", DDP_TRAIN, "--steps", "1000000"])

        def states():
            finished = self.run_program([GPUPROBE, "runs", "--json"])
            return [run["state"] for run in json.loads(finished.stdout)] if finished.returncode == 0 else []

        harness.wait_until(lambda: states() == ["recording"], "run that is being recorded")
        program.kill()
        harness.wait_until(lambda: states() == ["unfinished"], "run whose recorder is gone", limit=60)

    def test_there_is_no_run(self):
        for command, said in ((["report"], "report: there is no run under gpuprobe-runs here; name a run directory, or the URL of a served run"),
                              (["runs"], "runs: there is no run in gpuprobe-runs"), (["runs", "nowhere"], "runs: there is no run in nowhere")):
            finished = self.run_program([GPUPROBE, *command])
            self.assertEqual((finished.returncode, finished.stderr.decode()), (1, f"gpuprobe: {said}\n"))

    def test_what_lies_beside_runs_is_none(self):
        run = self.record()
        os.mkdir(os.path.join(self.cwd, "gpuprobe-runs", "notes"))
        with open(os.path.join(self.cwd, "gpuprobe-runs", "notes.txt"), "w", encoding="utf-8") as file:
            file.write("nothing")
        with open(os.path.join(self.cwd, run, "report.json"), "w", encoding="utf-8") as file:
            file.write("{ broken")
        listed, = json.loads(self.gpuprobe("runs", "--json").stdout)
        self.assertEqual((listed["directory"], listed["state"], listed["steps"]), (run, "unfinished", None))

    def test_a_name_or_a_directory(self):
        finished = self.run_program([GPUPROBE, "run", "--name", "a", "--out", "b", "--", "true"])
        self.assertEqual(finished.returncode, 2)
        self.assertIn("--name", finished.stderr.decode())

    def test_the_librarys_path_is_printed(self):
        path = self.gpuprobe("help", "library-path").stdout.decode().rstrip("\n")
        self.assertTrue(os.path.isabs(path) and os.path.basename(path) == "libgpuprobe.so" and os.path.isfile(path), path)


if __name__ == "__main__":
    harness.main()
