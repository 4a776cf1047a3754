"""What NVML says of GPUs reaches the report: it explains a slow rank, or does not, and errors are named. GPUSIM_HEALTH is what the node's NVML says."""
import os
import time

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT

RANKS = 4
SLOW = 2
CLOCK = 1980
STEPS = 600
TRAINING = ["--steps", str(STEPS), "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03"]
NODE = {"GPUSIM_KERNELS": "LinearBackward.*=800us;LinearForward=600us;.*=20us", **PATIENT}
BOARD_IS_HOT = 0x48  # nvmlClocksEventReasons: hardware slowdown, hardware thermal


class GpuHealth(harness.EndToEndTest):

    def say(self, *lines):
        """What the node's NVML says from now on."""
        with open(self.path("health.new"), "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        os.replace(self.path("health.new"), self.path("health"))

    def start_training(self, **env):
        return self.start([GPUPROBE, "run", "--out", self.path("run"), "--", LAUNCH_RANKS, str(RANKS), DDP_TRAIN, *TRAINING], devices=RANKS,
                          env={**NODE, "GPUSIM_HEALTH": self.path("health"), **env})

    def train(self, *lines, **env):
        self.say(*lines)
        finished = self.start_training(**env).wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        return self.report(self.path("run"))

    def health_of(self, report, rank):
        return next(r.get("gpu_health") for r in report["ranks"] if r["rank"] == rank)

    def straggler(self, report):
        """The finding about the slow rank, which must be the first."""
        with self.undisturbed(report):
            finding = report["findings"][0]
            self.assertEqual((finding["id"], finding["about"]["ranks"]), ("straggler-slow-gpu", [SLOW]), finding)
        return finding

    def test_a_gpu_that_is_too_hot_is_blamed_for_that(self):
        report = self.train(f"{SLOW} sm_clock 1110", f"{SLOW} reasons {BOARD_IS_HOT:#x}", f"{SLOW} temperature 91", f"{SLOW} power 300000",
                            GPUSIM_SLOW=f"rank={SLOW},factor={CLOCK / 1110:.3f}")
        finding = self.straggler(report)
        self.assertIn("While it computed its GPU ran at 1,110 MHz, the other ranks' at 1,980 MHz (by one look a second): the board keeps it down for its temperature 100.0 % of "
                      "the time (up to 91 degrees Celsius, the others 60 degrees Celsius).", finding["evidence"])
        self.assertTrue(finding["advice"].startswith(f"Check how GPU {SLOW} on "), finding["advice"])
        slow, other = (self.health_of(report, rank) for rank in (SLOW, 0))
        self.assertEqual((slow["clock_mhz"], slow["lowest_clock_mhz"], slow["max_clock_mhz"], slow["temperature_c"], slow["power_w"]), (1110, 1110, CLOCK, 91, 300))
        self.assertEqual(slow["limited"], [{"limit": "hardware_thermal", "share": 1}])
        self.assertEqual((other["clock_mhz"], other["limited"], other["power_limit_w"]), (CLOCK, [], 700))
        self.assertGreaterEqual(slow["busy_s"], 2)

    def test_a_counter_of_time_says_how_long(self):
        report = self.train(f"{SLOW} sm_clock 1500", f"{SLOW} reasons 0x20", f"{SLOW} thermal_share 0.4",
                            GPUSIM_SLOW=f"rank={SLOW},factor={CLOCK / 1500:.3f}")
        limited, = self.health_of(report, SLOW)["limited"]
        self.assertEqual(limited["limit"], "thermal")
        self.assertAlmostEqual(limited["share"], 0.4, delta=0.02)
        self.assertIn("the driver keeps it down for its temperature 4", self.straggler(report)["evidence"])

    def test_a_clock_that_is_as_high_as_elsewhere_explains_nothing(self):
        # All run into their power limit, as under full load, and one chip is a little better than the others.
        finding = self.straggler(self.train(*[f"{rank} {line}" for rank in range(RANKS) for line in ("sm_clock 1300", "reasons 0x4", "power_share 0.9")],
                                            f"{SLOW} sm_clock 1280", GPUSIM_SLOW=f"rank={SLOW},factor=1.5"))
        self.assertIn("Its GPU's clock is about as high as the other ranks' (1,280 MHz and 1,300 MHz while they computed, means of one look a second), so", finding["evidence"])
        self.assertIn("other processes", finding["advice"])

    def test_a_lower_clock_that_explains_little_is_said_to(self):
        finding = self.straggler(self.train(f"{SLOW} sm_clock 1800", f"{SLOW} reasons 0x2", GPUSIM_SLOW=f"rank={SLOW},factor=2"))
        self.assertIn("somebody has set its clocks. That is too little to explain all of it.", finding["evidence"])
        self.assertIn("nvidia-smi -rac", finding["advice"])

    def test_healthy_gpus_under_their_power_limit_are_no_finding(self):
        report = self.train(*[f"{rank} {line}" for rank in range(RANKS)
                              for line in (f"sm_clock {1290 + 10 * rank}", "reasons 0x4", "power_share 0.9", "power 690000")])
        with self.undisturbed(report):
            for finding in report["findings"]:
                self.assertNotIn("MHz", finding["evidence"])
        self.assertEqual([self.health_of(report, rank)["limited"][0]["limit"] for rank in range(RANKS)], ["power_cap"] * RANKS)

    def test_errors_of_the_driver_are_named_with_their_time(self):
        self.say("1 xid 63")  # from before the job
        begin_ns = time.time_ns()
        program = self.start_training(GPUSIM_KERNELS="LinearBackward.*=2ms;LinearForward=1ms;.*=20us")
        run = self.path("run")
        harness.wait_until(lambda: os.path.exists(os.path.join(run, "live.json")), "first steps")
        time.sleep(2.5)
        self.say("1 xid 63", "1 xid 94", "3 xid 45")
        finished = program.wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        report = self.report(run)
        finding, = [f for f in report["findings"] if f["id"] == "gpu-error"]
        self.assertEqual(report["findings"][0]["id"], "gpu-error")
        self.assertEqual((finding["severity"], finding["about"]["ranks"]), ("error", [1]))
        self.assertRegex(finding["statement"], r"^GPU 1 on \S+ \(rank 1\) had an error: its memory had an error that cannot be corrected, which ended one process "
                                               r"\(Xid 94, at \d\d:\d\d:\d\d UTC\)\.$")
        health = self.health_of(report, 1)
        self.assertEqual([error["xid"] for error in health["errors"]], [94])
        self.assertTrue(begin_ns < health["errors"][0]["time_ns"] < time.time_ns())
        self.assertEqual([error["xid"] for error in self.health_of(report, 3)["errors"]], [45])
        self.assertIn("gpu-error", finished.stderr.decode() + finished.stdout.decode())

    def test_a_driver_that_no_longer_answers_holds_up_nobody(self):
        # The node's NVML opens this file in its first call, and never comes back.
        os.mkfifo(self.path("health"))
        begin = time.monotonic()
        finished = self.start_training().wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        report = self.report(self.path("run"))
        self.assertIsNone(self.health_of(report, 0))
        self.assertEqual({rank["steps"]["count"] for rank in report["ranks"]}, {STEPS})
        self.assertLess(time.monotonic() - begin, 60)

    def test_not_asked(self):
        self.assertIsNone(self.health_of(self.train(GPUPROBE_GPU_HEALTH="0"), 0))

    def test_no_nvml(self):
        without = self.path("lib")
        os.mkdir(without)
        for name in os.listdir(harness.SIM_LIB):
            if not name.startswith("libnvidia-ml"):
                os.symlink(os.path.join(harness.SIM_LIB, name), os.path.join(without, name))
        self.assertIsNone(self.health_of(self.train(LD_LIBRARY_PATH=without), 0))


if __name__ == "__main__":
    harness.main()
