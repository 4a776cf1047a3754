"""`gpuprobe run`: what goes through it unchanged, and what it says at the end."""
import os
import resource
import signal
import sys
import tempfile

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard


class Run(harness.EndToEndTest):

    def run_under_probe(self, *command, **options):
        return self.run_program([GPUPROBE, "run", "--out", self.path("out"), "--", *command], **options)

    @hazard("the command of `gpuprobe run` fails", sees="status unchanged",
            counted="what was recorded is reported")
    def test_exit_codes(self):
        for code in (0, 1, 7, 42, 255):
            with self.subTest(code=code):
                finished = self.run_program([GPUPROBE, "run", "--out", self.path(f"out-{code}"), "--", CUDA_SCRIPT, "kernels:3", f"return:{code}"])
                self.assertEqual(finished.returncode, code, str(finished))

    @hazard("the command of `gpuprobe run` dies by a signal", sees="`gpuprobe run` ends by the same signal",
            counted="what was recorded is reported")
    def test_death_by_a_signal(self):
        """As a shell says it, or by the same signal."""
        for name, number in (("TERM", signal.SIGTERM), ("KILL", signal.SIGKILL), ("SEGV", signal.SIGSEGV)):
            with self.subTest(signal=name):
                finished = self.run_program([GPUPROBE, "run", "--out", self.path(f"out-{name}"), "--", CUDA_SCRIPT, "kernels:3", f"raise:{name}"])
                self.assertIn(finished.returncode, (128 + number, -number), str(finished))
                self.assert_nothing_runs()

    @hazard("signals are sent to `gpuprobe run`", sees="each one reaches the command",
            counted="what was recorded is reported")
    def test_signals_go_through(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(signal=number):
                ready = self.path(f"ready-{number}")
                program = self.start([GPUPROBE, "run", "--out", self.path(f"out-{number}"), "--", "/bin/sh", "-c",
                                      f"trap 'echo caught; exit 33' TERM INT; touch {ready}; while :; do sleep 0.05; done"])
                harness.wait_until(lambda path=ready: os.path.exists(path), "the program's readiness")
                program.signal(number)
                finished = program.wait()
                self.assertEqual((finished.returncode, finished.stdout), (33, b"caught\n"), str(finished))
                self.assert_nothing_runs()

    @hazard("the command reads binary data and writes to both streams", sees="every byte is unchanged",
            counted="the report goes to standard error, after the command's own output")
    def test_standard_streams_go_through(self):
        with tempfile.TemporaryFile() as file:
            file.write(b"some\0bytes\n" * 1000)
            file.seek(0)
            finished = self.run_under_probe("/bin/sh", "-c", "cat; echo error >&2", stdin=file)
        self.assertEqual(finished.stdout, b"some\0bytes\n" * 1000)
        self.assertIn(b"error\n", finished.stderr)

    def test_report_is_on_stderr_and_output_untouched(self):
        plain = self.run_well([VECTOR_ADD])
        finished = self.run_under_probe(VECTOR_ADD)
        self.assertEqual(finished.returncode, 0)
        self.assertEqual(finished.stdout, plain.stdout)
        self.assertIn(self.path("out").encode(), finished.stderr)
        self.assertTrue(os.path.exists(self.path("out", "report.json")))

    def test_secrets_of_ours_are_not_passed_on(self):
        secrets = {"GPUPROBE_HTTP_TOKEN": "0123456789abcdef0123", "GPUPROBE_HUB_TOKEN": "0123456789abcdef4567"}
        finished = self.run_well([GPUPROBE, "run", "--out", self.path("out"), "--quiet", "--http", "127.0.0.1:0", "--", "env"], env=secrets)
        self.assertIn(b"CUDA_INJECTION64_PATH=", finished.stdout)
        self.assertNotIn(b"_TOKEN=", finished.stdout)

    def test_run_directory_has_a_name_when_none_is_given(self):
        self.run_well([GPUPROBE, "run", "--", VECTOR_ADD])
        self.assertIn("vector_add", os.path.basename(self.only_run_directory()))

    @hazard("the command of `gpuprobe run` never uses CUDA", sees="output and status unchanged",
            counted="one line says that nothing was recorded")
    def test_program_without_cuda(self):
        finished = self.run_under_probe("/bin/echo", "hello")
        self.assertEqual((finished.returncode, finished.stdout), (0, b"hello\n"), str(finished))
        self.assertTrue(finished.stderr, "that nothing was recorded must be said")

    def test_report_of_a_training_answers_the_questions(self):
        finished = self.run_under_probe(LAUNCH_RANKS, "4", DDP_TRAIN, *SMALL_TRAINING, devices=4, env=PATIENT)
        self.assertEqual(finished.returncode, 0, str(finished))
        screen = finished.stderr.decode()
        for wanted in ("AllReduce", "GB/s", "forward", "backward", "optimizer", "busbw", "4 ranks"):
            self.assertIn(wanted, screen)
        self.assertRegex(screen, r"(?i)none lost|0 records lost|lost 0")
        again = self.run_well([GPUPROBE, "report", self.path("out")])
        self.assertIn("AllReduce", again.stdout.decode())

    def test_missing_program(self):
        finished = self.run_under_probe(self.path("no-such-program"))
        self.assertEqual(finished.returncode, 127, str(finished))
        self.assertIn(b"no-such-program", finished.stderr)

    def test_program_that_cannot_be_executed(self):
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write("text")
        finished = self.run_under_probe(self.path("text"))
        self.assertEqual(finished.returncode, 126, str(finished))

    @hazard("the run directory cannot be created", sees="the program is not started",
            counted="one line names the directory")
    def test_unwritable_out(self):
        finished = self.run_program([GPUPROBE, "run", "--out", "/dev/null/out", "--", VECTOR_ADD])
        self.assertNotEqual(finished.returncode, 0)
        self.assertIn(b"/dev/null/out", finished.stderr)
        self.assertEqual(finished.stdout, b"", "the program must not run when its record has no place")


class SignalsOfTheCommandsOwn(harness.EndToEndTest):

    @hazard("the command signals its own process group (kill 0), in which `gpuprobe run` is, too", sees="each signal arrives once",
            counted="what was recorded is reported")
    def test_a_signal_to_the_own_group_arrives_once(self):
        counts = "import os, signal, time\nseen = []\nsignal.signal(signal.SIGUSR1, lambda *_: seen.append(1))\n"
        for sender in ("os.kill(0, signal.SIGUSR1)", "os.system('kill -USR1 0')"):
            finished = self.run_well([GPUPROBE, "run", "--quiet", "--", sys.executable, "-c", f"{counts}{sender}\ntime.sleep(0.5)\nprint(len(seen))"])
            self.assertEqual(finished.stdout, b"1\n", str(finished))


class RunWithoutItsCollector(harness.EndToEndTest):
    """Whatever ends the process that records, `gpuprobe run` stands for its command: it waits, forwards signals, and ends as the command does."""

    def start_job(self, *end):
        """A job that has recorded something and waits for go()."""
        program = self.start([GPUPROBE, "run", "--out", self.path("out"), "--", CUDA_SCRIPT, "kernels:50", f"touch:{self.path('ready')}",
                              f"await:{self.path('go')}", "kernels:20000", "print:end", *(end or ("return:7",))], env={"GPUPROBE_FLUSH_MS": "20"})
        harness.wait_until(lambda: os.path.exists(self.path("ready")), "the job's first part")
        harness.wait_until(lambda: b'"kind":"kernel"' in self.exported(), "records in the log")
        return program

    def exported(self):
        return self.run_program([GPUPROBE, "export", self.path("out"), "--format", "jsonl"]).stdout if os.path.isdir(self.path("out")) else b""

    def go(self):
        with open(self.path("go"), "w", encoding="utf-8"):
            pass

    def children_of(self, program):
        return [int(pid) for pid in harness.read_proc(program.pid, f"task/{program.pid}/children").split()]

    def collector_of(self, program):
        """The process that records; before there were two, it was the one that waits."""
        return next((pid for pid in self.children_of(program) if os.path.samefile(f"/proc/{pid}/exe", GPUPROBE)), program.pid)

    def assert_the_jobs_end(self, program, why, status=7):
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout), (status, b"end\n"), str(finished))
        self.assertRegex(finished.stderr, rb"gpuprobe: run: the collector " + why)
        self.assertIn(b"gpuprobe report " + self.path("out").encode(), finished.stderr)
        self.assert_nothing_runs()
        self.assertEqual(os.listdir(self.path("run")), [], "the socket's folder is left behind")
        self.assertGreaterEqual(self.report(self.path("out"))["ranks"][0]["kernels"]["count"], 50)

    @hazard("the collecting process of `gpuprobe run` is killed", sees="no difference; `gpuprobe run` ends with the program's status",
            counted="one line says so at once, and which command shows what was recorded until then")
    def test_killed_collector(self):
        program = self.start_job()
        collector = self.collector_of(program)
        os.kill(collector, signal.SIGKILL)
        harness.wait_until(lambda: harness.is_dead(collector) and b"the command goes on" in program.so_far(), "the line")
        self.assertTrue(program.alive(), "the job goes on, and so must whoever waits for it")
        self.go()
        self.assert_the_jobs_end(program, rb"was killed by signal 9 \(Killed\); the command goes on")

    @hazard("the collecting process of `gpuprobe run` runs out of memory", sees="no difference; `gpuprobe run` ends with the program's status",
            counted="one line says so at once, and which command shows what was recorded until then")
    def test_collector_out_of_memory(self):
        program = self.start_job()
        collector = self.collector_of(program)
        resource.prlimit(collector, resource.RLIMIT_AS, (1 << 20, 1 << 20))  # less than it has: nothing more
        self.go()
        self.assert_the_jobs_end(program, rb"(ran out of memory|was killed by signal 6 \(Aborted\))")

    @hazard("the collecting process of `gpuprobe run` is stopped", sees="no difference; `gpuprobe run` ends with the program's status after a few seconds",
            counted="one line says that there is no report, and which command makes one")
    def test_stopped_collector(self):
        program = self.start_job()
        os.kill(self.collector_of(program), signal.SIGSTOP)
        self.go()
        self.assert_the_jobs_end(program, rb"is stopped; there is no report")

    @hazard("signals are sent to `gpuprobe run` after its collecting process was killed", sees="each one reaches the program", counted="what was recorded until then stays")
    def test_signals_without_a_collector(self):
        program = self.start_job("on-term", "print:ready", "sleep")
        collector = self.collector_of(program)
        os.kill(collector, signal.SIGKILL)
        self.go()
        harness.wait_until(lambda: harness.is_dead(collector) and b"ready\n" in program.finished().stdout, "the handler")
        program.signal(signal.SIGTERM)
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout), (3, b"end\nready\ncaught SIGTERM\n"), str(finished))
        self.assert_nothing_runs()

    @hazard("`gpuprobe run` is killed (SIGKILL) while its command runs", sees="the command goes on", counted="everything is recorded, and the report is written when the command ends")
    def test_killed_waiter(self):
        program = self.start_job()
        command, = (pid for pid in self.children_of(program) if not os.path.samefile(f"/proc/{pid}/exe", GPUPROBE))
        program.signal(signal.SIGKILL)
        self.assertEqual(program.wait().returncode, -signal.SIGKILL)
        self.assertFalse(harness.is_dead(command))
        self.go()
        self.assert_nothing_runs()
        self.assertEqual(harness.read_report(self.path("out"))["ranks"][0]["kernels"]["count"], 20050)
        self.assertEqual(os.listdir(self.path("run")), [], "the socket's folder is left behind")

    @hazard("`gpuprobe run` is started by a program that ignores SIGCHLD", sees="status unchanged; SIGCHLD is ignored in it, too", counted="everything is recorded")
    def test_started_with_ignored_children(self):
        finished = self.run_program([sys.executable, "-c", "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])",
                                     GPUPROBE, "run", "--out", self.path("out"), "--", "grep", "SigIgn", "/proc/self/status"])
        self.assertEqual(finished.returncode, 0, str(finished))
        ignored = int(finished.stdout.split()[1], 16)
        self.assertTrue(ignored >> (signal.SIGCHLD - 1) & 1, str(finished))


if __name__ == "__main__":
    harness.main()
