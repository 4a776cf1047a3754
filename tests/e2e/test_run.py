"""`gpuprobe run`: what goes through it unchanged, and what it says at the end."""
import os
import signal
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


if __name__ == "__main__":
    harness.main()
