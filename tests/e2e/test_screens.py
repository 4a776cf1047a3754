"""What people see on terminals of any width, on ones that know no colours, and where there is no terminal at all."""
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import threading
import time

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, SOURCE, wait_until

RECORDING = os.path.join(SOURCE, "tests", "data", "real", "torch_ddp")
WIDTHS = (60, 80, 100, 160)
COLOR = re.compile(r"\x1b\[[0-9;]*m")
END = b"\x04the end\x04"  # on a terminal, after all that a command wrote

# Runs a command whose output goes into a file, and stops it for more than a second while it reads a run, so that it takes long on any machine.
HELD_UP = """
import signal, subprocess, sys, time
run, output, *command = sys.argv[1:]
program = subprocess.Popen(command, stdout=open(output, "wb"))
while program.poll() is None and run not in open(f"/proc/{program.pid}/maps").read():
    time.sleep(0.001)
program.send_signal(signal.SIGSTOP)
time.sleep(1.2)
program.send_signal(signal.SIGCONT)
sys.exit(program.wait())
"""


class Screens(harness.EndToEndTest):

    def on_terminal(self, command, columns, terminal="xterm-256color", **variables):
        """Runs the command with all streams on a terminal of this width. Returns what stood on it."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        env = self.env({"TERM": terminal, **variables})
        process = subprocess.Popen(command, env=env, cwd=self.cwd, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)

        # We keep the terminal open until its end has been read: the kernel may drop what it has not passed on when the last program closes it.
        def mark_end():
            process.wait()
            os.write(slave, END)
        marks = threading.Thread(target=mark_end, daemon=True)
        marks.start()
        shown, deadline = b"", time.monotonic() + harness.LIMIT_S
        while not shown.endswith(END):
            if not select.select([master], [], [], max(0, deadline - time.monotonic()))[0]:
                process.kill()
                self.fail(f"{command} does not end: {shown.decode()}")
            shown += os.read(master, 65536)
        marks.join()
        for end in (master, slave):
            os.close(end)
        shown = shown.removesuffix(END).decode()
        self.assertEqual(process.returncode, 0, shown)
        return shown.replace("\r\n", "\n")

    def piped(self, command, **variables):
        return self.run_well(command, env=variables).stdout.decode()

    def test_every_line_fits(self):
        for columns in WIDTHS:
            for name, command in (("report", [GPUPROBE, "report", RECORDING]), ("diff", [GPUPROBE, "diff", RECORDING, RECORDING])):
                with self.subTest(columns=columns, name=name):
                    lines = COLOR.sub("", self.on_terminal(command, columns)).splitlines()
                    self.assertGreater(len(lines), 10)
                    # A path is never cut, so that it can be copied.
                    self.assertEqual([line for line in lines if len(line) > columns and RECORDING not in line], [])

    def test_every_line_fits_of_jobs_with_many_ranks(self):
        """With a screen for each subject: late ranks, a hang, memory, pipelines, several communicators; wherever and however it is read."""
        for scenario in ("straggler-kernels", "hang-missing-rank", "memory-leak", "pipeline-hosts", "grid"):
            out = self.path(scenario)
            self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--nvtx", "--out", out])
            words = None
            for columns in WIDTHS:
                for terminal in ("xterm-256color", "dumb"):
                    for language in ("C", "C.UTF-8"):
                        with self.subTest(scenario=scenario, columns=columns, terminal=terminal, language=language):
                            shown = self.on_terminal([GPUPROBE, "report", out], columns, terminal, LANG=language, LC_ALL=language)
                            lines = COLOR.sub("", shown).splitlines()
                            self.assertEqual([line for line in lines if len(line) > columns and out not in line], [])
                            self.assertNotRegex(shown, r"[^\x00-\x7f]")
                            # A width changes where lines end, and never what the first finding says.
                            said = re.search(r"\n 1  (.*?)\n    >", COLOR.sub("", shown), re.DOTALL)[1].split()
                            words = words or said
                            self.assertEqual(said, words)

    def test_the_live_line_fits(self):
        training = [LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "120", "--layers", "4", "--width", "64", "--batch", "16"]
        for columns in WIDTHS:
            for terminal in ("xterm-256color", "dumb"):
                with self.subTest(columns=columns, terminal=terminal):
                    command = [GPUPROBE, "run", "--status", "1", "--out", self.path(f"live-{columns}-{terminal}"), "--", *training]
                    shown = self.on_terminal(command, columns, terminal, LANG="C", GPUSIM_KERNELS=".*=2ms", GPUSIM_DEVICES="2")
                    # What is drawn over is a line of its own.
                    drawn = COLOR.sub("", re.sub(r"\x1b\[K", "", shown)).replace("\r", "\n").splitlines()
                    live = [line for line in drawn if re.match(r"(gpuprobe: )?step \d+ ", line)]
                    self.assertTrue(live, shown)
                    self.assertLessEqual(max(len(line) for line in live), columns, live)
                    if terminal == "dumb":
                        self.assertNotIn("\x1b", shown)

    def test_top_fits(self):
        collector = harness.Collector(self, arguments=["--hang-after", "2"])
        job = self.start([GPUPROBE, "simulate", "--scenario", "hang-missing-rank", "--real-time", "--socket", collector.socket])
        wait_until(lambda: b"HANG" in self.run_program([GPUPROBE, "top", "--once", collector.out]).stdout, "hang")
        for columns in WIDTHS:
            for terminal in ("xterm-256color", "dumb"):
                for choice in ([], ["--rank", "5"]):
                    with self.subTest(columns=columns, terminal=terminal, choice=choice):
                        shown = self.on_terminal([GPUPROBE, "top", "--once", *choice, collector.out], columns, terminal, LANG="C", LC_ALL="C")
                        lines = COLOR.sub("", shown).splitlines()
                        self.assertLessEqual(max(len(line) for line in lines), columns, shown)
                        if not choice:
                            self.assertRegex(" ".join(COLOR.sub("", shown).split()), r"HANG AllReduce .* rank 5 did not issue it")
                            self.assertEqual("\x1b[1;31mHANG" in shown, terminal != "dumb", "red, where there are colours")
                        self.assertNotRegex(shown, r"[^\x00-\x7f]")
        for program in (job, collector.program):
            program.signal(15)
            program.wait()

    def test_help_fits(self):
        commands = re.findall(r"^  (\w+) +\S", self.piped([GPUPROBE, "help"]).partition("Subcommands")[2].partition("Environment")[0], re.M)
        self.assertGreater(len(commands), 9)
        screens = [["help"], ["--help"], ["help", "environment"], ["help", "findings"], ["simulate", "--list"], *([command, "--help"] for command in commands)]
        for words in screens:
            whole = self.piped([GPUPROBE, *words])
            examples = [line for line in whole.splitlines() if line.startswith("    gpuprobe ")]
            for columns in WIDTHS:
                for terminal in ("xterm-256color", "dumb"):
                    with self.subTest(words=words, columns=columns, terminal=terminal):
                        shown = self.on_terminal([GPUPROBE, *words], columns, terminal, LANG="C")
                        lines = shown.splitlines()
                        # A command is never cut, so that it can be copied.
                        self.assertEqual([line for line in lines if len(line) > columns and line not in examples], [])
                        self.assertLessEqual(set(examples), set(lines))
                        self.assertEqual(shown.split(), whole.split(), "it says the same")

    def test_long_reading_says_how_far_it_is_and_leaves_nothing(self):
        out = self.path("large")
        self.run_well([GPUPROBE, "simulate", "--scenario", "compute-bound", "--ranks", "8", "--steps", "1500", "--out", out])
        lines = self.path("lines")
        command = ["sh", "-c", f"{GPUPROBE} export {out} > {lines}"]
        shown = self.on_terminal(command, 80)
        # The clocks first, then the records.
        percents = [(int(time or 1), int(percent)) for time, percent in
                    re.findall(r"\rgpuprobe: reading [^\s:,]+(?:, time (\d+))?: (\d+) % of [\d.]+ MiB\x1b\[K", shown)]
        self.assertTrue(percents, shown)
        self.assertEqual(percents, sorted(percents))
        self.assertLessEqual(max(percent for _, percent in percents), 100)
        self.assertEqual(re.sub(r"\r[^\r]*\x1b\[K", "", shown), "")
        whole = os.path.getsize(lines)
        self.assertEqual(self.on_terminal(command, 80, terminal="dumb"), "")
        self.assertEqual(os.path.getsize(lines), whole)
        for words in (["report", out, "--json"], ["diff", out, out], ["query", out, "SELECT COUNT(*) FROM kernel"], ["trace", out, "-o", self.path("run.pftrace")]):
            for columns in (60, 160):
                with self.subTest(words=words, columns=columns):
                    shutil.rmtree(self.path("home", ".cache"), ignore_errors=True)  # what query keeps for the next question
                    shown = self.on_terminal([sys.executable, "-c", HELD_UP, out, lines, GPUPROBE, *words], columns)
                    drawn = re.findall(r"\r(gpuprobe: reading[^\r]*)\x1b\[K", shown)
                    self.assertTrue(drawn, shown)
                    self.assertLess(max(len(line) for line in drawn), columns, drawn)

    def test_colours_are_for_terminals_that_know_them_and_people_who_want_them(self):
        command = [GPUPROBE, "report", RECORDING]
        colored = self.on_terminal(command, 118)
        self.assertRegex(colored, COLOR)
        plain = self.on_terminal(command, 118, terminal="dumb")
        self.assertEqual(COLOR.sub("", colored), plain, "colours add nothing to the text")
        self.assertEqual(self.on_terminal(command, 118, NO_COLOR="1"), plain)
        self.assertEqual(self.on_terminal([*command, "--no-color"], 118), plain)
        self.assertNotRegex(self.piped(command, TERM="xterm-256color"), COLOR)
        self.assertNotRegex(self.piped(command, TERM="xterm-256color"), r"[^\x00-\x7f]", "a report is ASCII, so LANG=C shows it")

    def test_without_a_terminal_the_first_line_is_one_line(self):
        first = self.piped([GPUPROBE, "report", RECORDING]).splitlines()[0]
        self.assertRegex(first, r"^gpuprobe: 1 rank on .* 0 records lost, own cost ")

    def test_the_worst_finding_is_in_its_colour(self):
        self.assertRegex(self.on_terminal([GPUPROBE, "report", RECORDING], 118), r" 1  \x1b\[1;3[13]m")

    def test_quiet_says_nothing_and_writes_the_report(self):
        out = self.path("out")
        shown = self.on_terminal([GPUPROBE, "run", "--quiet", "--status", "1", "--out", out, "--", CUDA_SCRIPT, "kernels:5"], 100)
        self.assertNotIn("gpuprobe", shown)
        self.assertEqual(self.report(out)["ranks"][0]["kernels"]["count"], 5)

    def test_alone_it_says_the_few_commands_that_people_need(self):
        finished = self.run_program([GPUPROBE])
        self.assertEqual((finished.returncode, finished.stdout), (2, b""))
        lines = finished.stderr.decode().splitlines()
        self.assertEqual([line.split()[:2] for line in lines if line.startswith("  gpuprobe ")], [["gpuprobe", "run"], ["gpuprobe", "top"], ["gpuprobe", "report"]])
        self.assertLess(len(lines), 10)
        for columns in WIDTHS:
            shown = self.on_terminal(["sh", "-c", f"{GPUPROBE} || test $? = 2"], columns)
            self.assertLessEqual(max(len(line) for line in shown.splitlines()), columns)
            self.assertEqual(shown.split(), finished.stderr.decode().split())


if __name__ == "__main__":
    harness.main()
