"""PyTorch programs whose host keeps the GPU waiting: the first finding names the cause and the program's own line, with NVTX ranges and without."""
import os
import re

import harness
from harness import GPUPROBE
from pytorch import PyTorchTest, main

PROGRAM = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "host_causes.py")


def line_of(kind):
    """The one that is to blame."""
    with open(PROGRAM, encoding="utf-8") as file:
        line, = (number for number, text in enumerate(file, 1) if re.search(rf"  # [a-z_ ]*\b{kind}\b", text))
    return line


class HostCauses(PyTorchTest):

    def check(self, kind, finding, *words, ranks=1, arguments=()):
        out = self.path(f"out-{kind}-{len(arguments)}")
        command = self.torchrun(ranks, PROGRAM, kind, *arguments) if ranks > 1 else [self.python, PROGRAM, kind, *arguments]
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=ranks)
        self.assert_nothing_runs()
        report = self.report(out)
        told = "\n".join(f"[{f['id']}] {f['statement']} {f['evidence']}" for f in report["findings"])
        with self.undisturbed(report):
            first = report["findings"][0]
            self.assertIn(first["id"], finding.split(), told)
            said = first["statement"] + " " + first["evidence"]
            for word in (f"host_causes.py:{line_of(kind)})", *words):
                self.assertIn(word, said, told)

    def test_a_slow_dataset_in_the_main_process(self):
        self.check("dataset", "input-bound", "it loads data")
        self.check("dataset", "input-bound", "it loads data", arguments=["--annotate"])

    def test_a_slow_dataset_in_workers(self):
        self.check("workers", "input-bound", "it loads data")

    def test_garbage_that_is_collected(self):
        self.check("garbage", "long-steps host-pause", "<garbage collection>")

    def test_a_lock_that_another_thread_holds(self):
        self.check("lock", "host-pause")

    def test_a_log_file_that_blocks(self):
        self.check("log", "host-pause", "it logs: write of ")

    def test_values_that_are_read(self):
        self.check("item", "sync-in-loop", "cuStreamSynchronize")


if __name__ == "__main__":
    main()
