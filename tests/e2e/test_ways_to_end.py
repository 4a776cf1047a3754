"""However a program or its collector ends: the program behaves as without the probe, what was delivered is in the report, what was lost is counted."""
import contextlib
import os
import signal

import harness
from harness import CUDA_SCRIPT, LIBRARY
from hazards import hazard


class WaysToEnd(harness.EndToEndTest):

    def compare(self, *operations, stop=None, then=()):
        """Runs the script without and with the probe, compares, and returns the report and the captured records.

        `stop` is a signal to be sent when the program has created the file "ready". `then` are operations that it performs only after something of
        it has reached the log: what comes after may end it before the probe's thread had its turn.
        """
        if then:
            operations += (f"touch:{self.path('ready')}", f"await:{self.path('go')}", *then)
        outcomes = []
        collector = None
        for probed in (False, True):
            env = {}
            if probed:
                self.forget_truth()
                collector = harness.Collector(self)
                env = {**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20"}
            program = self.start([CUDA_SCRIPT, *operations], env=env)
            if stop is not None or then:
                harness.wait_until(lambda: os.path.exists(self.path("ready")), "the program's readiness")
                if probed:
                    self.await_records(collector, 1)
            if stop is not None:
                program.signal(stop)
            if then:
                self.create("go")
            outcomes.append(program.wait().outcome)
            self.remove("ready", "go")
        self.assertEqual(outcomes[1], outcomes[0])
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        return self.report(collector.out), self.export(collector.out)

    def create(self, name):
        with open(self.path(name), "w", encoding="utf-8"):
            pass

    def remove(self, *names):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(name))

    def await_records(self, collector, least):
        """Waits until the collector has stored kernels: what a killed program had delivered by then must be reported."""
        def stored():
            finished = self.run_program([harness.GPUPROBE, "export", collector.out, "--format", "jsonl"])
            return finished.stdout.count(b'"kernel"') >= least
        harness.wait_until(stored, "records in the log")

    def assert_complete(self, report, records):
        self.assertEqual(self.differences(self.truth(), records), [])
        self.assert_no_loss(report)

    @hazard("the program returns from main", sees="ends with its own status",
            counted="everything is recorded, nothing lost")
    def test_return_from_main(self):
        self.assert_complete(*self.compare("kernels:20", "print:done", "return:4"))

    @hazard("the program calls exit", sees="ends with its own status",
            counted="everything is recorded, nothing lost")
    def test_exit(self):
        self.assert_complete(*self.compare("kernels:20", "print:done", "exit:5"))

    @hazard("the program exits while kernels are still running", sees="ends with its own status",
            counted="each kernel is recorded or counted as lost")
    def test_exit_with_work_in_flight(self):
        report, records = self.compare("launch:20", "exit:0")
        self.assertEqual(sum(record["kind"] == "kernel" for record in records) + sum(report["trust"]["lost"].values()), 20)

    @hazard("the program calls _exit", sees="ends at once with its own status",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_underscore_exit(self):
        """No handler runs, so the last records may be missing; they must not be missing in silence."""
        report, records = self.compare("kernels:20", "print:done", then=["_exit:6"])
        self.assert_cut_off_or_complete(report, records, 20)

    @hazard("the program aborts", sees="ends by SIGABRT",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_abort(self):
        report, records = self.compare("kernels:20", "print:done", then=["abort"])
        self.assert_cut_off_or_complete(report, records, 20)

    @hazard("the program crashes", sees="ends by SIGSEGV",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_crash(self):
        report, records = self.compare("kernels:20", "print:done", then=["raise:SEGV"])
        self.assert_cut_off_or_complete(report, records, 20)

    @hazard("the program ends before the probe's thread has run", sees="ends with its own status or signal",
            counted="no promise beyond the program's behaviour")
    def test_end_before_the_probe_had_its_turn(self):
        """Nothing may have reached the collector yet: only the program's behaviour is certain."""
        for end in ("_exit:6", "abort", "raise:SEGV", "raise:KILL"):
            plain = self.run_program([CUDA_SCRIPT, "kernels:3", "print:done", end])
            collector = harness.Collector(self)
            probed = self.run_program([CUDA_SCRIPT, "kernels:3", "print:done", end], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
            self.assertEqual(probed.outcome, plain.outcome)
            self.assertEqual(collector.stop().returncode, 0)

    @hazard("SIGTERM without a handler", sees="ends by SIGTERM",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_sigterm(self):
        report, records = self.compare("kernels:20", f"touch:{self.path('ready')}", "sleep", stop=signal.SIGTERM)
        self.assert_cut_off_or_complete(report, records, 20)

    @hazard("SIGTERM with a handler that calls _exit", sees="its handler runs; ends with its own status",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_sigterm_with_a_handler(self):
        report, records = self.compare("on-term", "kernels:20", f"touch:{self.path('ready')}", "sleep", stop=signal.SIGTERM)
        self.assert_cut_off_or_complete(report, records, 20)

    @hazard("ends by SIGKILL", sees="ends by SIGKILL",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_sigkill(self):
        report, records = self.compare("kernels:20", f"touch:{self.path('ready')}", "sleep", stop=signal.SIGKILL)
        self.assert_cut_off_or_complete(report, records, 20)

    def assert_cut_off_or_complete(self, report, records, kernels):
        captured = sum(record["kind"] == "kernel" for record in records)
        rank = report["ranks"][0]
        if captured < kernels:
            self.assertTrue(rank["cut_off"], f"{captured} of {kernels} kernels and not marked as cut off: {rank}")
        self.assertEqual(rank["kernels"]["count"], captured)
        self.assertTrue(rank["cut_off"], "no Bye came, so nobody can know that this is everything")

    @hazard("forked children end in four ways", sees="parent and children run as without the probe",
            counted="only the parent is recorded, nothing lost")
    def test_fork_whose_child_exits(self):
        for way in ("exit", "_exit", "abort", "return"):
            with self.subTest(way=way):
                report, records = self.compare("kernels:10", f"fork:{way}", "kernels:10", "print:parent goes on", "return:0")
                self.assertEqual(len(report["ranks"]), 1, "the child is no process of its own to the probe")
                self.assert_complete(report, records)

    @hazard("a forked child calls CUDA", sees="CUDA's own error",
            counted="the parent is recorded, nothing lost")
    def test_fork_whose_child_calls_cuda(self):
        report, _ = self.compare("kernels:10", "fork-cuda", "kernels:10", "return:0")
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 20)

    @hazard("fork, then exec of a CUDA program", sees="parent and child run as without the probe",
            counted="both are recorded, nothing lost")
    def test_fork_and_exec(self):
        report, records = self.compare("kernels:10", "fork-exec:kernels:7,return:3", "kernels:10", "return:0")
        self.assertEqual(sorted(rank["kernels"]["count"] for rank in report["ranks"]), [7, 20])
        self.assert_complete(report, records)

    @hazard("fork before CUDA starts", sees="parent and children run as without the probe",
            counted="the parent is recorded, nothing lost")
    def test_fork_before_cuda(self):
        report, records = self.compare("fork:exit", "fork-exec:print:child", "kernels:10", "return:0")
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 10)
        self.assert_complete(report, records)

    def test_threads(self):
        self.assert_complete(*self.compare("kernels:5", "thread:10", "thread:10", "return:0"))

    @hazard("the collector is killed (SIGKILL) halfway through", sees="output and status unchanged",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_collector_killed_half_way(self):
        script = ["print:begin", "kernels:20", f"touch:{self.path('ready')}", f"await:{self.path('go')}", "kernels:20", "copies:3", "print:end", "return:9"]
        self.create("go")
        plain = self.run_program([CUDA_SCRIPT, *script])
        self.remove("go", "ready")
        collector = harness.Collector(self)
        program = self.start([CUDA_SCRIPT, *script], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20"})
        harness.wait_until(lambda: os.path.exists(self.path("ready")), "the program's readiness")
        self.await_records(collector, 20)
        collector.stop(signal.SIGKILL)
        self.create("go")
        self.assertEqual(program.wait().outcome, plain.outcome)
        self.assert_nothing_runs()
        report = self.report(collector.out)
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 20)
        self.assertTrue(report["ranks"][0]["cut_off"])

    @hazard("the collector is killed during a training with two ranks", sees="both ranks run to the end",
            counted="what was delivered before is in the report")
    def test_collector_killed_under_a_training(self):
        """Both ranks go on to the end, with the output that they have without the probe."""
        command = [harness.LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", "30", "--layers", "4", "--width", "64", "--batch", "16"]
        plain = self.run_well(command, devices=2)
        self.forget_truth()
        collector = harness.Collector(self)
        program = self.start(command, devices=2, env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20"})
        self.await_records(collector, 1)
        collector.stop(signal.SIGKILL)
        self.assertEqual(program.wait().outcome, plain.outcome)
        self.assert_nothing_runs()
        self.assertGreater(sum(rank["kernels"]["count"] for rank in self.report(collector.out)["ranks"]), 0)


if __name__ == "__main__":
    harness.main()
