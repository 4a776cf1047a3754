"""Programs of samples/torch whose model torch.compile turns into fused kernels, with empty caches: processes that inherit the probe compile the kernels with Triton,
and the first step tries variants of them."""
import glob
import os
import unittest

from pytorch import SLOW_HOST, PyTorchTest, environments, main

RANKS = 2
LIMIT_S = 300  # a run compiles some twenty kernels


class Compiled(PyTorchTest):
    CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    ENV = {
        # Of PyTorch 2.15's programs a CUPTI before this one mixes up kernels: variants that lost are unloaded.
        "GPUSIM_CUPTI_VERSION": "13.4.1",
        # Kernels so long that the GPU does not wait for the host.
        "GPUSIM_KERNELS": ".*=100us",
    }

    def setUp(self):
        super().setUp()
        if not glob.glob(os.path.join(self.environment, "lib", "python3*", "site-packages", "triton")):
            self.skipTest("no Triton: scripts/pytorch-env.sh adds it")

    def check(self, name, ranks=1):
        report = self.record(self.sample(name, ranks), ranks, self.ENV, caches=self.CACHES, limit=LIMIT_S)
        self.assert_no_loss(report)
        self.assert_equals_truth()
        self.assertEqual(report["conditions"]["ranks_heard"], ranks, "workers that compile are no ranks")
        self.assertEqual(len(report["ranks"]), ranks)
        self.check_classes(report)
        return report

    def check_classes(self, report):
        """Inductor names a kernel after its kind and the operators in it."""
        kinds = {"triton_poi": "elementwise", "triton_red": "reduction", "triton_per": "reduction"}
        fused = {kernel["name"]: kernel["class"] for kernel in report["top_kernels"] if kernel["name"].startswith("triton_")}
        self.assertTrue(fused)
        expected = {name: "normalisation" if "layer_norm" in name else kinds[name[:10]] for name in fused}
        self.assertEqual(fused, expected)
        launched = {record["name"][:10] for record in self.truth() if record["kind"] == "kernel" and record["name"].startswith("triton_")}
        self.assertEqual(launched, set(kinds))

    def check_training_loop(self):
        report = self.check("compiled")
        self.assertEqual(report["steps"]["count"], 60)
        self.assertIn(report["steps"]["warmup_count"], range(1, 6), "the first, and those next to it that a busy machine makes longer")
        ids = set(self.finding_ids(report))
        self.assertIn("warmup-dominated", ids)
        levels = self.device_memory()
        # The node says whether PyTorch really took more memory until the end.
        growing = {"memory-leak"} if levels[-1] > levels[len(levels) // 2] else set()
        with self.undisturbed(report):
            self.assertEqual(ids - {"warmup-dominated", "healthy"} - SLOW_HOST - growing, set(), f"MiB on the device, over the kernels: {levels}")

    def device_memory(self):
        """What the program held on its device, in MiB: twenty levels, equally many kernels apart."""
        truth = self.truth()
        starts = sorted(record["start_ns"] for record in truth if record["kind"] == "kernel")
        changes = [record for record in truth if record["kind"] in ("alloc", "free") and record["memory"] == "device" and not record.get("failed")]
        levels = []
        for time_ns in starts[:: len(starts) // 20]:
            live = {change["address"]: change["bytes"] if change["kind"] == "alloc" else 0 for change in changes if change["time_ns"] <= time_ns}
            levels.append(sum(live.values()) >> 20)
        return levels

    def test_a_training_loop(self):
        self.check_training_loop()

    @unittest.skipIf(len(environments()) < 2, "one release of PyTorch")
    def test_a_training_loop_with_the_oldest_release(self):
        self.environment = environments()[0]
        self.check_training_loop()

    def test_data_parallel_training(self):
        report = self.check("compiled_ddp", RANKS)
        self.assertEqual(report["communication"]["pattern"], ["data parallel (DDP)"])
        self.assertEqual(report["steps"]["count"], 100)


if __name__ == "__main__":
    main()
