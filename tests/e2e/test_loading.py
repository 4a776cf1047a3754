"""The two ways of loading, each alone, against a collector that was started before."""
import harness
from harness import DDP_TRAIN, LAUNCH_RANKS, LIBRARY, SMALL_TRAINING, VECTOR_ADD


class Loading(harness.EndToEndTest):

    def record(self, command, loading, devices=1):
        collector = harness.Collector(self)
        self.run_well(command, env={**collector.env(), **loading}, devices=devices)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        report = self.report(collector.out)
        self.assert_no_loss(report)
        self.assertEqual(self.differences(self.truth(), self.export(collector.out)), [])
        return report

    def test_injection_alone(self):
        report = self.record([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], {"CUDA_INJECTION64_PATH": LIBRARY}, devices=2)
        self.assertEqual(len(report["ranks"]), 2)

    def test_preload_alone(self):
        report = self.record([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], {"LD_PRELOAD": LIBRARY}, devices=2)
        self.assertEqual(len(report["ranks"]), 2)

    def test_both(self):
        self.record([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], {"CUDA_INJECTION64_PATH": LIBRARY, "LD_PRELOAD": LIBRARY}, devices=2)

    def test_several_programs_one_after_the_other(self):
        collector = harness.Collector(self)
        for _ in range(3):
            self.run_well([VECTOR_ADD], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
        self.assertEqual(collector.stop().returncode, 0)
        self.assertEqual(self.differences(self.truth(), self.export(collector.out)), [])
        self.assertEqual(len(self.report(collector.out)["ranks"]), 3)


if __name__ == "__main__":
    harness.main()
