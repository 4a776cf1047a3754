"""`gpuprobe run` in the place of its command: signals that it gets are the command's, and it stops and continues with the command."""
import fcntl
import os
import re
import signal
import sys
import termios

import harness
from harness import GPUPROBE, LAST_SIGNAL, SIGNAL_REPORTER, queue_signal
from hazards import hazard

# glibc keeps 32 and 33 for itself.
EVERY_SIGNAL = [number for number in range(1, 65) if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33)]


class RunAsTheCommand(harness.EndToEndTest):

    def probed(self, *command):
        return [GPUPROBE, "run", "--quiet", "--out", self.path("out"), "--", *command]

    def reporter(self):
        """A command that reports its signals, started and ready."""
        ready = self.path("ready")
        program = self.start(self.probed(sys.executable, SIGNAL_REPORTER, ready))
        harness.wait_until(lambda: os.path.exists(ready), "the reporter")
        return program

    def reported(self, program):
        """What arrived until now and within 0.3 s more, as (number, value)."""
        queue_signal(program.pid, signal.SIGUSR2, LAST_SIGNAL)
        finished = program.wait()
        self.assertEqual(finished.returncode, 5, str(finished))
        return [tuple(map(int, line.split())) for line in finished.stdout.splitlines()]

    def witness_of(self, pid):
        """The second child of `gpuprobe run`: see collector/cli/group_witness.h."""
        _collector, witness = (int(child) for child in harness.read_proc(pid, f"task/{pid}/children").split()
                               if os.path.samefile(f"/proc/{int(child)}/exe", GPUPROBE))
        return witness

    def await_stopped(self, pid):
        harness.wait_until(lambda: re.search(rb"State:\tT", harness.read_proc(pid, "status")), f"{pid} stopped", limit=20)

    def await_line(self, program, line):
        harness.wait_until(lambda: line in program.finished().stdout, f"{line!r}", limit=20)

    @hazard("any signal of 1 to 64 is sent to `gpuprobe run`", sees="each one arrives once, real-time signals included", counted="what was recorded is reported")
    def test_every_signal_arrives_once(self):
        program = self.reporter()
        for number in EVERY_SIGNAL:
            os.kill(program.pid, number)
            self.await_line(program, b"%d 0\n" % number)
        self.assertEqual(self.reported(program), [(number, 0) for number in EVERY_SIGNAL])

    @hazard("signals are queued for `gpuprobe run` with values (sigqueue)", sees="each value arrives, in order", counted="what was recorded is reported")
    def test_values_arrive(self):
        program = self.reporter()
        sent = [(signal.SIGRTMIN + 1, value) for value in range(1, 40)] + [(signal.SIGRTMAX, 7), (signal.SIGUSR1, -3)]
        for number, value in sent:
            queue_signal(program.pid, number, value)
        harness.wait_until(lambda: len(program.finished().stdout.splitlines()) == len(sent), "all values", limit=20)
        arrived = self.reported(program)
        self.assertEqual(sorted(arrived), sorted(sent))
        self.assertEqual([value for number, value in arrived if number == signal.SIGRTMIN + 1], list(range(1, 40)))

    @hazard("a signal is sent to the process group of `gpuprobe run` (kill %1, timeout)", sees="it arrives once", counted="what was recorded is reported")
    def test_signals_to_the_group_arrive_once(self):
        program = self.reporter()
        for number in EVERY_SIGNAL:
            os.killpg(program.pid, number)
            self.await_line(program, b"%d 0\n" % number)
        self.assertEqual(self.reported(program), [(number, 0) for number in EVERY_SIGNAL])

    def test_signals_to_the_group_and_to_run_alternate(self):
        """Which of them went to the group is decided for each signal anew."""
        program = self.reporter()
        for turn in range(1, 21):
            (os.killpg if turn % 2 else os.kill)(program.pid, signal.SIGUSR1)
            harness.wait_until(lambda turn=turn: len(program.finished().stdout.splitlines()) >= turn, f"signal {turn}", limit=20)
            # Until `run` has taken it, the next one would be merged with it.
            harness.wait_until(lambda: re.search(rb"ShdPnd:\t0+\n", harness.read_proc(program.pid, "status")), "no signal waiting", limit=20)
        self.assertEqual(self.reported(program), [(signal.SIGUSR1, 0)] * 20)

    @hazard("the helper process (witness) with which `gpuprobe run` tells such signals apart is killed", sees="signals to `gpuprobe run` reach it as before",
            counted="what was recorded is reported")
    def test_without_its_witness(self):
        program = self.reporter()
        witness = self.witness_of(program.pid)
        os.kill(witness, signal.SIGKILL)
        harness.wait_until(lambda: not os.path.exists(f"/proc/{witness}"), "the witness's end")
        for number in EVERY_SIGNAL:
            os.kill(program.pid, number)
            self.await_line(program, b"%d 0\n" % number)
        self.assertEqual(self.reported(program), [(number, 0) for number in EVERY_SIGNAL])

    def test_its_witness_is_stopped(self):
        program = self.reporter()
        witness = self.witness_of(program.pid)
        os.kill(witness, signal.SIGSTOP)
        self.await_stopped(witness)
        os.killpg(program.pid, signal.SIGUSR1)
        self.await_line(program, b"10 0\n")
        os.kill(program.pid, signal.SIGHUP)
        self.await_line(program, b"1 0\n")
        self.assertEqual(self.reported(program), [(signal.SIGUSR1, 0), (signal.SIGHUP, 0)])

    def test_its_group_is_stopped_and_only_run_is_continued(self):
        program = self.reporter()
        witness = self.witness_of(program.pid)
        os.killpg(program.pid, signal.SIGSTOP)
        for pid in (program.pid, witness):
            self.await_stopped(pid)
        os.killpg(program.pid, signal.SIGUSR1)
        os.kill(program.pid, signal.SIGCONT)
        self.await_line(program, b"18 0\n")
        os.killpg(program.pid, signal.SIGHUP)
        self.await_line(program, b"1 0\n")
        self.assertEqual(self.reported(program), [(signal.SIGUSR1, 0), (signal.SIGCONT, 0), (signal.SIGHUP, 0)])
        self.assertFalse(os.path.exists(f"/proc/{witness}"))

    def test_many_queued_signals_to_the_group_arrive_once(self):
        """More than the witness reports, and `gpuprobe run` remembers, at a time."""
        program = self.reporter()
        for _ in range(600):
            os.killpg(program.pid, signal.SIGRTMIN)
        harness.wait_until(lambda: len(program.finished().stdout.splitlines()) >= 600, "all signals", limit=20)
        self.assertEqual(self.reported(program), [(signal.SIGRTMIN, 0)] * 600)

    @hazard("`gpuprobe run` leads the session of a terminal that is closed (docker run -t, ssh -t)", sees="SIGHUP and SIGCONT, as without the probe",
            counted="what was recorded is reported")
    def test_session_leader_is_hung_up(self):
        def arrived(name, command):
            ready = self.path(f"{name}-ready")
            master, slave = os.openpty()
            pid = os.fork()
            if pid == 0:
                try:
                    os.setsid()
                    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
                    os.dup2(os.open(self.path(name), os.O_WRONLY | os.O_CREAT, 0o600), 1)
                    os.execve(command[0], [*command, ready], self.env())
                finally:
                    os._exit(120)
            os.close(slave)
            harness.wait_until(lambda: os.path.exists(ready), "the reporter")
            os.close(master)
            harness.wait_until(lambda: b"18 0\n" in harness.read_file(self.path(name)), "SIGCONT", limit=20)
            queue_signal(pid, signal.SIGUSR2, LAST_SIGNAL)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5)
            return harness.read_file(self.path(name))
        command = [sys.executable, SIGNAL_REPORTER]
        self.assertEqual(arrived("probed", self.probed(*command)), arrived("plain", command))

    def test_a_signal_to_the_group_by_a_process_that_ends_at_once(self):
        ready = self.path("ready")
        program = self.start(self.probed("/bin/sh", "-c", f"(while ! test -e {ready}; do sleep 0.05; done; trap '' USR1; kill -USR1 0) & exec {sys.executable} {SIGNAL_REPORTER} {ready}"))
        self.await_line(program, b"10 0\n")
        self.assertEqual([each for each in self.reported(program) if each[0] != signal.SIGCHLD], [(signal.SIGUSR1, 0)])

    @hazard("`gpuprobe run` is started with signals ignored, blocked or pending (nohup)", sees="the same ones are ignored, blocked and pending", counted="everything is recorded")
    def test_signal_state_is_inherited(self):
        start = ("import os, signal, sys\n"
                 "for number in (1, 2, 3, 13, 14, 18, 20, 21, 22, 25, 28, 40): signal.signal(number, signal.SIG_IGN)\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, (10, 12, 28, 41))\n"
                 "for number in (10, 41): os.kill(os.getpid(), number)\n"
                 "os.execv(sys.argv[1], sys.argv[1:])")
        show = "import time; time.sleep(0.3)\nprint([line.split() for line in open('/proc/self/status') if line[:6] in ('ShdPnd', 'SigBlk', 'SigIgn')])"
        plain, probed = (self.run_well([sys.executable, "-c", start, *command]).stdout
                         for command in ([sys.executable, "-c", show], self.probed(sys.executable, "-c", show)))
        self.assertEqual(plain, probed)
        self.assertIn(b"ShdPnd", plain)

    @hazard("`gpuprobe run` inherits timers (alarm, then exec)", sees="they are the command's: it can read and cancel them, and their signals reach it",
            counted="what was recorded is reported")
    def test_inherited_timers(self):
        def outcome(seconds, command, probed):
            start = (f"import os, signal, sys\nfor which in (0, 1, 2): signal.setitimer(which, {seconds}, 30)\nos.execvp(sys.argv[1], sys.argv[1:])")
            finished = self.run_program([sys.executable, "-c", start, *(self.probed(*command) if probed else command)], limit=30)
            return finished.returncode, finished.stdout
        shows = [sys.executable, "-c", "import signal; print([[part > 10 for part in signal.getitimer(which)] for which in (0, 1, 2)], signal.alarm(0) > 50)"]
        dies = ["/bin/sleep", "10"]
        spins = [sys.executable, "-c", "while True: pass"]
        cancels = [sys.executable, "-c", "import signal, time\nfor which in (0, 1, 2): signal.setitimer(which, 0)\ntime.sleep(1.5); print('through')"]
        for seconds, command in ((60, shows), (0.8, dies), (1, spins), (1, cancels)):
            with self.subTest(command=command):
                self.assertEqual(outcome(seconds, command, True), outcome(seconds, command, False))


class JobControl(harness.EndToEndTest):
    """As a shell sees it: a process group of its own, in the shell's session."""

    def start_job(self, *command):
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                for number, name in ((1, "stdout"), (2, "stderr")):
                    os.dup2(os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
                os.chdir(self.cwd)
                os.execve(GPUPROBE, [GPUPROBE, "run", "--quiet", "--out", self.path("out"), "--", *command], self.env())
            finally:
                os._exit(120)
        self.job = pid
        self.addCleanup(self.end_job)
        return pid

    def end_job(self):
        if self.job:
            for number in (signal.SIGKILL, signal.SIGCONT):
                os.killpg(self.job, number)
            os.waitpid(self.job, 0)

    def await_change(self, limit=20):
        """The job's next change: ("stopped", signal), ("continued", 0), or ("ended", returncode)."""
        changes = []

        def look():
            pid, status = os.waitpid(self.job, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
            if pid:
                changes.append(("stopped", os.WSTOPSIG(status)) if os.WIFSTOPPED(status) else ("continued", 0) if os.WIFCONTINUED(status)
                               else ("ended", os.waitstatus_to_exitcode(status)))
            return changes
        harness.wait_until(look, "a change of the job", limit)
        if changes[0][0] == "ended":
            self.job = 0
        return changes[0]

    def output(self):
        return harness.read_file(self.path("stdout"))

    SELF_STOPPER = ("import os, signal, sys, time\nconts = []\nsignal.signal(signal.SIGCONT, lambda *_: conts.append(1))\n"
                    "for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):\n"
                    "  os.kill(os.getpid(), number)\n"
                    "  time.sleep(0.3)\n"
                    "  print(len(conts), flush=True)\nsys.exit(9)")

    def stops_and_continues(self, resume):
        self.start_job(sys.executable, "-c", self.SELF_STOPPER)
        for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            self.assertEqual(self.await_change(), ("stopped", number))
            resume()
            self.assertEqual(self.await_change(), ("continued", 0))
        self.assertEqual(self.await_change(), ("ended", 9))
        self.assertEqual(self.output(), b"1\n2\n3\n4\n", "each SIGCONT arrives once")
        self.assert_nothing_runs()

    @hazard("the command of `gpuprobe run` stops itself", sees="`gpuprobe run` stops by the same signal, as a shell with job control expects; SIGCONT continues both",
            counted="everything is recorded")
    def test_continued_by_itself(self):
        self.stops_and_continues(lambda: os.kill(self.job, signal.SIGCONT))

    def test_continued_with_its_group(self):
        self.stops_and_continues(lambda: os.killpg(self.job, signal.SIGCONT))

    @hazard("the stopped command of `gpuprobe run` is continued by its pid", sees="`gpuprobe run` continues with it", counted="everything is recorded")
    def test_only_the_command_is_continued(self):
        pidfile = self.path("pid")
        self.start_job("/bin/sh", "-c", f"echo $$ > {pidfile}; kill -STOP $$; exit 6")
        self.assertEqual(self.await_change(), ("stopped", signal.SIGSTOP))
        os.kill(int(harness.read_file(pidfile)), signal.SIGCONT)
        while (change := self.await_change())[0] != "ended":
            self.assertEqual(change, ("continued", 0))
        self.assertEqual(change, ("ended", 6))
        self.assert_nothing_runs()

    @hazard("the stopped command of `gpuprobe run` is killed", sees="`gpuprobe run` ends by the same signal", counted="what was recorded is reported")
    def test_killed_while_stopped(self):
        pidfile = self.path("pid")
        self.start_job("/bin/sh", "-c", f"echo $$ > {pidfile}; kill -STOP $$; exit 6")
        self.assertEqual(self.await_change(), ("stopped", signal.SIGSTOP))
        os.kill(int(harness.read_file(pidfile)), signal.SIGKILL)
        while (change := self.await_change())[0] != "ended":
            self.assertEqual(change, ("continued", 0))
        self.assertEqual(change, ("ended", -signal.SIGKILL))
        self.assert_nothing_runs()

    def test_stop_signal_that_only_run_gets(self):
        self.start_job("/bin/sh", "-c", f"touch {self.path('ready')}; while ! test -e {self.path('go')}; do sleep 0.05; done; exit 8")
        harness.wait_until(lambda: os.path.exists(self.path("ready")), "readiness")
        os.kill(self.job, signal.SIGTSTP)
        self.assertEqual(self.await_change(), ("stopped", signal.SIGTSTP))
        os.kill(self.job, signal.SIGCONT)
        self.assertEqual(self.await_change(), ("continued", 0))
        with open(self.path("go"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.await_change(), ("ended", 8))
        self.assert_nothing_runs()


if __name__ == "__main__":
    harness.main()
