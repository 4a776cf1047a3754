"""Training loops of different shapes have as many steps as their optimizer has turns, live and in every later reading.

The program says nothing of itself (programs/strangers/loops.cu). What each shape is, it says there; how many steps it makes is on its command line.
"""
import json
import os

import figures
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

PROGRAM = os.path.join(BUILD, "tests", "e2e", "strangers_loops")
NODE = {"GPUSIM_KERNELS": "MatmulForward=60us;MatmulBackward=120us;AdamUpdate=60us;Fused=10us;Norm=5us;Sample=20us;Fill=2us", "GPUSIM_LINK": "alpha=20us,beta=100GB/s", "GPUSIM_TRUTH": None}


class StrangersLoops(harness.EndToEndTest):

    def check(self, shape, steps=60, ranks=2):
        out = self.path(f"{shape}-{ranks}")
        command = [PROGRAM, shape, str(steps)] if ranks == 1 else [LAUNCH_RANKS, str(ranks), PROGRAM, shape, str(steps)]
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", *command], devices=ranks, env=NODE)
        self.assertEqual(finished.returncode, 0, str(finished))
        report = harness.read_report(out)
        self.assertEqual(figures.impossible(report), [])
        told = report["steps"]
        self.assertEqual((shape, told and told["count"]), (shape, steps), finished.stderr.decode())
        # A later reading says the same, and so do the tables: each rank's steps have the numbers from 0 on.
        self.assertEqual(self.report(out)["steps"]["count"], steps, shape)
        finished = self.run_well([GPUPROBE, "export", "--format", "steps", out])
        lines = [json.loads(line) for line in finished.stdout.splitlines()]
        for rank in range(ranks):
            numbers = [line["step"] for line in lines if line["phase"] == "step" and line["rank"] == rank]
            self.assertEqual(numbers, list(range(steps)), f"{shape}, rank {rank}")
        return told

    def test_equal_steps(self):
        self.check("plain")

    def test_evaluations_before_the_first_step(self):
        for ranks in (1, 2):
            self.check("evaluates_first", ranks=ranks)
        self.check("all_evaluate")
        self.check("sanity_check")

    def test_few_steps_after_an_evaluation(self):
        self.check("evaluates_first", steps=4, ranks=1)

    def test_a_model_that_is_set_up_layer_by_layer(self):
        self.check("sets_up_layers")

    def test_batches_before_each_update(self):
        self.check("accumulates")

    def test_a_norm_by_the_optimizers_kernels(self):
        self.check("clips")

    def test_updates_in_the_backward_pass(self):
        self.check("updates_layers")

    def test_rollouts_before_each_step(self):
        self.check("generates")

    def test_an_evaluation_where_nothing_has_a_name(self):
        self.check("unnamed")


if __name__ == "__main__":
    harness.main()
