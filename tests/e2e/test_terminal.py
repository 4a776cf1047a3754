"""`gpuprobe run` in a terminal, under an interactive shell: its keys do to the job what they do without us, and what was recorded is reported."""
import fcntl
import os
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
import unittest

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS
from hazards import hazard

# Longer than any test, with kernels of a millisecond: whoever waits for its end has failed.
LONG_TRAINING = [LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "1000000", "--layers", "4", "--width", "64", "--batch", "16"]
INTERRUPT, QUIT, SUSPEND = b"\x03", b"\x1c", b"\x1a"


class Terminal:
    """A pseudo-terminal with an interactive shell in it."""

    def __init__(self, test):
        self._master, slave = os.openpty()
        self._seen = b""

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._pid = os.fork()
        if self._pid == 0:
            try:
                for number in (0, 1, 2):
                    os.dup2(slave, number)
                os.closerange(3, 256)
                take_terminal()
                os.chdir(test.cwd)
                env = {**test.env({"GPUSIM_KERNELS": ".*=1ms"}, devices=2), "TERM": "dumb", "PS1": "", "PS2": "", "HISTFILE": "/dev/null"}
                os.execve(shutil.which("bash"), ["bash", "--norc", "--noprofile", "--noediting", "-i"], env)
            finally:
                os._exit(126)
        os.close(slave)
        self.type("stty -echo; ulimit -c 0; echo rea''dy")
        self.await_text(rb"ready")

    def type(self, line):
        self.press(line.encode() + b"\n")

    def press(self, key):
        os.write(self._master, key)

    def resize(self, rows, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def await_text(self, pattern, limit=60):
        """Reads until `pattern` appears after what earlier calls consumed. Returns all that was read up to its end, and the match."""
        deadline = time.monotonic() + limit
        while not (found := re.search(pattern, self._seen)):
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            try:
                data = os.read(self._master, 65536) if ready else b""
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"no {pattern!r} on the terminal within {limit} s:\n{self._seen.decode(errors='replace')}")
            self._seen += data
        before, self._seen = self._seen[:found.end()], self._seen[found.end():]
        return before, found

    def await_prompt(self, limit=60):
        """Waits until the shell is in the foreground again. An interactive shell drops the rest of a line whose command a key ended."""
        harness.wait_until(lambda: os.tcgetpgrp(self._master) == self._pid, "end of the command", limit)

    def hang_up(self):
        os.close(self._master)
        self._master = -1
        os.waitpid(self._pid, 0)
        self._pid = 0

    def close(self):
        if self._pid:
            if self._master >= 0:
                os.close(self._master)
                self._master = -1
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


@unittest.skipUnless(shutil.which("bash"), "no bash")
class InATerminal(harness.EndToEndTest):

    def terminal(self):
        terminal = Terminal(self)
        self.addCleanup(terminal.close)
        return terminal

    def shell_line(self, command, probed):
        return " ".join([GPUPROBE, "run", "--out", self.path("out"), "--", *command] if probed else command)

    def training(self, terminal, probed):
        """Starts the long training and waits until both ranks are in the middle of it, and some of it in the log."""
        self.forget_truth()
        terminal.type(self.shell_line(LONG_TRAINING, probed))
        folder = self.path("truth")
        harness.wait_until(lambda: os.path.isdir(folder) and sum(os.path.getsize(os.path.join(folder, name)) > 10000 for name in os.listdir(folder)) == 2,
                           "two ranks at work")
        if probed:
            harness.wait_until(lambda: b'"kernel"' in self.run_program([GPUPROBE, "export", self.path("out"), "--format", "jsonl"]).stdout, "records in the log")

    def status_after(self, key, probed):
        """The shell's $? after the key was pressed during a training, and what stood on the terminal."""
        terminal = self.terminal()
        self.training(terminal, probed)
        terminal.press(key)
        terminal.await_prompt(limit=30)
        return self.finished(terminal)

    def finished(self, terminal):
        """The shell's $?, and what stood on the terminal."""
        terminal.type('echo "status=$?."')
        text, found = terminal.await_text(rb"status=(\d+)\.")
        terminal.close()
        self.assert_nothing_runs()
        return int(found.group(1)), text.decode(errors="replace")

    def key_ends_training(self, key, number):
        self.assertEqual(self.status_after(key, probed=False)[0], 128 + number)
        status, text = self.status_after(key, probed=True)
        self.assertEqual(status, 128 + number, text)
        self.assertIn(self.path("out"), text, "the report is printed")
        self.assertTrue(os.path.exists(self.path("out", "report.json")))
        ranks = self.report(self.path("out"))["ranks"]
        self.assertEqual(len(ranks), 2)
        self.assertGreater(sum(rank["kernels"]["count"] for rank in ranks), 0)

    @hazard("Ctrl-C in the terminal of a job with several ranks", sees="ends at once with status 130, every rank included",
            counted="the report of what was recorded is written and printed; ranks are marked as cut off")
    def test_interrupt(self):
        self.key_ends_training(INTERRUPT, signal.SIGINT)

    @hazard("Ctrl-\\ in the terminal of a job with several ranks", sees="ends at once with status 131, every rank included",
            counted="the report of what was recorded is written and printed; ranks are marked as cut off")
    def test_quit(self):
        self.key_ends_training(QUIT, signal.SIGQUIT)

    @hazard("Ctrl-Z, then fg", sees="stops, continues, and ends with its own status", counted="everything is recorded, nothing lost")
    def test_suspend_and_continue(self):
        terminal = self.terminal()
        ready, go = self.path("ready"), self.path("go")
        terminal.type(self.shell_line([CUDA_SCRIPT, "kernels:5", f"touch:{ready}", f"await:{go}", "kernels:5", "return:4"], probed=True))
        harness.wait_until(lambda: os.path.exists(ready), "the program's readiness")
        terminal.press(SUSPEND)
        terminal.await_text(rb"(?i)stopped")
        with open(go, "w", encoding="utf-8"):
            pass
        # Stopped means that nobody looks for the file, neither the program nor the collector.
        def stopped_processes():
            return [pid for pid in harness.all_pids() if self.mark.encode() in harness.read_proc(pid, "environ")
                    and b"State:\tT" in harness.read_proc(pid, "status")]
        harness.wait_until(lambda: len(stopped_processes()) >= 2, "stop of the program and the collector")
        terminal.type("fg")
        terminal.await_text(rb"await:")
        terminal.await_prompt()
        self.assertEqual(self.finished(terminal)[0], 4)
        report = self.report(self.path("out"))
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 10)
        self.assert_no_loss(report)

    @hazard("the terminal's keys, and a change of its size", sees="the signal of each arrives once", counted="what was recorded is reported")
    def test_each_key_arrives_once(self):
        terminal = self.terminal()
        ready, pid_file, seen = self.path("ready"), self.path("pid"), self.path("seen")
        run = self.shell_line([sys.executable, harness.SIGNAL_REPORTER, ready], probed=True)
        terminal.type(f"sh -c 'echo $$ > {pid_file}; exec {run}' > {seen}")
        harness.wait_until(lambda: os.path.exists(ready), "the reporter")
        expected = b""
        for act, number in ((lambda: terminal.press(INTERRUPT), signal.SIGINT), (lambda: terminal.press(QUIT), signal.SIGQUIT),
                            (lambda: terminal.press(SUSPEND), signal.SIGTSTP), (lambda: terminal.resize(20, 90), signal.SIGWINCH)):
            act()
            expected += b"%d 0\n" % number
            harness.wait_until(lambda: harness.read_file(seen) == expected, f"signal {number}", limit=20)
        harness.queue_signal(int(harness.read_file(pid_file)), signal.SIGUSR2, harness.LAST_SIGNAL)
        terminal.await_prompt()
        self.assertEqual(self.finished(terminal)[0], 5)
        self.assertEqual(harness.read_file(seen), expected)

    @hazard("the terminal is closed while the job runs", sees="every rank gets SIGHUP and ends, as without the probe",
            counted="report.json is written")
    def test_hangup(self):
        terminal = self.terminal()
        self.training(terminal, probed=True)
        terminal.hang_up()
        self.assert_nothing_runs()
        self.assertTrue(os.path.exists(self.path("out", "report.json")))
        self.assertEqual(len(self.report(self.path("out"))["ranks"]), 2)

    @hazard("the terminal is resized again and again", sees="gets each SIGWINCH and continues", counted="everything is recorded, nothing lost")
    def test_resize(self):
        terminal = self.terminal()
        go = self.path("go")
        terminal.type(self.shell_line([CUDA_SCRIPT, "kernels:5", "print:rea''dy", f"await:{go}", "kernels:5", "return:4"], probed=True))
        terminal.await_text(rb"ready")
        for rows in range(10, 60):
            terminal.resize(rows, 200 - rows)
        with open(go, "w", encoding="utf-8"):
            pass
        terminal.await_prompt()
        self.assertEqual(self.finished(terminal)[0], 4)
        self.assert_no_loss(self.report(self.path("out")))

    def test_questions_are_asked_for(self):
        """What is wrong is said, and the next question may be better; a semicolon within a string ends nothing."""
        run = self.path("run")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--ranks", "2", "--steps", "20", "--out", run])
        terminal = self.terminal()
        terminal.type(f"{GPUPROBE} query {run}; echo status $?")
        terminal.await_text(rb"sql> ")
        terminal.type("SELECT count(*) AS steps")
        terminal.await_text(rb"\.\.\.> ")
        terminal.type("FROM step;")
        terminal.await_text(rb"steps\r\n +40\r\nsql> ")
        terminal.type("SELECT late FROM step;")
        terminal.await_text(rb"no such column: late.*\r\nsql> ")
        terminal.type("SELECT ';' AS mark; SELECT 41 + 1 AS next;")
        terminal.await_text(rb"mark\r\n;\r\nnext\r\n +42\r\nsql> ")
        terminal.press(b"\x04")
        terminal.await_text(rb"status 0")


if __name__ == "__main__":
    harness.main()
