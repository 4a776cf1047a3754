"""A communicator has one name, NCCL's own: the hash that NCCL_DEBUG=INFO prints as commId, however it is made and the library is loaded."""
import os
import re

import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, LIBRARY

PROGRAM = os.path.join(BUILD, "tests", "e2e", "communicator_names")
RANKS = 4
PROGRAMS = {"world": [LAUNCH_RANKS, str(RANKS), PROGRAM, "world"], "devices": [PROGRAM, "devices"]}
WAYS = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run", "run --no-preload")


class CommunicatorNames(harness.EndToEndTest):

    def record(self, program, way):
        env = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": self.path("nccl.log.%p")}  # a real one writes it
        self.forget_truth()
        self.names_in_log()  # of an earlier run that failed
        if way.startswith("run"):
            out = self.path(f"{program}-{way.replace(' ', '')}")
            self.run_well([GPUPROBE, *way.split(), "--out", out, "--", *PROGRAMS[program]], devices=RANKS, env=env)
            return out
        collector = harness.Collector(self)
        self.run_well(PROGRAMS[program], devices=RANKS, env={**collector.env(), way: LIBRARY, **env})
        self.assertEqual(collector.stop().returncode, 0)
        return collector.out

    def names_in_log(self):
        """By rank, of those that were made from unique ids: NCCL prints no hash of a child."""
        names = set()
        for name in os.listdir(self.folder):
            if name.startswith("nccl.log."):
                with open(self.path(name), encoding="utf-8") as file:
                    names |= set(re.findall(r"rank (\d+) nranks (\d+) .* commId 0x([0-9a-f]+) - Init COMPLETE", file.read()))
                os.remove(self.path(name))
        return {(int(rank), int(ranks), hash.rjust(16, "0")) for rank, ranks, hash in names}

    def check(self, program, way):
        out = self.record(program, way)
        happened, captured = self.truth(), self.export(out)
        calls = lambda side: sorted((record["comm"], record["comm_rank"], record["comm_ranks"]) for record in side if record["kind"] == "collective")
        self.assertEqual(calls(captured), calls(happened))
        report = self.report(out)
        communicators = {entry["comm"] for entry in report["collectives"]}
        self.assertEqual(communicators, {comm for comm, _, _ in calls(happened)})
        for entry in report["collectives"]:
            self.assertEqual(entry["heard_ranks"], entry["comm_ranks"])
        if self.on_real_nccl:
            logged = self.names_in_log()
            self.assertEqual(len(logged), 2 * RANKS if program == "world" else RANKS)
            self.assertLessEqual({(name, rank, ranks) for rank, ranks, name in logged}, set(calls(captured)))

    def test_each_way(self):
        for program in PROGRAMS:
            for way in WAYS:
                with self.subTest(program, way=way):
                    self.check(program, way)


if __name__ == "__main__":
    harness.main()
