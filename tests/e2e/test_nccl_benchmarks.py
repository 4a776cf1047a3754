"""Sends and receives have the size, time and bandwidths that nccl-tests prints for them, and their transfer and wait."""
import os

import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

BENCHMARK = os.path.join(BUILD, "tests", "e2e", "nccl_benchmark")
RANKS = 4


class NcclBenchmarks(harness.EndToEndTest):

    def measure(self, test, processes):
        """What the program says (size: time, algorithm and bus bandwidth), and what the report says of the same calls."""
        out = self.path(f"{test}-{processes}")
        command = [LAUNCH_RANKS, str(RANKS), BENCHMARK, test] if processes > 1 else [BENCHMARK, test, str(RANKS)]
        output = self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=RANKS,
                               env={"GPUSIM_KERNELS": "HoldStream=500ms"}).stdout.decode()
        said = {}
        for line in output.splitlines():
            if line.startswith(test + " "):
                size, *numbers = map(float, line.split()[1:])
                said.setdefault(size, numbers)
        self.assertEqual(len(said), 2)
        entries = [entry for entry in self.report(out)["collectives"] if entry["size_bytes"] > 1]
        for entry in entries:
            self.assertEqual(entry["compared_plans"], entry["calls"] / entry["calls_per_plan"], "every call has its transfer")
            self.assertIsNotNone(entry["wait_ns"])
            self.assertAlmostEqual(entry["transfer_busbw_gbytes_per_s"] * entry["transfer_mean_ns"],
                                   self.bus_factor(test) * entry["size_bytes"], delta=1e-6 * entry["size_bytes"])
        return said, sorted(entries, key=lambda entry: entry["size_bytes"])

    @staticmethod
    def bus_factor(test):
        return {"all_reduce": 2 * (RANKS - 1) / RANKS, "alltoallv": (RANKS - 1) / RANKS, "alltoallv_half": (RANKS - 1) / RANKS}.get(test, 1)

    def check(self, test, lines_of):
        """`lines_of` entries: the ones that make a line of nccl-tests'."""
        for processes in (RANKS, 1):
            with self.subTest(test, processes=processes):
                said, entries = self.measure(test, processes)
                lines = lines_of(entries)
                self.assertEqual(len(lines), len(said))
                for line, (size, (us, algorithm, bus)) in zip(lines, sorted(said.items())):
                    self.assertEqual(sum(entry["size_bytes"] for entry in line), size)
                    # Every transfer of the node takes as long as the first that nobody is late for.
                    time_ns = sum(entry["time_ns"]["min"] for entry in line)
                    self.assertAlmostEqual(time_ns / 1e3, us, delta=0.01 * us)
                    self.assertAlmostEqual(size / time_ns, algorithm, delta=0.01 * algorithm)
                    self.assertAlmostEqual(self.bus_factor(test) * size / time_ns, bus, delta=0.01 * bus)

    def test_sendrecv(self):
        self.check("sendrecv", lambda entries: [[entry] for entry in entries])

    def test_alltoallv(self):
        self.check("alltoallv", lambda entries: [[entry] for entry in entries])

    def test_alltoallv_with_a_part_for_itself(self):
        self.check("alltoallv_half", lambda entries: [[entry] for entry in entries])

    def test_hypercube(self):
        """A round is a call; the rounds of a size together are what it prints."""
        self.check("hypercube", lambda entries: [entries[:2], entries[2:]])

    def test_all_reduce(self):
        self.check("all_reduce", lambda entries: [[entry] for entry in entries])


if __name__ == "__main__":
    harness.main()
