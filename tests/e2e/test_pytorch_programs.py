"""Programs of samples/torch, each under the probe: they end and print as without it, every record equals the node's truth, and the report says how the work is shared out."""
from pytorch import PyTorchTest, main

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

    def test_a_data_loader_that_is_too_slow(self):
        report = self.check("data_loader")
        self.assertEqual(self.finding_ids(report)[0], "input-bound")
        self.assertEqual(report["steps"]["count"], 40)


if __name__ == "__main__":
    main()
