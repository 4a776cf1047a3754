"""One library for every CUPTI that the simulated node can be: whatever its record layouts, everything that happened is in the record."""
import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard

# What cuptiGetVersion says in these releases.
VERSIONS = {"11.8": "18", "12.0": "19", "12.6": "24", "13.0": "130001"}


class Versions(harness.EndToEndTest):

    def check(self, version, command, devices=1):
        out = self.path("run-" + version)
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, "GPUSIM_CUPTI_VERSION": version})
        self.assert_nothing_runs()
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        report = self.report(out)
        self.assert_no_loss(report)
        self.assertEqual(report["trust"]["unknown_kinds"], {})
        self.assertEqual(report["conditions"]["cupti"], VERSIONS[version])
        self.assertEqual(report["conditions"]["devices"][0]["name"], "Simulated GPU")
        self.forget_truth()

    def test_vector_add(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                self.check(version, [VECTOR_ADD])

    def test_training_with_2_ranks(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                self.check(version, [LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2)

    @hazard("CUPTI delivers records of kinds that the probe does not know", sees="output and status unchanged",
            counted="they are counted and named")
    def test_records_of_a_kind_that_the_probe_does_not_know_are_counted_and_named(self):
        out = self.path("run")
        self.run_well([GPUPROBE, "run", "--out", out, "--", VECTOR_ADD], env={**PATIENT, "GPUSIM_FAULT": "unasked_kind=2"})
        happened = self.truth()
        self.assertEqual(self.differences(happened, self.export(out)), [], "what it knows it has")
        trust = self.report(out)["trust"]
        unknown = sum(record["kind"] == "kernel" for record in happened) // 2
        self.assertGreater(unknown, 0)
        self.assertEqual(trust["unknown_kinds"], {"overhead": unknown})
        self.assertEqual(trust["lost"], {"unknown_record": unknown})


if __name__ == "__main__":
    harness.main()
