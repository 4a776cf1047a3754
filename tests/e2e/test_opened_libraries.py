"""Programs that open libraries, look functions up and fork: they get the functions that they would get without the probe."""
import os

import harness
from harness import BUILD, LIBRARY
from hazards import hazard

PROGRAM = os.path.join(BUILD, "tests", "e2e", "opened_libraries")
AT_FIXED_ADDRESSES = os.path.join(BUILD, "tests", "e2e", "opened_libraries_fixed")
LOADINGS = {"injection": {"CUDA_INJECTION64_PATH": LIBRARY}, "preload": {"LD_PRELOAD": LIBRARY}}
RUNS = int(os.environ.get("GPUPROBE_EDGE_RUNS", "2"))  # of what is a race


class OpenedLibraries(harness.EndToEndTest):

    def compare(self, *operation, program=PROGRAM, runs=1, env=None):
        """The program's output without the probe, after it was the same with it, loaded in each way."""
        plain = self.run_program([program, *operation], limit=60)
        self.assertEqual((plain.returncode, plain.stderr), (0, b""), str(plain))
        collector = harness.Collector(self)
        for name, loading in LOADINGS.items():
            for turn in range(runs):
                with self.subTest(loading=name, turn=turn):
                    probed = self.run_program([program, *operation], env={**collector.env(), **loading, **(env or {})}, limit=60)
                    self.assertEqual(probed.outcome, plain.outcome)
        self.assertEqual(collector.stop().returncode, 0)
        return plain.stdout.decode()

    @hazard("a library that is opened with RTLD_DEEPBIND has functions of its own named getenv, prctl, syscall, dlopen and dlsym, bound at their first call",
            sees="the library calls its own", counted="everything is recorded")
    def test_functions_of_a_librarys_own(self):
        for when in ("before", "after"):
            self.assertEqual(self.compare("own-names", when), "mine 4003 7039 0x12 0x34\n")

    @hazard("NCCL is opened with RTLD_LOCAL, and the program looks its functions up everywhere (RTLD_DEFAULT)", sees="they are not found; dlerror says the same",
            counted="everything is recorded")
    def test_nccl_that_the_program_may_not_see(self):
        output = self.compare("nccl")
        self.assertIn("ncclAllReduce: 0 ", output)
        self.assertIn("by its handle: 1", output)

    @hazard("children are forked that open libraries themselves, while the probe looks at those that the program has just opened", sees="no child hangs",
            counted="only the parent is recorded")
    def test_children_that_open_libraries(self):
        self.assertEqual(self.compare("forks", "500", runs=RUNS, env={"GPUPROBE_FLUSH_MS": "10"}), "0 children failed\n")  # it looks at every flush

    @hazard("a program at fixed addresses (built with -no-pie) keeps the addresses of prctl, syscall, dlsym, dlopen and getenv, which are stubs in it",
            sees="no difference: calls by them, and the probe's own, end in the C library", counted="everything is recorded")
    def test_addresses_that_are_stubs(self):
        self.assertEqual(self.compare("addresses", program=AT_FIXED_ADDRESSES), "1 1\n" * 5)


if __name__ == "__main__":
    harness.main()
