"""The kinds of parallelism that a report names are those of the program, whatever small calls it makes beside them.

What each kind does is said in programs/strangers/parallelism.cu; the right answer follows from that, not from a report.
"""
import os

import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

PROGRAM = os.path.join(BUILD, "tests", "e2e", "parallelism")
NODE = {"GPUSIM_KERNELS": "MatmulForward=200us;MatmulBackward=400us;ExpertGemm=300us;AdamUpdate=50us", "GPUSIM_LINK": "alpha=10us,beta=200GB/s", "GPUSIM_TRUTH": None}
DDP = "data parallel (DDP)"
FSDP = "fully sharded data parallel (FSDP, ZeRO stage 3)"
SHARED_STATE = "data parallel with sharded optimizer state (ZeRO stage 1 or 2)"


class Parallelism(harness.EndToEndTest):

    def record(self, kind, ranks):
        out = self.path(kind)
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, str(ranks), PROGRAM, kind], devices=ranks, env=NODE)
        self.assertEqual(finished.returncode, 0, str(finished))
        return harness.read_report(out)

    def check(self, kind, *pattern, ranks=2):
        report = self.record(kind, ranks)
        told = f"{kind}: {report['communication']['pattern']}\n{report['communication']['exposed']}"
        self.assertEqual(sorted(report["communication"]["pattern"]), sorted(pattern), told)
        return report

    def roles(self, report, op):
        return {calls["role"] for calls in report["communication"]["exposed"] if calls["op"] == op}

    def test_data_parallelism(self):
        for kind in ("ddp", "ddp-counts", "ddp-evaluation", "ddp-norms"):
            with self.subTest(kind):
                report = self.check(kind, DDP)
                self.assertEqual(report["communication"]["buckets"]["sizes"][0]["size_bytes"], 4 << 20)

    def test_weights_that_are_sharded(self):
        for kind in ("fsdp", "fsdp-norms", "fsdp-loss", "fsdp-accumulates"):
            with self.subTest(kind):
                report = self.check(kind, FSDP)
                self.assertEqual(self.roles(report, "ReduceScatter"), {FSDP})
                self.assertEqual(report["communication"]["buckets"]["op"], "ReduceScatter")

    def test_shards_that_have_replicas(self):
        self.check("hsdp", "hybrid sharded data parallel (HSDP)", ranks=4)

    def test_where_no_kernel_tells_its_pass_the_stage_is_left_open(self):
        self.check("fsdp-silent", "sharded data parallel (FSDP, ZeRO)")

    def test_state_that_is_sharded(self):
        for kind in ("zero1", "zero1-ddp", "zero2", "zero2-accumulates", "zero2-copies"):
            with self.subTest(kind):
                self.check(kind, SHARED_STATE)

    def test_layers_that_are_split(self):
        report = self.check("tensor", "tensor parallel")
        self.assertIsNone(report["communication"]["buckets"], "what is reduced are no gradients")

    def test_tensor_and_data_parallelism_over_as_many_ranks(self):
        report = self.check("grid", "tensor parallel", DDP, ranks=4)
        self.assertEqual(report["communication"]["buckets"]["bytes_per_step"], 6 * 2 << 20)

    def test_a_sequence_that_is_split_too(self):
        self.check("sequence", "tensor and sequence parallel", DDP, ranks=4)

    def test_experts(self):
        self.check("experts", "expert parallel (all-to-all)", DDP)

    def test_a_ring_beside_shards(self):
        self.check("ring-fsdp", "context parallel (ring)", FSDP)

    def test_stages_that_have_replicas(self):
        self.check("pipeline", "pipeline", DDP, ranks=4)

    def test_ranks_that_share_a_loss_alone_share_no_work(self):
        report = self.check("alone")
        self.assertIsNone(report["communication"]["buckets"])

    def test_benchmarks_have_none_and_no_advice_about_gradients(self):
        for kind in ("benchmark", "benchmark-pairs"):
            with self.subTest(kind):
                report = self.check(kind, ranks=4)
                self.assertIsNone(report["communication"]["buckets"])
                self.assertIsNone(report["communication"]["pipeline"])
                with self.undisturbed(report):
                    self.assertFalse({"communication-bound", "poor-overlap", "bucket-too-small", "bucket-too-large", "pipeline-bubble"} &
                                     {finding["id"] for finding in report["findings"]})


if __name__ == "__main__":
    harness.main()
