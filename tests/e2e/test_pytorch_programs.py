"""Programs of samples/torch, each under the probe: they end and print as without it, every record equals the node's truth, and the report says how the work is shared out."""
import os
from collections import Counter

import harness
from pytorch import SAMPLES, PyTorchTest, main

RANKS = 2


class Parallelism(PyTorchTest):

    def check(self, name):
        report = self.record(self.sample(name, RANKS), RANKS)
        self.assert_no_loss(report)
        self.assert_equals_truth()
        return report

    def test_parameters_sharded_over_the_ranks(self):
        report = self.check("fsdp")
        self.assertEqual(report["communication"]["pattern"], ["fully sharded data parallel (FSDP, ZeRO stage 3)"])
        self.assertEqual(report["steps"]["count"], 12)

    def test_heads_and_mlps_divided_among_the_ranks(self):
        self.assertEqual(self.check("tensor_parallel")["communication"]["pattern"], ["tensor parallel"])

    def test_stages_of_a_pipeline(self):
        self.assertRegex(" ".join(self.check("pipeline")["communication"]["pattern"]), "pipeline")

    def test_accumulated_gradients_and_recomputed_activations(self):
        self.assertEqual(self.check("accumulation")["communication"]["pattern"], ["data parallel (DDP)"])


class Values(PyTorchTest):

    def test_values_that_programs_decide_by_are_right_on_the_node(self):
        """With each release: what is computed on the GPU, sent and received. The program prints what is not."""
        for _ in self.of_each_release():
            program = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "values.py")
            finished = self.run_well(self.torchrun(RANKS, program), devices=RANKS)
            self.assertEqual(finished.stdout.split(), [b"compared"] * RANKS, str(finished))


class Shares(PyTorchTest):
    """tests/e2e/programs/torch/shares.py: what the ranks share is named, and the small collectives beside it are not."""

    FSDP = "fully sharded data parallel (FSDP, ZeRO stage 3)"
    SHARED_STATE = "data parallel with sharded optimizer state (ZeRO stage 1 or 2)"

    def check(self, kind, *pattern, ranks=RANKS):
        program = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "shares.py")
        report = self.record(self.torchrun(ranks, program, kind), ranks, {"PYTHONPATH": os.path.join(SAMPLES, "torch")})
        self.assert_no_loss(report)
        self.assertEqual(sorted(report["communication"]["pattern"]), sorted(pattern), report["communication"]["exposed"])

    def test_data_parallelism_with_gathered_lengths_and_predictions(self):
        self.check("ddp", "data parallel (DDP)")

    def test_sharded_weights_with_a_norm_and_a_loss(self):
        self.check("fsdp", self.FSDP)

    def test_shards_that_have_replicas(self):
        self.check("hsdp", "hybrid sharded data parallel (HSDP)", ranks=4)

    def test_split_layers_whose_weights_are_sharded_over_as_many_ranks(self):
        self.check("grid", self.FSDP, "tensor parallel", ranks=4)

    def test_sharded_optimizer_state(self):
        self.check("zero", self.SHARED_STATE)

    def test_state_that_is_sharded_by_hand(self):
        self.check("flat", self.SHARED_STATE)


class OneGpu(PyTorchTest):

    def check(self, name):
        report = self.record(self.sample(name))
        self.assert_no_loss(report)
        self.assert_equals_truth()
        return report

    def test_training_in_cuda_graphs(self):
        self.assertEqual(self.check("graphed_training")["steps"]["count"], 20)

    def test_inference_in_a_cuda_graph(self):
        self.check("graphed_inference")
        replays = {record["correlation"] for record in self.truth() if record["kind"] == "kernel" and record.get("graph_node")}
        self.assertEqual(len(replays), 50)

    def test_products_of_every_kind(self):
        self.record([self.python, os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "products.py")])
        self.assert_equals_truth()
        launched = Counter(record["name"].split("_n_tilesize")[0] for record in self.truth() if record["kind"] == "kernel")
        expected = Counter()
        for gemm, element in (("cutlass_80_simt_sgemm", "float"), ("cutlass_80_tensorop_d884gemm", "double"), ("cutlass_80_simt_cgemm", "float2"),
                              ("cutlass_80_tensorop_z884gemm", "double2")):
            expected.update([f"dot_kernel<{element}>", f"gemv2N_kernel<{element}>", f"{gemm}_nt", f"{gemm}_tn", f"{gemm}_nn"])
        for gemm, element in (("sm90_xmma_gemm_bf16bf16_bf16f32_f32", "__nv_bfloat16"), ("sm90_xmma_gemm_f16f16_f16f32_f32", "__half")):
            # PyTorch multiplies a matrix and a vector of halves as matrices.
            expected.update([f"dot_kernel<{element}>", f"{gemm}_nt", f"{gemm}_nt", f"{gemm}_tn", f"{gemm}_nn"])
        expected.update(["dot_kernel<float2>", "dot_kernel<double2>"])  # vdot
        self.assertEqual(launched, expected)

    def test_operators_that_pytorch_annotates(self):
        """emit_nvtx numbers each operator's range: they are known by the operator's name, and steps have the phases that they have without it."""
        report = self.check("operators")
        self.assertEqual(report["steps"]["count"], 40)
        self.assertEqual({phase["source"] for phase in report["steps"]["phases"]}, {"inferred"})
        times = {phase["name"]: phase["time_ns"]["mean"] for phase in report["steps"]["phases"]}
        for name in ("forward", "backward", "optimizer"):
            self.assertGreater(times[name], 0, name)
        paths = [phase["path"] for phase in report["phases"]]
        self.assertFalse([path for path in paths if "op_id" in str(path)])
        self.assertNotIn("(other ranges)", str(paths))
        layers = [phase for phase in report["phases"] if phase["name"] == "aten::layer_norm"]
        self.assertEqual(sum(phase["time_ns"]["count"] for phase in layers), 40 * 2 * 2, "two in each of two blocks")

    def test_a_data_loader_that_is_too_slow(self):
        report = self.check("data_loader")
        with self.undisturbed(report):
            self.assertEqual(self.finding_ids(report)[0], "input-bound")
        self.assertEqual(report["steps"]["count"], 40)


if __name__ == "__main__":
    main()
