"""Collectives that hang are named while the program runs and afterwards, and what merely takes long is not."""
import contextlib
import json
import os
import re
import signal
import time

import harness
from harness import BUILD, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, wait_until

TROUBLES = os.path.join(BUILD, "tests", "e2e", "collective_troubles")
RANKS = 3
ODD = RANKS - 1  # the rank that differs
CALL = 5         # where
AFTER_S = 2
SHAPE = {"op": "AllReduce", "count": 1 << 16, "datatype": "float32", "bytes": 1 << 18, "root": None}


class Hangs(harness.EndToEndTest):

    def begin(self, what, seconds=0, env=None):
        self.out = self.path(f"run-directory-{len(self._programs)}")
        command = [GPUPROBE, "run", "--out", self.out, "--hang-after", str(AFTER_S), "--", LAUNCH_RANKS, str(RANKS), TROUBLES, what, str(seconds)]
        return self.start(command, env={"GPUSIM_LINK": "alpha=10us,beta=100GB/s", **(env or {})}, devices=RANKS)

    def say_go(self, name):
        with open(os.path.join(self.cwd, name), "w", encoding="utf-8"):
            pass

    def hang(self, what, env=None, seconds=0):
        """Runs until a hang is said, ends the program, and returns what was said and the hangs of the report."""
        program = self.begin(what, seconds, env)
        said = wait_until(lambda: (b"HANG" in program.so_far() or not program.alive()) and program.so_far().decode(), "HANG")
        self.assertIn("HANG", said)
        program.signal(signal.SIGTERM)
        self.assertNotEqual(program.wait().returncode, 0)
        self.assert_nothing_runs()
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            live = json.load(file)
        replayed = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json", "--hang-after", str(AFTER_S)]).stdout)
        self.assertEqual(live["hangs"], replayed["hangs"])
        return said, live

    def check_waiting(self, said):
        waited = re.search(r"has been waiting for ([0-9.]+) s", " ".join(said.split()))
        self.assertGreaterEqual(float(waited[1]), AFTER_S)
        self.assertLess(float(waited[1]), AFTER_S + 5)

    def check_fine(self, what, seconds, env=None):
        finished = self.begin(what, seconds, env).wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertNotIn(b"HANG", finished.stderr)
        self.assertEqual(self.report(self.out)["hangs"], [])

    def test_a_rank_that_does_not_issue(self):
        said, report = self.hang("skip")
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["comm_ranks"], hang["issued"]), ("missing_rank", CALL, RANKS, RANKS - 1))
        self.assertEqual({name: hang[name] for name in SHAPE}, SHAPE)
        rank, = hang["ranks"]
        self.assertEqual((rank["rank"], rank["state"], rank["launches_since"], rank["open_range"]), (ODD, "not_issued", 0, "eval"))
        self.assertEqual((rank["last_call"]["op"], rank["last_call"]["seq"], rank["last_call"]["comm"]), ("AllReduce", CALL - 1, hang["comm"]))
        self.assertGreaterEqual(rank["last_call"]["done_ago_ns"], AFTER_S * 10**9)
        self.assertIn(f"Rank {ODD} did not: its last call was AllReduce seq {CALL - 1}, finished", " ".join(said.split()))
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")

    def test_at_level_calls_a_rank_that_does_not_issue(self):
        said, report = self.hang("skip", {"GPUPROBE_LEVEL": "calls"})
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["comm_ranks"], hang["issued"]), ("missing_rank", CALL, RANKS, RANKS - 1))
        self.assertEqual((hang["op"], hang["bytes"], hang["count"], hang["datatype"]), (SHAPE["op"], SHAPE["bytes"], None, None))
        rank, = hang["ranks"]
        self.assertEqual((rank["rank"], rank["state"], rank["launches_since"]), (ODD, "not_issued", None))
        self.assertEqual((rank["last_call"]["op"], rank["last_call"]["seq"], rank["last_call"]["comm"]), ("AllReduce", CALL - 1, hang["comm"]))
        self.assertIn("What ranks launch is not recorded at level calls", " ".join(said.split()))
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")

    def test_at_level_calls_nothing_is_said_of_who_is_well_or_at_work(self):
        self.check_fine("fine", 0, {"GPUPROBE_LEVEL": "calls"})
        self.check_fine("files", 3 * AFTER_S, {"GPUPROBE_LEVEL": "calls"})
        self.check_fine("replay-fine", 0, {"GPUPROBE_LEVEL": "calls"})

    def end_training(self, ready, *options, **node):
        """A job whose steps are alike, ended by SIGTERM once `ready(program)`; its report."""
        training = [LAUNCH_RANKS, str(RANKS), DDP_TRAIN, "--steps", "100000", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03", *options]
        self.out = self.path(f"training-{len(self._programs)}")
        program = self.start([GPUPROBE, "run", "--out", self.out, "--hang-after", str(AFTER_S), "--", *training],
                             env={"GPUSIM_KERNELS": "Linear=1ms", "GPUSIM_LINK": "alpha=10us,beta=10GB/s", **node}, devices=RANKS)
        wait_until(lambda: ready(program) or not program.alive(), "end of the training")
        program.signal(signal.SIGTERM)
        program.wait()
        self.assert_nothing_runs()
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            return json.load(file)

    def check_steps_are_whole(self, report):
        """The node computes for eleven milliseconds and some microseconds in each step: a step of which a part is counted would be shorter."""
        for rank in report["ranks"]:
            compute = rank["steps"]["compute_ns"]
            self.assertGreater(compute["count"], 10)
            self.assertGreater(compute["min"], 11e6, (rank["rank"], compute))
            self.assertLess(compute["max"], 11.5e6, (rank["rank"], compute))

    def test_figures_of_a_killed_job_are_of_whole_steps(self):
        """Its host is ahead of its GPU, and of some threads and kinds later records have come than of others."""
        for seconds in (2, 2.3, 2.7, 3.1):
            begin = time.monotonic()
            report = self.end_training(lambda _, until=begin + seconds: time.monotonic() > until)
            self.check_steps_are_whole(report)

    def test_figures_of_a_job_that_hangs_ahead_are_of_whole_steps(self):
        for hang in ("rank=2,call=500", "call=301"):
            report = self.end_training(lambda program: b"HANG" in program.so_far(), GPUSIM_HANG=hang)
            self.assertEqual(len(report["hangs"]), 1)
            self.check_steps_are_whole(report)

    def test_figures_of_steps_end_before_the_hang(self):
        report = self.end_training(lambda program: b"HANG" in program.so_far(), "--log-every", "1", GPUSIM_HANG="call=200")
        self.check_steps_are_whole(report)
        hang, = report["hangs"]
        steps = report["steps"]
        self.assertGreaterEqual(hang["waiting_ns"], AFTER_S * 10**9)
        self.assertEqual(report["findings"][0]["id"], "hang-all-issued")
        self.assertGreater(steps["count"], 10)
        self.assertLessEqual(steps["count"], hang["seq"])  # each has a call at least
        self.assertEqual(steps["count"], min(rank["steps"]["count"] for rank in report["ranks"]))
        self.assertLess(steps["time_ns"]["max"], AFTER_S * 10**9)
        for finding in report["findings"]:
            if finding["cost_ns_per_step"] is not None:
                self.assertIn(f"Measured in the {steps['count'] - steps['warmup_count']} steps before the hang.", finding["evidence"])

    def test_all_issued_and_it_does_not_end(self):
        said, report = self.hang("fine", {"GPUSIM_HANG": f"call={CALL}"})
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["issued"], hang["culprit_known"]), ("all_issued", CALL, RANKS, False))
        self.assertEqual(sorted((r["rank"], r["state"], r["blocked_in"]) for r in hang["ranks"]),
                         [(rank, "waiting", "cuStreamSynchronize") for rank in range(RANKS)])

    def test_all_issued_behind_work_whose_records_are_held_back(self):
        # CUPTI gives the copy's record only when asked for what is unfinished, too.
        said, report = self.hang("queued", {"GPUSIM_HANG": f"call={CALL}"})
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["issued"], hang["earlier_work_unfinished"]), ("all_issued", CALL, RANKS, False))
        self.assertEqual(report["trust"]["lost"].get("unfinished_at_flush"), RANKS, report["trust"])

    def test_a_rank_whose_call_launches_nothing(self):
        for rank, call in ((ODD, CALL), (0, 1)):
            with self.subTest(rank=rank, call=call):
                said, report = self.hang("fine", {"GPUSIM_HANG": f"rank={rank},call={call}"})
                self.check_waiting(said)
                self.assertIn(f"rank {rank} issued the call but launched no kernel.", " ".join(said.split()))
                hang, = report["hangs"]
                self.assertEqual((hang["kind"], hang["seq"], hang["issued"], hang["culprit_known"]), ("missing_rank", call, RANKS - 1, True))
                culprit, = hang["ranks"]
                self.assertEqual((culprit["rank"], culprit["state"], culprit["blocked_in"]), (rank, "launched_nothing", "cuStreamSynchronize"))
                self.assertEqual((culprit["last_call"]["seq"], report["findings"][0]["id"]), (call + 1, "hang-missing-rank"))

    def check_transfer(self, what, waits, others):
        """`waits`: (rank, what it waits for) any of which may be named as the one that has waited longest."""
        said, report = self.hang(what)
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["culprit_known"], hang["count"], hang["bytes"]), ("missing_rank", True, 1 << 16, 1 << 18))
        self.assertEqual([(r["rank"], r["state"], r["open_range"]) for r in hang["ranks"]], [(ODD, "not_issued", "eval")])
        transfer = hang["transfer"]
        self.assertEqual((transfer["peer"], transfer["others_waiting"]), (ODD, others))
        self.assertIn((transfer["rank"], transfer["counterpart"]), waits)
        self.assertIn(f"rank {ODD} did not issue its {transfer['counterpart']}.", " ".join(said.split()))
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")

    def test_a_receiver_whose_sender_never_sends(self):
        # Rank 0 waits for rank 1, which waits for rank 2: only the last is to blame.
        self.check_transfer("chain", [(ODD - 1, "Send")], 0)

    def test_a_group_of_transfers_that_a_rank_does_not_join(self):
        self.check_transfer("exchange", [(0, "Send"), (ODD - 1, "Recv")], 1)

    def test_a_replay_of_a_graph_that_a_rank_does_not_launch(self):
        said, report = self.hang("replay-skip")
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["op"], hang["seq"], hang["bytes"]), ("missing_rank", "AllReduce", 0, SHAPE["bytes"]))
        self.assertEqual((hang["comm_ranks"], hang["issued"], hang["culprit_known"]), (RANKS, RANKS - 1, True))
        self.assertEqual(hang["replay"], {"number": CALL + 1, "collectives": 2, "ended": 0, "communicators": 1})
        rank, = hang["ranks"]
        self.assertEqual((rank["rank"], rank["state"], rank["open_range"]), (ODD, "not_issued", "eval"))
        self.assertEqual((rank["last_call"]["op"], rank["last_call"]["captured"], rank["replays"]["launches"]), ("AllReduce", True, CALL))
        self.assertGreaterEqual(rank["replays"]["last_launch_ago_ns"], AFTER_S * 10**9)
        words = " ".join(said.split())
        self.assertIn(f"HANG Replay {CALL + 1} of the CUDA graph with AllReduce seq 0 on communicator", words)
        self.assertIn(f"rank {ODD} did not launch it.", words)
        self.assertIn(f"Rank {ODD} did not: it launched this graph {CALL} times, last", words)
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")

    def test_a_replay_that_all_launched_and_that_does_not_end(self):
        said, report = self.hang("replay-fine", {"GPUSIM_HANG": "call=1"})
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["op"], hang["issued"], hang["culprit_known"]), ("all_issued", "AllReduce", RANKS, False))
        self.assertEqual((hang["replay"]["number"], hang["replay"]["collectives"]), (1, 2))
        self.assertEqual(sorted((r["rank"], r["state"], r["blocked_in"], r["replays"]["launches"]) for r in hang["ranks"]),
                         [(rank, "waiting", "cuStreamSynchronize", 1) for rank in range(RANKS)])

    def test_a_replay_of_a_graph_that_was_updated_names_the_calls_that_it_carries_now(self):
        said, report = self.hang("replay-updated")
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["op"], hang["seq"], hang["bytes"]), ("missing_rank", "AllReduce", 2, SHAPE["bytes"] // 4))
        self.assertEqual(hang["replay"], {"number": CALL + 1, "collectives": 2, "ended": 0, "communicators": 1})
        self.assertEqual([(r["rank"], r["replays"]["launches"]) for r in hang["ranks"]], [(ODD, CALL)])
        self.assertIn(f"HANG Replay {CALL + 1} of the CUDA graph with AllReduce seq 2 on communicator", " ".join(said.split()))

    def test_a_replay_with_transfers_whose_sender_does_not_launch_its_graph(self):
        """Rank 0 waits for rank 1, which waits for rank 2: only the last is to blame."""
        said, report = self.hang("replay-line")
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["op"], hang["bytes"], hang["culprit_known"]), ("missing_rank", "Recv", SHAPE["bytes"], True))
        self.assertEqual(hang["transfer"], {"rank": ODD - 1, "peer": ODD, "counterpart": "Send", "others_waiting": 0})
        self.assertEqual(hang["replay"]["number"], CALL + 1)
        self.assertEqual([(r["rank"], r["state"], r["replays"]["launches"]) for r in hang["ranks"]], [(ODD, "not_issued", CALL)])
        self.assertIn(f"rank {ODD} did not launch its graph with the Send.", " ".join(said.split()))

    def test_replays_that_wait_for_a_checkpoint_or_long_work_are_no_hang(self):
        self.check_fine("replay-fine", 0)
        self.check_fine("replay-files", 3 * AFTER_S)
        self.check_fine("replay-copies", 3 * AFTER_S)
        self.check_fine("replay-long", 3 * AFTER_S, {"GPUSIM_PCIE": "1MB/s"})
        self.check_fine("replay-long-alone", 3 * AFTER_S, {"GPUSIM_PCIE": "1MB/s"})

    def test_another_size(self):
        said, report = self.hang("size", seconds=harness.LIMIT_S)
        self.assertIn(f"HANG AllReduce seq {CALL} on communicator", " ".join(said.split()))
        self.assertIn(f"was issued differently by rank {ODD}", " ".join(said.split()))
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["culprit_known"]), ("mismatch", CALL, True))
        self.assertEqual({name: hang[name] for name in SHAPE}, SHAPE)
        rank, = hang["ranks"]
        self.assertEqual((rank["rank"], rank["issued"]), (ODD, {**SHAPE, "count": 1 << 15, "bytes": 1 << 17}))

    def test_another_type(self):
        said, report = self.hang("datatype", seconds=harness.LIMIT_S)
        self.assertIn(f"Rank {ODD} issued AllReduce, 65,536 x int32.", " ".join(said.split()))
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["culprit_known"]), ("mismatch", CALL, True))
        self.assertEqual({name: hang[name] for name in SHAPE}, SHAPE)
        self.assertEqual([(r["rank"], r["issued"]) for r in hang["ranks"]], [(ODD, {**SHAPE, "datatype": "int32"})])

    def test_in_a_step_that_is_recorded_it_is_told_whatever_was_left_out_before(self):
        said, report = self.hang("steps-skip", {"GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_EVERY_STEPS": "5"})
        self.check_waiting(said)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["issued"]), ("missing_rank", CALL, RANKS - 1))
        rank, = hang["ranks"]
        self.assertEqual((rank["rank"], rank["state"]), (ODD, "not_issued"))

    def test_in_a_step_that_is_not_recorded_nothing_is_made_up(self):
        env = {"GPUPROBE_STEP_MARKER": "nvtx:step", "GPUPROBE_EVERY_STEPS": "4"}
        program = self.begin("steps-skip", 0, env)
        wait_until(lambda: b"left" in program.so_far() or not program.alive(), "the rank that leaves")
        time.sleep(3 * AFTER_S)
        self.assertNotIn(b"HANG", program.so_far())
        program.signal(signal.SIGTERM)
        self.assertNotEqual(program.wait().returncode, 0)
        self.assert_nothing_runs()
        report = self.report(self.out)
        self.assertEqual(report["hangs"], [])

    def test_another_operation(self):
        said, report = self.hang("operation", seconds=harness.LIMIT_S)
        self.assertIn(f"Rank {ODD} issued Broadcast, 65,536 x float32, root 0.", " ".join(said.split()))
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], hang["op"]), ("mismatch", CALL, "AllReduce"))
        self.assertEqual([(r["rank"], r["issued"]["op"], r["issued"]["root"]) for r in hang["ranks"]], [(ODD, "Broadcast", 0)])

    def test_a_rank_that_goes_on_after_all_is_said_to_and_is_no_hang_in_the_report(self):
        program = self.begin("held")
        wait_until(lambda: f"HANG  AllReduce seq {CALL}".encode() in program.so_far() or not program.alive(), "HANG")
        self.assertNotIn(b"HANG over", program.so_far())
        self.say_go("go")
        wait_until(lambda: f"HANG over: AllReduce seq {CALL}".encode() in program.so_far() or not program.alive(), "HANG over")
        self.say_go("end")
        finished = program.wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertEqual((finished.stderr.count(b"HANG  "), finished.stderr.count(b"HANG over: ")), (1, 1), str(finished))
        report = self.report(self.out)
        self.assertEqual(report["hangs"], [])
        past, = report["past_hangs"]
        self.assertEqual((past["seq"], past["op"], past["over"], [r["rank"] for r in past["ranks"]]), (CALL, "AllReduce", True, [ODD]))
        self.assertGreaterEqual(past["until_ns"] - past["since_ns"], AFTER_S * 10**9)
        over, = (f for f in report["findings"] if f["id"] == "hang-over")
        self.assertRegex(over["statement"], rf"^AllReduce seq {CALL} on communicator .* hung for .*, from \d\d:\d\d:\d\d UTC to \d\d:\d\d:\d\d UTC, waiting for rank {ODD}\.$")
        replayed = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json", "--hang-after", str(AFTER_S)]).stdout)
        self.assertEqual(replayed["past_hangs"], report["past_hangs"])

    def test_what_was_told_stands_when_the_ranks_are_killed_at_once(self):
        program = self.begin("skip")
        wait_until(lambda: b"HANG" in program.so_far() or not program.alive(), "HANG")
        ranks = [pid for pid in harness.all_pids() if os.path.basename(harness.read_proc(pid, "cmdline").split(b"\0")[0]) == b"collective_troubles"
                 and f"E2E_MARK={self.mark}".encode() in harness.read_proc(pid, "environ").split(b"\0")]
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):  # whoever started it ends the others when one has died
                os.kill(pid, signal.SIGKILL)
        finished = program.wait()
        self.assertEqual((len(ranks), finished.stderr.count(b"HANG over")), (RANKS, 0), str(finished))
        self.assert_nothing_runs()
        report = self.report(self.out)
        hang, = report["hangs"]
        self.assertEqual((hang["kind"], hang["seq"], [r["rank"] for r in hang["ranks"]], report["past_hangs"]), ("missing_rank", CALL, [ODD], []))
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")

    def test_nothing_is_said_of_a_healthy_program(self):
        self.check_fine("fine", 0)

    def test_work_that_runs_long_before_it_is_no_hang(self):
        self.check_fine("long", 3 * AFTER_S, {"GPUSIM_PCIE": "1MB/s"})

    def test_a_rank_that_waits_for_its_own_long_work_is_no_hang(self):
        self.check_fine("long-alone", 3 * AFTER_S, {"GPUSIM_PCIE": "1MB/s"})

    def test_a_checkpoint_is_no_hang(self):
        self.check_fine("copies", 3 * AFTER_S)

    def test_a_checkpoint_that_only_writes_is_no_hang(self):
        self.check_fine("files", 3 * AFTER_S)


if __name__ == "__main__":
    harness.main()
