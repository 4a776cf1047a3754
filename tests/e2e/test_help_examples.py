"""Every example that --help shows is run as it stands: with a recorded run for DIR, a small training job for the reader's program, and a free port."""
import json
import os
import re
import shlex
import shutil
import signal

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, SMALL_TRAINING, read_proc, wait_until

# Runs until it is stopped: what it says when it is ready.
UNTIL_STOPPED = {"collect": b"collecting on", "hub": b"hub on", "report DIR --serve": b"serving", "top": None}


def examples(text):
    """The commands under "Examples:"."""
    _, _, shown = text.partition("Examples:\n")
    return re.findall(r"^    (gpuprobe .*)$", shown, re.M)


class HelpExamples(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.recorded = self.path("recorded")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--steps", "30", "--out", self.recorded])

    def command(self, example, cwd):
        line, dashes, _ = example.partition(" -- ")
        words = [GPUPROBE if i == 0 else {"DIR": self.recorded, "BEFORE": self.recorded, "AFTER": self.recorded, "PID": str(os.getpid())}.get(word, word) for i, word in enumerate(shlex.split(line))]
        if words[1] == "run":
            words[2:2] = ["--out", os.path.join(cwd, "out")]
        if words[1] == "hub":
            words += ["--listen", "127.0.0.1:0"]
        for option in ("--http", "--serve"):
            if option in words:
                words.insert(words.index(option) + 1, "127.0.0.1:0")
        return words + (["--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING] if dashes else [])

    def attach(self, words, line, cwd):
        """To a program that runs already; what the example ends is begun before."""
        job = self.start([DDP_TRAIN, "--steps", "1000000"])
        wait_until(lambda: b"libcuda.so" in read_proc(job.pid, "maps"), "program that uses CUDA")
        if words[1] == "detach":
            recording = self.start([GPUPROBE, "attach", str(job.pid), "--out", "now"], cwd=cwd)
            wait_until(lambda: b"attached to" in recording.so_far(), "recording")
            self.run_well([GPUPROBE, "detach", "now"], cwd=cwd)
        else:
            options = ["--for", "1s" if "--for" in line else "0.5s"] + (["--out", "my-run"] if "--out" in line else [])
            self.run_well([GPUPROBE, "attach", str(job.pid), *options], cwd=cwd)
        job.signal(signal.SIGTERM)
        job.wait()

    def capture(self, line, cwd):
        """From a job that runs at level idle, with a process that is its only one."""
        job = self.start([GPUPROBE, "run", "--level", "idle", "--step-marker", "nvtx:step", "--out", "now", "--", DDP_TRAIN, "--steps", "3000"], cwd=cwd, env={"GPUSIM_KERNELS": ".*=500us"})
        live = os.path.join(cwd, "now", "live.json")
        wait_until(lambda: os.path.exists(live), "run")
        with open(live, encoding="utf-8") as file:
            pid = str(json.load(file)["ranks"][0]["pid"])
        words = [{"gpuprobe": GPUPROBE, "DIR": "now", "PID": pid}.get(word, word) for word in shlex.split(line)]
        self.assertIn(b"captured", self.run_well(words, cwd=cwd).stdout)
        os.kill(int(pid), signal.SIGTERM)
        job.wait()

    def run_example(self, command, line, cwd):
        words = self.command(line, cwd)
        if words[1] in ("runs", "report", "query") and "DIR" not in line:  # the newest one
            shutil.copytree(self.recorded, os.path.join(cwd, "gpuprobe-runs", "recorded"))
        ready = next((said for beginning, said in UNTIL_STOPPED.items() if line.startswith("gpuprobe " + beginning)), b"")
        if ready is None:  # `top` finds the job that is being recorded below its folder
            recording = self.start([GPUPROBE, "collect", "--socket", self.path("s.sock"), "--out", os.path.join(cwd, "gpuprobe-runs", "now")], cwd=cwd)
            job = self.start([GPUPROBE, "simulate", "--scenario", "healthy", "--ranks", "2", "--steps", "1000000", "--real-time", "--socket", self.path("s.sock")])
            wait_until(lambda: os.path.exists(os.path.join(cwd, "gpuprobe-runs", "now", "live.json")), "live run")
            self.run_well([*words, "--once"], cwd=cwd)
            job.signal(signal.SIGTERM)
            job.wait()
            recording.signal(signal.SIGTERM)
            recording.wait()
            return
        if line == "gpuprobe stacks":  # finds it, too, and needs its processes
            job = self.start([GPUPROBE, "run", "--out", os.path.join(cwd, "gpuprobe-runs", "now"), "--", DDP_TRAIN, "--steps", "1000000"], cwd=cwd)
            wait_until(lambda: b"ddp_train" in self.run_program(words, cwd=cwd).stdout, "process of the live run")
            job.signal(signal.SIGTERM)
            job.wait()
            return
        if words[1] == "autopsy":  # needs a process that was killed
            job = self.start([GPUPROBE, "run", "--out", "killed", "--", "sh", "-c", f"{DDP_TRAIN} --steps 1000000 & echo $! > pid; wait"], cwd=cwd)
            wait_until(lambda: os.path.exists(os.path.join(cwd, "killed", "live.json")), "run")
            with open(os.path.join(cwd, "pid"), encoding="ascii") as file:
                os.kill(int(file.read()), signal.SIGKILL)
            job.wait()
            self.run_well([os.path.join(cwd, "killed") if word == self.recorded else word for word in words], cwd=cwd)
            return
        if words[1] == "jobs":
            hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", "jobs"], cwd=cwd, env={"GPUPROBE_HUB_TOKEN": "a-token-of-an-example"})
            url = wait_until(lambda: re.search(rb"jobs: (http://\S+)", hub.so_far()), "hub")[1].decode()
            self.run_well([url if word.startswith("http") else word for word in words], cwd=cwd)
            hub.signal(signal.SIGTERM)
            hub.wait()
            return
        if words[1] == "doctor" and "PID" in line:  # this test is not recorded, and that is worth a warning
            self.assertEqual(self.run_program(words, cwd=cwd).returncode, 1)
            return
        if words[1] == "capture":
            return self.capture(line, cwd)
        if words[1] in ("attach", "detach"):
            self.attach(words, line, cwd)
            return
        if line == "gpuprobe look":  # finds programs that use a GPU
            job = self.start([DDP_TRAIN, "--steps", "1000000"])
            wait_until(lambda: b"ddp_train" in self.run_program(words, cwd=cwd).stdout, "program that uses a GPU")
            job.signal(signal.SIGTERM)
            job.wait()
            return
        if not ready:
            self.run_well(words, cwd=cwd, devices=2)
            return
        program = self.start(words, cwd=cwd)
        wait_until(lambda: ready in program.so_far() or not program.alive(), f"{ready} of {line}")
        program.signal(signal.SIGTERM)
        self.assertEqual(program.wait().returncode, 0, program.finished())

    def test_each_runs(self):
        ran = 0
        commands = re.findall(r"^  (\w+) +\S", self.run_well([GPUPROBE, "help"]).stdout.decode().partition("Subcommands")[2].partition("Environment")[0], re.M)
        for command in commands:
            shown = examples(self.run_well([GPUPROBE, command, "--help"]).stdout.decode())
            self.assertTrue(shown or command in ("help", "version"), f"{command} --help has no example")
            manual = self.run_well([GPUPROBE, "help", command, "--man"]).stdout.decode().replace("\\-", "-")
            for i, line in enumerate(shown):
                with self.subTest(line):
                    self.assertIn(line.replace("\\", "\\e"), manual)
                    cwd = self.path(f"{command}-{i}")
                    os.mkdir(cwd)
                    self.run_example(command, line, cwd)
                    ran += 1
        self.assertGreaterEqual(ran, 15)


if __name__ == "__main__":
    harness.main()
