"""Sends and receives are named by what they are for, and transfers contain no waiting; gradients that are reduced too often are not more gradients."""
import os

import figures
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, PATIENT

NODE = {"GPUSIM_KERNELS": "MatmulForward=400us;MatmulBackward=800us;ExpertGemm=500us;AdamUpdate=300us", "GPUSIM_LINK": "alpha=5us,beta=100GB/s"}
SLOW_LINK = "alpha=20us,beta=10GB/s"
FALSE_OF_COMMUNICATION = {"pipeline-bubble", "poor-overlap", "communication-bound", "slow-network"}


class Strangers(harness.EndToEndTest):

    def record(self, program, kind, ranks=4, link=None):
        out = self.path("run-directory")
        command = [GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, str(ranks), os.path.join(BUILD, "tests", "e2e", program), kind]
        self.run_well(command, devices=ranks, env={**PATIENT, **NODE, **({"GPUSIM_LINK": link} if link else {})})
        report = self.report(out)
        self.assertEqual(figures.impossible(report), [])
        return report

    def found(self, report):
        return [finding["id"] for finding in report["findings"]]

    def transfers_of_table(self, report):
        """Per step, as the table of collectives has them."""
        return sum(c["steady"]["transfer_ns"] * c["steady"]["plans_per_step"] for c in report["collectives"] if c["steady"])


class Exchanges(Strangers):

    def check_exchange(self, kind, pattern, first, ranks=4):
        report = self.record("exchanges", kind, ranks)
        self.assertIn(pattern, report["communication"]["pattern"])
        self.assertNotIn("pipeline", report["communication"]["pattern"])
        self.assertIsNone(report["communication"]["pipeline"])
        # This machine may have made a step of a steady program long, or all of them, and that is said.
        findings = [f for f in report["findings"] if (f["id"], f["severity"]) != ("long-steps", "info") and f["id"] != "cpu-starved"]
        with self.undisturbed(report):
            self.assertFalse(FALSE_OF_COMMUNICATION & set(self.found(report)), report["findings"])
            self.assertEqual(findings[0]["id"] if findings else "healthy", first, report["findings"])
        return report

    def test_one_expert_with_twice_the_work_is_more_work_on_its_rank(self):
        report = self.check_exchange("experts-fixed", "expert parallel (all-to-all)", "straggler-more-work")
        self.assertEqual(report["findings"][0]["about"]["ranks"], [1])
        caused = {rank["rank"]: rank["wait"]["caused_per_step_ns"] for rank in report["ranks"]}
        with self.undisturbed(report):
            # Three layers with two kernels of 500 us more.
            self.assertAlmostEqual(caused[1], 3e6, delta=3e5)
            self.assertLess(max(caused[rank] for rank in (0, 2, 3)), 3e5)

    def test_an_expert_whose_work_moves_is_an_imbalance(self):
        self.check_exchange("experts-rotate", "expert parallel (all-to-all)", "imbalance")

    def test_two_ranks_that_send_to_themselves_too_exchange(self):
        self.check_exchange("experts-fixed", "expert parallel (all-to-all)", "straggler-more-work", ranks=2)

    def test_a_ring_is_no_pipeline_and_has_nothing_to_say(self):
        self.check_exchange("ring", "context parallel (ring)", "healthy")

    def test_a_ring_of_two_is_no_pipeline(self):
        self.check_exchange("ring", "context parallel (ring)", "healthy", ranks=2)

    def test_a_ring_without_groups_is_no_pipeline(self):
        self.check_exchange("ring-alone", "context parallel (ring)", "healthy")

    def test_a_stall_beside_a_ring_is_all_there_is(self):
        report = self.check_exchange("ring-stall", "context parallel (ring)", "sync-in-loop")
        with self.undisturbed(report):
            self.assertEqual([f["id"] for f in report["findings"] if f["severity"] != "info"], ["sync-in-loop"], report["findings"])


class Pipelines(Strangers):
    """Near misses: groups of these send and receive with the same peer, or go round, and yet hand on."""

    def check_pipeline(self, kind, ranks):
        report = self.record("exchanges", kind, ranks)
        self.assertEqual(report["communication"]["pattern"], ["pipeline"])
        self.assertEqual(report["communication"]["pipeline"]["stages"], ranks)
        return report

    def test_groups_of_the_steady_state(self):
        report = self.check_pipeline("1f1b", 4)
        with self.undisturbed(report):
            self.assertEqual(self.found(report)[0], "pipeline-bubble", report["findings"])
        self.assertEqual(report["communication"]["pipeline"]["microbatches"], 8)

    def test_two_stages(self):
        self.check_pipeline("1f1b", 2)

    def test_interleaved_stages(self):
        self.check_pipeline("interleaved", 4)


class Accumulation(Strangers):

    def weights(self, report):
        holdings = report["ranks"][0]["device_memory"][0]["lifetimes"]["holdings"]
        return sum(h["bytes"] for h in holdings if h["what"] == "weights")

    def test_gradients_that_each_micro_batch_reduces_are_the_same_gradients(self):
        report = self.record("accumulation", "each", 2, SLOW_LINK)
        with self.undisturbed(report):
            self.assertEqual(self.found(report)[0], "reduced-each-micro-batch", report["findings"])
            self.assertIn("4 times per optimizer step", report["findings"][0]["statement"])
            self.assertLess(report["findings"][0]["cost_ns_per_step"], report["communication"]["exposed_transfer_ns_per_step"])
            self.assertNotIn("poor-overlap", self.found(report))
        self.assertEqual(self.weights(report), 4 * 8 << 20)

    def test_gradients_that_the_last_micro_batch_reduces_are_reduced_once(self):
        report = self.record("accumulation", "last", 2)
        self.assertNotIn("reduced-each-micro-batch", self.found(report))
        self.assertEqual(self.weights(report), 4 * 8 << 20)

    def test_as_many_buckets_of_one_size_are_no_repetition(self):
        report = self.record("accumulation", "buckets", 2)
        self.assertNotIn("reduced-each-micro-batch", self.found(report))
        self.assertEqual(self.weights(report), 16 * 8 << 20)

    def test_recomputing_layers_in_backward_is_no_repetition(self):
        report = self.record("accumulation", "recompute", 2)
        self.assertNotIn("reduced-each-micro-batch", self.found(report))
        self.assertEqual(self.weights(report), 16 * 8 << 20)


class Transfers(Strangers):

    def test_waiting_by_turns_is_no_transfer(self):
        report = self.record("exchanges", "turns")
        communication = report["communication"]
        self.assertLessEqual(communication["transfer_ns_per_step"], 1.05 * self.transfers_of_table(report))
        with self.undisturbed(report):
            self.assertEqual(report["findings"][0]["id"], "imbalance", report["findings"])
            self.assertFalse(FALSE_OF_COMMUNICATION & set(self.found(report)), report["findings"])
            # In each of 8 calls, one rank is 500 us late.
            self.assertAlmostEqual(communication["exposed_wait_ns_per_step"], 8 * 500e3 * 3 / 4, delta=4e5)

    def test_transfers_are_those_of_the_table(self):
        for kind in ("experts-fixed", "experts-rotate", "ring"):
            with self.subTest(kind):
                report = self.record("exchanges", kind)
                self.assertLessEqual(report["communication"]["transfer_ns_per_step"], 1.05 * self.transfers_of_table(report))
                os.rename(self.path("run-directory"), self.path("run-" + kind))


if __name__ == "__main__":
    harness.main()
