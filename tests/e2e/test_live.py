"""What is seen of a job while it runs: lines on a terminal, which leave the program's output alone, and `gpuprobe top`."""
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, wait_until

HOST_SAMPLES = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "host_samples.py")
SLOW = 1  # the rank whose kernels take twice as long
TRAINING = [LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "100000", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03"]
NODE = {"GPUSIM_KERNELS": "Linear=4ms", "GPUSIM_SLOW": f"rank={SLOW},factor=2", "GPUSIM_LINK": "alpha=10us,beta=10GB/s",
        # CUPTI hands records over by the buffer: small ones, so that those of a slow program come soon.
        "GPUPROBE_BUFFER_KIB": "64"}
# A constant job: each step of four ranks is as long as that of the one whose kernels take 1.3 times as long.
CONSTANT_SLOW = 3
CONSTANT = [LAUNCH_RANKS, "4", *TRAINING[2:]]
CONSTANT_NODE = {"GPUSIM_KERNELS": "Linear=1ms", "GPUSIM_SLOW": f"rank={CONSTANT_SLOW},factor=1.3", "GPUSIM_LINK": "alpha=10us,beta=10GB/s"}
LINE = (r"gpuprobe: step (\d[\d,]*)  ([\d.]+) ms  compute (\d+)%  exposed comm (\d+)%  copy (\d+)%  idle (\d+)%  wait (\d+)%"
        rf"   rank {SLOW} late by ([\d.]+) ms   memory [\d.]+ \w+   lost 0")
ROW = r"^ *\S+/(\d) +(\d+) +([\d.]+) ms"


class Live(harness.EndToEndTest):

    def begin(self, *options, stderr=None, training=TRAINING, node=NODE, devices=2):
        """`gpuprobe run` in a session of its own, with its standard error on `stderr`."""
        self.out = self.path("run-directory")
        self.stdout = open(self.path("stdout"), "w+b")
        self.addCleanup(self.stdout.close)
        program = subprocess.Popen([GPUPROBE, "run", "--out", self.out, *options, "--", *training], env=self.env(node, devices=devices), cwd=self.cwd,
                                   stdin=subprocess.DEVNULL, stdout=self.stdout, stderr=stderr, start_new_session=True)
        self.addCleanup(self.end, program)
        return program

    def end(self, program):
        for pid in harness.processes_of_session(program.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        program.wait(harness.LIMIT_S)

    def top(self, *arguments):
        return self.run_program([GPUPROBE, "top", "--once", *arguments])

    def stop(self, program):
        program.send_signal(signal.SIGTERM)
        program.wait(harness.LIMIT_S)
        self.assert_nothing_runs()

    def test_lines_on_a_terminal(self):
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 160, 0, 0))
        os.set_blocking(ours, False)
        self.addCleanup(os.close, ours)
        program = self.begin("--status", "1", stderr=theirs)
        os.close(theirs)
        seen = b""

        def line():
            nonlocal seen
            try:
                seen += os.read(ours, 65536)
            except BlockingIOError:
                pass
            self.assertIsNone(program.poll(), seen.decode())
            # Eleven kernels of 4 ms a step, of 8 ms on the slow rank: each step ends when it does. The first lines may be of the beginning.
            return next((m for m in re.finditer(LINE, seen.decode()) if float(m[2]) > 80 and 20 < float(m[8]) < float(m[2])), None)

        found = wait_until(line, "line about the job")
        self.assertLessEqual(abs(sum(int(found[part]) for part in (3, 4, 5, 6)) - 100), 2)
        self.assertIn("gpuprobe: 2 ranks on ", seen.decode())
        self.assertNotIn(b"\x1b", seen)
        program.send_signal(signal.SIGTERM)

        def ended():
            line_or_not = b""
            try:
                line_or_not = os.read(ours, 65536)
            except OSError:
                pass
            return program.poll() is not None and not line_or_not

        wait_until(ended, "end")
        self.assert_nothing_runs()
        self.stdout.seek(0)
        self.assertNotIn(b"gpuprobe", self.stdout.read())

    def test_a_row_a_rank(self):
        with open(self.path("stderr"), "w+b") as stderr:
            program = self.begin("--status", "1", stderr=stderr)
            screen = wait_until(lambda: "late by" in (said := self.top(self.out).stdout.decode()) and f"rank {SLOW} late by" in said and said, "screen")
            rows = re.findall(ROW, screen, re.MULTILINE)
            self.assertEqual([rank for rank, steps, total in rows], ["0", "1"], screen)
            self.stop(program)
            stderr.seek(0)
            # Not a terminal: only the report is said.
            self.assertNotIn(b"gpuprobe: step", stderr.read())
        over = self.top(self.out)
        self.assertEqual(over.returncode, 1)
        self.assertIn(b"is not being recorded", over.stderr)
        nothing = self.top()
        self.assertEqual((nothing.returncode, nothing.stderr.count(b"\n")), (1, 1))

    def test_a_constant_job_does_not_jump(self):
        """Ranks send their batches at different moments; what is known of one rank only is neither lateness nor waiting of another, and the age of news is no wait."""
        with open(self.path("stderr"), "w+b") as stderr:
            program = self.begin("--status", "0", stderr=stderr, training=CONSTANT, node=CONSTANT_NODE, devices=4)

        def status():
            return json.loads(self.top(self.out, "--json").stdout or "null")

        wait_until(lambda: ((now := status()) or {}).get("steps", 0) > 200, "steps after the warm-up")
        seen = []
        until = time.monotonic() + 10
        while time.monotonic() < until:
            seen.append(status())
            time.sleep(0.3)
        self.stop(program)
        report = harness.read_report(self.out)
        step_ns = report["steps"]["time_ns"]["p50"]
        late_ns = report["ranks"][CONSTANT_SLOW]["wait"]["caused_per_step_ns"]
        self.assertGreater(len(seen), 8)
        with self.undisturbed(report):
            # Eleven kernels of 1 ms take 3.3 ms longer; each of the calls that overlap them waits for as long as it is late.
            self.assertGreater(late_ns, 3.3e6)
            self.assertAlmostEqual(report["ranks"][0]["steps"]["compute_ns"]["p50"], 11e6, delta=1.5e6)
            for now in seen:
                self.assertEqual([rank["rank"] for rank in now["ranks"]], [0, 1, 2, 3])
                for rank in now["ranks"]:
                    slow = rank["rank"] == CONSTANT_SLOW
                    self.assertAlmostEqual(rank["late_ns"], late_ns if slow else 0, delta=0.25 * late_ns, msg=rank)
                    self.assertAlmostEqual(rank["waited_ns"], 0 if slow else late_ns, delta=0.25 * late_ns, msg=rank)
                    self.assertLess(rank["waited_ns"], step_ns)
                    # Its host may be some steps ahead of its GPU; news are half a second old, which is more.
                    self.assertLess(rank["blocked_ns"], 12 * step_ns, rank)
                    self.assertLess(rank["silent_ns"], 12 * step_ns, rank)

    def test_what_the_host_of_a_silent_rank_is_in(self):
        """A program that launches, and then reads a pipe into which nobody writes for long."""
        pipe, out = self.path("pipe"), self.path("silent")
        os.mkfifo(pipe)
        program = self.start([GPUPROBE, "run", "--out", out, "--", "/usr/bin/python3", "-B", HOST_SAMPLES, "read", pipe], env=PATIENT)
        writer = os.open(pipe, os.O_RDWR)
        self.addCleanup(os.close, writer)
        said = rf"has launched nothing for [\d.]+ s: in read of {re.escape(pipe)}, called from read \({re.escape(HOST_SAMPLES)}:\d+\) \(seen [\d.]+ \w+ ago\)"
        screen = wait_until(lambda: re.search(said, words := " ".join(self.top(out).stdout.decode().split())) and words, "the silent rank")
        rank, = json.loads(self.top(out, "--json").stdout)["ranks"]
        self.assertRegex(rank["host_in"], rf"^read of {re.escape(pipe)}, called from read ")
        self.assertLess(rank["host_in_ago_ns"], rank["silent_ns"] + 5_000_000_000, screen)  # which ends when it was last heard
        self.assertGreater(rank["silent_ns"], 1_000_000_000)
        os.write(writer, b"x")
        self.assertEqual(program.wait().returncode, 0)

    def test_keys(self):
        with open(self.path("stderr"), "w+b") as stderr:
            program = self.begin("--status", "0", stderr=stderr)
        wait_until(lambda: f"rank {SLOW} late by" in self.top(self.out).stdout.decode(), "steps")
        alone = self.top(self.out, "--rank", str(SLOW)).stdout.decode()
        self.assertRegex(alone, rf"(?m)^rank {SLOW} on \S+, process \d+$")
        self.assertIn("its last call of a collective was AllReduce", alone)
        self.assertEqual([rank for rank, _, _ in re.findall(ROW, self.top(self.out, "--sort", "late").stdout.decode(), re.MULTILINE)], [str(SLOW), "0"])
        self.assertEqual(len(json.loads(self.top(self.out, "--json").stdout)["ranks"]), 2)
        self.assertRegex(self.run_program([GPUPROBE, "top", "--rank", "7", self.out]).stderr.decode(), r"^gpuprobe: top: there is no rank 7 in ")

        for ending in ("key", "signal", "over"):
            with self.subTest(ending):
                master, slave = os.openpty()
                fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 100, 0, 0))
                before = termios.tcgetattr(slave)
                top = subprocess.Popen([GPUPROBE, "top", self.out], env=self.env({"TERM": "xterm"}), cwd=self.cwd, stdin=slave, stdout=slave, stderr=slave,
                                       start_new_session=True)
                self.addCleanup(top.kill)
                seen = ""

                def shows(pattern, keys=b""):
                    nonlocal seen
                    seen = ""
                    os.write(master, keys)
                    deadline = time.monotonic() + harness.LIMIT_S
                    while not re.search(pattern, seen):
                        self.assertTrue(select.select([master], [], [], max(0, deadline - time.monotonic()))[0], f"no {pattern!r} in {seen!r}")
                        seen += os.read(master, 65536).decode()

                shows(r"> \S+/0 ")
                self.assertIn("\x1b[?1049h", seen)
                shows(rf"> \S+/{SLOW} ", b"\x1b[B")
                shows(rf"rank {SLOW} on ", b"\r")
                shows(r"(?s)  now .* 1\.\d\d s ")
                shows(r"by rank", b"\x1b")
                shows(rf"(?s)> \S+/{SLOW} .*by late", b"s")
                if ending == "key":
                    os.write(master, b"q")
                    self.assertEqual(top.wait(harness.LIMIT_S), 0)
                elif ending == "signal":
                    top.send_signal(signal.SIGTERM)
                    self.assertEqual(top.wait(harness.LIMIT_S), -signal.SIGTERM)
                else:
                    program.send_signal(signal.SIGTERM)
                    shows("the run is over: gpuprobe report ")
                    self.assertEqual(top.wait(harness.LIMIT_S), 0)
                if ending != "over":
                    shows(re.escape("\x1b[?25h\x1b[?1049l"))
                self.assertEqual(termios.tcgetattr(slave), before)
                os.close(master)
                os.close(slave)
        program.wait(harness.LIMIT_S)
        self.assert_nothing_runs()


if __name__ == "__main__":
    harness.main()
