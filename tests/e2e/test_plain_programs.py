"""Processes that never initialise CUDA: launchers, shells, data-loader workers. To them the library is nothing but mapped."""
import os
import shutil

import harness
from harness import LIBRARY, PLAIN_PROGRAM
from hazards import hazard


class PlainPrograms(harness.EndToEndTest):

    @hazard("a program that never uses CUDA is preloaded", sees="no thread, socket or CUDA library is added",
            counted="nothing to report")
    def test_preloaded_program_has_one_thread_and_no_socket(self):
        collector = harness.Collector(self)
        finished = self.run_well([PLAIN_PROGRAM], env={**collector.env(), "LD_PRELOAD": LIBRARY})
        self.assertEqual(finished.stdout.decode().splitlines(), ["threads 1", "sockets 0", "libgpuprobe 1", "libcuda 0", "libcupti 0"])
        self.assertEqual(finished.stderr, b"")
        collector.stop()

    def test_the_test_program_sees_what_it_looks_for(self):
        """Without the library it says so: the test above can fail."""
        finished = self.run_well([PLAIN_PROGRAM])
        self.assertIn("libgpuprobe 0", finished.stdout.decode())

    @hazard("system programs inherit LD_PRELOAD", sees="output and status unchanged",
            counted="nothing to report")
    def test_ls_prints_the_same(self):
        command = ["/bin/ls", "-l", "/usr"]
        plain = self.run_well(command)
        for extra in ({}, {"GPUPROBE_AUTOSTART": "0"}, {"CUDA_INJECTION64_PATH": LIBRARY}):
            self.assertEqual(self.run_well(command, env={"LD_PRELOAD": LIBRARY, **extra}).outcome, plain.outcome)
        self.assert_nothing_runs()
        self.assertEqual(os.listdir(self.cwd), [])

    @hazard("shells and Python inherit LD_PRELOAD", sees="output and status unchanged",
            counted="nothing to report")
    def test_shells_and_python(self):
        for command in (["/bin/sh", "-c", "ls / | sort | head -n 3; exit 4"], [shutil.which("python3", path="/usr/bin:/bin") or "python3", "-c", "print(1)"]):
            plain = self.run_program(command)
            self.assertEqual(self.run_program(command, env={"LD_PRELOAD": LIBRARY}).outcome, plain.outcome)
        self.assert_nothing_runs()


if __name__ == "__main__":
    harness.main()
