"""A profiling tool inside the program starts, ends and goes whenever it likes: it sees what it sees without us, and so does the program."""
import os

import harness
from harness import BUILD, LIBRARY
from hazards import hazard

PROGRAMS = os.path.join(BUILD, "tests", "e2e")
OPENS = os.path.join(PROGRAMS, "tool_host")
LINKED = os.path.join(PROGRAMS, "tool_host_linked")
HIDES = os.path.join(PROGRAMS, "hidden_objects")
PLUGIN = os.path.join(PROGRAMS, "libtool_plugin.so")
LAZY_PLUGIN = os.path.join(PROGRAMS, "liblazy_plugin.so")
# The probe has CUPTI's one subscription; it is one of several.
VERSIONS = ("13.0.1", "13.4.1")


class CuptiTools(harness.EndToEndTest):

    def compare(self, *command, times=1, env=None, versions=VERSIONS, kernels):
        """Runs the program without and with the probe; what it prints and how it ends is the same. The probe records all kernels."""
        for version in versions:
            setting = {"GPUSIM_CUPTI_VERSION": version, **(env or {})}
            plain = self.run_program(command, env=setting, limit=60)
            self.assertEqual(plain.returncode, 0, str(plain))
            for attempt in range(times):
                with self.subTest(command=command, version=version, attempt=attempt):
                    self.forget_truth()
                    collector = harness.Collector(self)
                    probed = self.run_program(command, env={**setting, **collector.env(), "CUDA_INJECTION64_PATH": LIBRARY}, limit=60)
                    self.assertEqual(probed.outcome, plain.outcome, str(probed))
                    self.assertEqual(collector.stop().returncode, 0)
                    report = self.report(collector.out)
                    self.assertEqual([rank["kernels"]["count"] for rank in report["ranks"]], [kernels], f"{report['trust']}\n{probed}")
                    self.assert_no_loss(report)
        return plain

    @hazard("a profiling tool of the program's subscribes to CUPTI, or gives it buffers, the moment that CUDA is up",
            sees="the tool sees what it sees without the probe", counted="everything is recorded as well, nothing lost")
    def test_at_once(self):
        for how, stop in (("b", "df"), ("s", "u"), ("sb", "dfu")):
            for wait_us in ("0", "300"):
                plain = self.compare(LINKED, wait_us, how, stop, "1", times=5, kernels=60)
                self.assertIn(b"started 0, stopped 0, ", plain.stdout)

    @hazard("the program opens a library that uses CUPTI, and the library does so at once, or in its constructor",
            sees="the library sees what it sees without the probe", counted="everything is recorded as well, nothing lost")
    def test_opened_later(self):
        for wait_us in ("0", "20000"):
            plain = self.compare(OPENS, wait_us, "sb", "dfu", "2", PLUGIN, times=2, kernels=120)
            self.assertEqual(plain.stdout.count(b"started 0, stopped 0, 20 kernels, calls seen, 0 foreign buffers\n"), 2)
        self.compare(OPENS, "20000", "", "dfu", "1", PLUGIN, times=3, env={"TOOL_STARTS": "sb"}, kernels=60)

    @hazard("a tool with a clock of its own ends, and its library is closed: with cuptiFinalize, or with all that it enabled disabled",
            sees="no difference: neither the clock nor anything else of the tool is called again", counted="everything is recorded as well, nothing lost, and times go on")
    def test_closed_with_its_clock(self):
        for start, stop in (("cb", "fz"), ("scb", "dfuz"), ("cb", "fd"), ("scb", "fdu")):
            plain = self.compare(OPENS, "0", start, stop, "3", PLUGIN, times=2, kernels=180)
            self.assertEqual(plain.stdout.count(b"started 0, stopped 0, 20 kernels, "), 3)

    @hazard("a tool finalizes CUPTI, or registers its buffers again, while it holds the lock that its own functions take",
            sees="no difference: nothing of the tool is called on its own thread, but when it flushes", counted="everything is recorded as well, nothing lost")
    def test_calls_under_its_lock(self):
        for start, stop in (("b", "wMz"), ("sb", "wMzd"), ("b", "wMrfd"), ("scb", "wMrrfz")):
            # The probe has something for the tool by then.
            self.compare(LINKED, "0", start, stop, "2", env={"GPUPROBE_FLUSH_MS": "20"}, kernels=120)

    @hazard("the program unmaps or protects parts of a library that it has opened: headers, tables, the slots of its calls", sees="no difference",
            counted="everything is recorded, nothing lost; calls of that library are not seen while it is so")
    def test_parts_of_a_library_are_away(self):
        for part, how in (("headers", "unmapped"), ("dynamic", "unmapped"), ("dynamic", "protected"), ("tables", "unmapped"), ("tables", "protected"),
                          ("slots", "unmapped"), ("slots", "protected"), ("slots", "readable")):
            self.compare(HIDES, part, how, LAZY_PLUGIN, versions=VERSIONS[:1], kernels=50)


if __name__ == "__main__":
    harness.main()
