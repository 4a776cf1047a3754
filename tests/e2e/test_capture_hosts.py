"""Detail on demand in a job on several hosts: `gpuprobe capture`, typed at the hub, has the same steps recorded on all ranks of all hosts, and names the host that is away."""
import glob
import os
import re
import signal
import time

import harness
import hub_job
import test_capture
from harness import DDP_TRAIN, GPUPROBE
from hazards import hazard
from test_capture import SLOWLY, TRAINING


class CaptureOnHosts(hub_job.HubJob, test_capture.CaptureTest):
    LEVEL = "idle"

    def start_job(self, steps, *options, marker=True, **extra):
        """One program on each host, once the hub knows that all ranks train."""
        options = ("--level", self.LEVEL, *(("--step-marker", "nvtx:step") if marker else ()), *options)
        programs = {name: self.start_host(name, options, ("--steps", str(steps), *TRAINING), **{**SLOWLY, **extra}) for name in self.launching()}
        harness.wait_until(lambda: self.find_run() and self.ranks_in_top(self.out) == self.ranks or not all(p.alive() for p in programs.values()), "ranks of all hosts")
        self.assertTrue(all(program.alive() for program in programs.values()), {name: str(program.finished()) for name, program in programs.items()})
        return programs

    def launching(self):
        return self.holders

    @property
    def ranks(self):
        return self.RANKS_PER_HOST * len(list(self.launching()))

    def find_run(self):
        try:
            self.out = self.run_of("n1")
        except ValueError:
            return False
        return True

    def assert_said_elsewhere(self, name, hub):
        """Where to type the command."""
        line = f"gpuprobe: capture: this host has a part of the job; its hub captures all of it: on {hub}, gpuprobe capture {self.out}\n"

        def said():
            refused = self.run_program([GPUPROBE, "capture", self.run_of(name)])
            self.assertEqual((refused.returncode, refused.stdout), (1, b""), str(refused))
            return refused.stderr.decode()
        harness.wait_until(lambda: "looks for its hub" not in (text := said()) and (self.assertEqual(text, line) or True), "the hub's place")

    def end_all(self, programs):
        finished = {name: program.wait(harness.LIMIT_S) for name, program in programs.items()}
        self.assertEqual([program.returncode for program in finished.values()], [0] * len(programs), str(finished))
        self.by_rank = {}
        for record in self.truth():
            self.by_rank.setdefault(record["rank"], []).append(record)
        self.assertEqual(sorted(self.by_rank), list(range(self.ranks)))
        return {name: program.stderr.decode() for name, program in finished.items()}


class EightRanks(CaptureOnHosts):
    RANKS_PER_HOST = 4

    @hazard("steps are captured in a job on two hosts", sees="same status", counted="these steps and nothing else, the same on all ranks of both hosts; nothing lost")
    def test_the_same_steps_on_all_ranks_of_both_hosts(self):
        programs = self.start_job(2200, GPUSIM_SLOW="rank=6,factor=1.6")
        self.assert_said_elsewhere("n2", "n1")
        first = self.captured_steps("--steps", 10)
        self.assertEqual(len(first), 10)
        said = self.said.stdout.decode()
        self.assertIn(" on 8 processes of 2 hosts\n", said)
        self.assertIn(f"  gpuprobe report {self.out}\n", said)
        so_far = self.report(self.out)
        with self.undisturbed(so_far):
            self.assertRegex(said, r"(?i)\brank 6\b")
            self.assertEqual([(straggler["rank"], straggler["host"]) for straggler in so_far["stragglers"]], [(6, "n2")])
        second = self.captured_steps("--steps", 3)
        self.end_all(programs)
        self.assert_only_steps(first + second, ranks=range(8))
        report, indices = self.indices()
        self.assertEqual(indices, {rank: first + second for rank in range(8)})
        windows = report["conditions"]["on_demand"]["windows"]
        self.assertEqual([(w["first_step"], w["last_step"], w["ranks"]) for w in windows], [(s[0], s[-1], list(range(8))) for s in (first, second)])
        self.assertEqual([(straggler["rank"], straggler["host"]) for straggler in report["stragglers"]], [(6, "n2")])



class Elsewhere(CaptureOnHosts):

    def test_ranks_of_both_hosts_are_chosen(self):
        programs = self.start_job(1500)
        refused = self.capture("--ranks", "1,9")
        self.assertEqual((refused.returncode, refused.stderr.decode()),
                         (1, "gpuprobe: capture: rank 9 is not connected to this collector, nor to another host's; connected are 0, 1, 2, 3\n"))
        steps = self.captured_steps("--steps", 4, "--ranks", "1,2")
        self.assertIn(" on 2 processes of 2 hosts\n", self.said.stdout.decode())
        self.end_all(programs)
        self.assert_only_steps(steps, ranks=(1, 2))

    def test_collectives_are_counted_and_windows_of_time_agree(self):
        programs = self.start_job(2200, marker=False)
        steps = self.captured_steps("--steps", 4)
        self.assertIn("collectives ", self.said.stdout.decode())
        timed = self.capture("--seconds", 0.5)
        self.assertTrue(timed.stdout.startswith(b"captured 0.5 s on 4 processes of 2 hosts\n"), str(timed))
        self.end_all(programs)
        report, indices = self.indices()
        # Steps of a window of time have no numbers of the program's.
        self.assertEqual({tuple(numbers[:4]) for numbers in indices.values()}, {tuple(steps)})
        windows = [window for window in report["conditions"]["on_demand"]["windows"] if window["first_step"] is None]
        self.assertEqual([window["ranks"] for window in windows], [[0, 1, 2, 3]])
        self.assertLess(windows[0]["end_ns"] - windows[0]["start_ns"], 0.7e9)


class RolledUp(CaptureOnHosts):
    """The hub gets roll-ups instead of records, and with them the last steps of a capture when the next one or the end follows."""

    def launched_on(self, name):
        return {**super().launched_on(name), "GPUPROBE_ROLL_UP_FROM": "1"}

    def test_the_same_steps(self):
        programs = self.start_job(1100, GPUSIM_SLOW="rank=3,factor=1.6")
        steps = self.captured_steps("--steps", 6)
        self.end_all(programs)
        report, indices = self.indices()
        self.assertEqual(indices, {rank: steps for rank in range(4)})
        self.assertEqual([straggler["rank"] for straggler in report["stragglers"]], [3])


class SharedDirectory(CaptureOnHosts):
    """The hub reads what n2 writes; posts bring the orders all the same."""

    def start_host(self, name, options=(), *args, **extra):
        return super().start_host(name, ("--out", self.path("shared"), *options), *args, **extra)

    def find_run(self):
        self.out = self.path("shared")
        return os.path.isdir(self.out)

    def run_of(self, name):
        return self.path("shared", name)

    def capture(self, *options):
        return self.run_program([GPUPROBE, "capture", self.run_of("n1"), *map(str, options)])

    def test_the_same_steps(self):
        programs = self.start_job(1500)
        self.assert_said_elsewhere("n2", "n1")
        steps = self.captured_steps("--steps", 4)
        self.assertIn(" on 4 processes of 2 hosts\n", self.said.stdout.decode())
        self.end_all(programs)
        self.assert_only_steps(steps, ranks=range(4))


class WithoutTheCommand(CaptureOnHosts):
    """Ranks load the probe by themselves, and start a collector on each host."""

    def start_host(self, name, options=(), arguments=(), **extra):
        environment = {**self.launched_on(name), **extra, "LD_PRELOAD": harness.LIBRARY, "GPUPROBE_LEVEL": "idle", "GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_AUTOSTART": "1",
                       "GPUPROBE_SOCKET": None, "XDG_RUNTIME_DIR": self.home(name)}
        return self.start_on(name, ["bash", "-c", self.script_of(name, DDP_TRAIN, arguments)], env=environment, devices=self.RANKS_PER_HOST * self.COUNT, cwd=self.home(name))

    def test_the_same_steps(self):
        programs = self.start_job(1500)
        steps = self.captured_steps("--steps", 4)
        self.assertIn(" on 4 processes of 2 hosts\n", self.said.stdout.decode())
        self.end_all(programs)
        harness.wait_until(lambda: os.path.exists(os.path.join(self.out, "report.json")), "report on all hosts")
        self.assert_only_steps(steps, ranks=range(4))


class WhoIsAway(CaptureOnHosts):
    """While a capture is under way. The job goes on, and so do captures once the host is back."""

    def captured_without(self, programs, cut, mend):
        """What a capture says, of which n2 hears the order and is not heard of again before it is over."""
        program = self.start_capture("--steps", 20)
        self.assertIn(b" on 4 processes of 2 hosts; ", program.so_far())
        cut()
        began = time.monotonic()
        finished = program.wait(harness.LIMIT_S)
        took = time.monotonic() - began
        lines = finished.stderr.decode().splitlines()
        self.assertEqual((finished.returncode, finished.stdout), (1, b""), str(finished))
        self.assertRegex("\n".join(lines), r"gpuprobe: capture: n2 has sent nothing for 15 s; its ranks end the capture by themselves\n")
        self.assertRegex(lines[-1], r"^gpuprobe: capture: captured steps \d+ to \d+, counted by GPUPROBE_STEP_MARKER, on 2 processes; not known of rank 2 on n2, rank 3 on n2: n2 has sent nothing for 1\d s$")
        self.assertLess(took, 20)
        steps = range(*(int(number) + more for number, more in zip(re.search(r"captured steps (\d+) to (\d+)", lines[-1]).groups(), (0, 1))))
        self.assertEqual(len(steps), 20)
        refused = self.capture("--steps", 2)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr.decode(), r"^gpuprobe: capture: n2 has sent nothing for \d+ s, so rank 2 on n2, rank 3 on n2 cannot be captured; name the others with --ranks\n$")
        here = self.captured_steps("--steps", 2, "--ranks", "0,1")
        mend()
        again = []

        def captured():
            again[:] = self.captured_steps("--steps", 3) if self.ranks_are_back() else []
            return again
        harness.wait_until(captured, "a capture of all hosts")
        self.end_all(programs)
        return list(steps), here, again

    def ranks_are_back(self):
        """Whether a capture of nothing but n2's would be taken: one of too many ranks is refused with what there is."""
        refused = self.capture("--ranks", "2,99").stderr.decode()
        self.assertIn("rank 99 is not connected", refused)
        return time.time() - os.path.getmtime(os.path.join(self.out, "n2", "live.json")) < 3

    def assert_all(self, steps, here, again):
        """n2's ranks recorded what was agreed, and then nothing, as n1's did; its records came when it was back."""
        _, indices = self.indices()
        self.assertEqual({rank: numbers for rank, numbers in indices.items() if rank < 2}, {rank: steps + here + again for rank in (0, 1)})
        self.assertEqual({rank: numbers for rank, numbers in indices.items() if rank > 1}, {rank: steps + again for rank in (2, 3)})

    @hazard("the network of a host is cut while a capture is armed", sees="same status", counted="every rank ends the capture; its steps reach the hub when the network is back")
    def test_a_cut_network(self):
        programs = self.start_job(5000)
        self.assert_all(*self.captured_without(programs, lambda: self.unplug("n2"), lambda: self.unplug("n2", plugged=True)))

    @hazard("the collector of a host is frozen while a capture is armed", sees="same status", counted="every rank ends the capture; its steps are on record when the collector goes on")
    def test_a_frozen_collector(self):
        programs = self.start_job(5000)
        collector = self.collector_of(programs["n2"], "n2")
        self.assert_all(*self.captured_without(programs, lambda: os.kill(collector, signal.SIGSTOP), lambda: os.kill(collector, signal.SIGCONT)))

    def test_a_rank_of_another_host(self):
        programs = self.start_job(100_000)
        program = self.start_capture("--steps", 3000)
        pid = next(rank["pid"] for rank in harness.json.loads(self.run_well([GPUPROBE, "top", "--once", "--json", self.out]).stdout)["ranks"] if rank["rank"] == 2)
        os.kill(pid, signal.SIGKILL)
        finished = program.wait()
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertRegex(finished.stderr.decode(), r"(?m)^gpuprobe: capture: rank 2 on n2 has left during the capture$")
        self.end(programs)


class HubElsewhere(CaptureOnHosts):
    """`gpuprobe hub` on n3, which runs no rank."""
    COUNT = 3

    def start_hub(self):
        hub = self.start_on("n3", [GPUPROBE, "hub", "--out", self.path("all-jobs")], env={"GPUPROBE_HUB_TOKEN": hub_job.TOKEN, "HOME": self.home("n3")})
        harness.wait_until(lambda: b"gpuprobe: hub on " in hub.so_far(), "hub")
        return hub

    def launching(self):
        return [name for name in self.holders if name != "n3"]

    def launched_on(self, name):
        return {**super().launched_on(name), "WORLD_SIZE": str(self.ranks), "GPUPROBE_HUB": "n3"}

    def find_run(self):
        runs = glob.glob(self.path("all-jobs", "*"))
        self.out = runs[0] if runs else ""
        return self.out


class AtAHub(HubElsewhere):

    def test_a_job_of_two_other_hosts(self):
        hub = self.start_hub()
        programs = self.start_job(1800, GPUSIM_SLOW="rank=3,factor=1.6")
        self.assert_said_elsewhere("n1", "n3")
        steps = self.captured_steps("--steps", 6)
        self.assertIn(" on 4 processes of 2 hosts\n", self.said.stdout.decode())
        self.assertRegex(self.said.stdout.decode(), r"(?i)\brank 3\b")
        self.end_all(programs)
        self.assertEqual(self.indices()[1], {rank: steps for rank in range(4)})
        hub.signal(signal.SIGTERM)
        self.assertEqual(hub.wait().returncode, 0)


if __name__ == "__main__":
    harness.main()
