"""A collector that dies is replaced: the program goes on unharmed, the next collector goes on with the run, and nothing is missing or doubled."""
import json
import os
import random
import signal
import time

import harness
from harness import CUDA_SCRIPT, GPUPROBE, LIBRARY
from hazards import hazard

FROZEN_CLOCK = os.path.join(harness.BUILD, "tests", "e2e", "libfrozen_clock.so")
# How often the collector is killed under four ranks; 50 take about 90 s.
KILLS = int(os.environ.get("GPUPROBE_KILLS", "10"))
SEED = int(os.environ.get("GPUPROBE_SEED") or random.SystemRandom().randrange(1 << 30))


class Restarted(harness.Collector):
    """A collector that can be killed and started again on the same socket and directory."""

    def __init__(self, test, rolls_up=False, **options):
        # A job of any size is rolled up, too.
        self._env = {"GPUPROBE_ROLL_UP_FROM": "1"} if rolls_up else None
        super().__init__(test, env=self._env, **options)

    def kill(self):
        self.program.signal(signal.SIGKILL)
        return self.program.wait()

    def start_again(self):
        self.program = self._test.start([GPUPROBE, "collect", "--socket", self.socket, "--out", self.out], env=self._env)
        harness.wait_until(lambda: harness.answers(self.socket) or not self.program.alive(), "collector on " + self.socket)
        if not self.program.alive():
            raise AssertionError(f"the collector did not start again: {self.program.wait()}")


class CollectorDies(harness.EndToEndTest):

    def probed(self, collector, **extra):
        return {**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20", **extra}

    def script(self, *parts):
        """Operations with a pause after each part: the program waits for the file go-N."""
        operations = []
        for number, part in enumerate(parts):
            operations += [*part, f"touch:{self.path(f'ready-{number}')}", f"await:{self.path(f'go-{number}')}"]
        return [CUDA_SCRIPT, *operations, "print:end", "return:9"]

    def await_ready(self, number):
        harness.wait_until(lambda: os.path.exists(self.path(f"ready-{number}")), f"end of part {number}")

    def go(self, number):
        with open(self.path(f"go-{number}"), "w", encoding="utf-8"):
            pass

    def captured(self, run, kind="kernel"):
        finished = self.run_program([GPUPROBE, "export", run, "--format", "jsonl"])
        return finished.stdout.count(f'"kind":"{kind}"'.encode())

    def assert_complete(self, run):
        self.assertEqual(self.differences(self.truth(), self.export(run)), [])
        report = self.report(run)
        self.assert_no_loss(report)
        self.assertEqual(report["trust"]["batches_missing"], 0)
        self.assertEqual(report["trust"]["damaged_logs"], [])
        self.assertFalse(any(rank["cut_off"] for rank in report["ranks"]))
        return report

    def exact(self, report):
        """What does not depend on how much is read at once."""
        for rank in report["ranks"]:
            rank["wait"] = rank["wait"]["waited_ns"]
        self.assertGreater(sum(collective["compared_plans"] for collective in report["collectives"]), 0)
        return {part: report[part] for part in ("ranks", "collectives", "communicators", "top_kernels")}

    @hazard("the collector is killed and started again on the same directory", sees="no difference", counted="nothing is missing, nothing is there twice")
    def test_restarted_collector_goes_on_with_the_run(self):
        collector = Restarted(self)
        program = self.start(self.script(["kernels:30", "copies:5"], ["kernels:20"], ["kernels:10"]), env=self.probed(collector))
        self.await_ready(0)
        collector.kill()
        self.go(0)
        self.await_ready(1)
        collector.start_again()
        self.go(1)
        self.await_ready(2)
        collector.kill()
        collector.start_again()
        self.go(2)
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (9, b"end\n", b""))
        self.assertEqual(collector.stop().returncode, 0)
        report = self.assert_complete(collector.out)
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 60)
        self.assert_nothing_runs()

    @hazard("the collector is killed and another one records elsewhere", sees="no difference", counted="the second run has what the first one lacks, and says so")
    def test_collector_with_another_directory_records_the_rest(self):
        first = Restarted(self)
        program = self.start(self.script(["kernels:30"], ["kernels:20"]), env=self.probed(first))
        self.await_ready(0)
        harness.wait_until(lambda: self.captured(first.out) == 30, "30 kernels in the log")
        time.sleep(1.5)  # until the probe has heard that they are
        first.kill()
        second = self.path("second")
        collector = self.start([GPUPROBE, "collect", "--socket", first.socket, "--out", second])
        harness.wait_until(lambda: harness.answers(first.socket), "the second collector")
        self.go(0)
        self.await_ready(1)
        self.go(1)
        self.assertEqual(program.wait().returncode, 9)
        collector.signal(signal.SIGTERM)
        self.assertEqual(collector.wait().returncode, 0)
        report = self.report(second)
        self.assertEqual(report["ranks"][0]["kernels"]["count"] + self.report(first.out)["ranks"][0]["kernels"]["count"], 50)
        self.assertEqual(self.differences(self.truth(), self.export(first.out) + [r for r in self.export(second)]), [])
        self.assertGreater(report["trust"]["recorded_elsewhere"], 0)
        self.assert_no_loss(report)

    @hazard("the collector is killed and never started again", sees="exit takes at most about 0.2 s longer", counted="what the collector wrote is in the run; the report says that the collector ended before the program")
    def test_no_other_collector_comes(self):
        script = self.script(["kernels:30"], ["kernels:20"])
        for number in (0, 1):
            self.go(number)
        plain = self.run_program(script)
        for number in (0, 1):
            os.unlink(self.path(f"go-{number}"))
            os.unlink(self.path(f"ready-{number}"))
        collector = Restarted(self)
        program = self.start(script, env=self.probed(collector))
        self.await_ready(0)
        harness.wait_until(lambda: self.captured(collector.out) == 30, "30 kernels in the log")
        collector.kill()
        self.go(0)
        self.await_ready(1)
        begin = time.monotonic()
        self.go(1)
        self.assertEqual(program.wait().outcome, plain.outcome)
        self.assertLess(time.monotonic() - begin, 1.0, "exit was delayed")
        report = self.report(collector.out)
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 30)
        self.assert_collector_left(report)

    def assert_collector_left(self, report):
        """The report says that the collector ended first, and nothing of the program."""
        self.assertTrue(report["ranks"][0]["cut_off"])
        self.assertEqual([cut["by"] for cut in report["trust"]["cut_off"]], ["collector"])
        statement, = (finding["statement"] for finding in report["findings"] if finding["id"] == "rank-cut-off")
        self.assertEqual(statement, "The collector ended before 1 process did; later records are missing.")
        self.assertNotRegex(json.dumps(report["findings"]), "uncleanly|was killed by|crashed")

    @hazard("the collector is killed, the program ends meanwhile, and the collector is started again on the same directory", sees="no difference",
            counted="the report says that the collector ended before the program, not that the program failed")
    def test_the_program_ends_while_there_is_no_collector(self):
        collector = Restarted(self)
        program = self.start(self.script(["kernels:30"], ["kernels:20"]), env=self.probed(collector))
        self.await_ready(0)
        harness.wait_until(lambda: self.captured(collector.out) == 30, "30 kernels in the log")
        collector.kill()
        self.go(0)
        self.await_ready(1)
        self.go(1)
        self.assertEqual(program.wait().returncode, 9)
        collector.start_again()
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_collector_left(self.report(collector.out))
        self.assert_collector_left(harness.read_report(collector.out))

    @hazard("the collector is stopped (SIGTERM) before the program ends", sees="no difference", counted="the report says that the collector ended before the program")
    def test_the_collector_ends_in_order_before_the_program(self):
        collector = Restarted(self)
        program = self.start(self.script(["kernels:30"], ["kernels:20"]), env=self.probed(collector))
        self.await_ready(0)
        harness.wait_until(lambda: self.captured(collector.out) == 30, "30 kernels in the log")
        self.assertEqual(collector.stop().returncode, 0)
        self.go(0)
        self.await_ready(1)
        self.go(1)
        self.assertEqual(program.wait().returncode, 9)
        self.assert_collector_left(self.report(collector.out))
        self.assert_collector_left(harness.read_report(collector.out))

    def test_a_program_that_dies_is_not_confused_with_a_collector_that_does(self):
        """Its log says that the connection ended before the collector was killed."""
        collector = Restarted(self)
        program = self.start(self.script(["kernels:30"]), env=self.probed(collector))
        self.await_ready(0)
        harness.wait_until(lambda: self.captured(collector.out) == 30, "30 kernels in the log")
        program.signal(signal.SIGKILL)
        program.wait()
        harness.wait_until(lambda: [cut["by"] for cut in self.report(collector.out)["trust"]["cut_off"]] == ["process"], "note on the connection's end")
        collector.kill()
        report = self.report(collector.out)
        self.assertEqual([cut["by"] for cut in report["trust"]["cut_off"]], ["process"])
        self.assertIn("1 process exited uncleanly", json.dumps(report["findings"]))

    @hazard("the program's clock stands still (as under libfaketime), and its collector has died or is stopped", sees="ends, after at most GPUPROBE_EXIT_WAIT_MS",
            counted="what the collector had received is in the run")
    def test_clock_that_stands_still(self):
        for number, state in ((signal.SIGKILL, "dead"), (signal.SIGSTOP, "stopped"), (None, "well")):
            with self.subTest(collector=state):
                for name in ("go-0", "ready-0"):
                    if os.path.exists(self.path(name)):
                        os.unlink(self.path(name))
                collector = Restarted(self)
                env = self.probed(collector, LD_PRELOAD=FROZEN_CLOCK, GPUPROBE_EXIT_WAIT_MS=None if number else harness.PATIENT["GPUPROBE_EXIT_WAIT_MS"])
                program = self.start(self.script(["kernels:30"]), env=env)
                self.await_ready(0)
                harness.wait_until(lambda out=collector.out: self.captured(out) == 30, "30 kernels in the log: the probe's thread goes on")
                if number:
                    collector.program.signal(number)
                self.go(0)
                finished = program.wait(limit=40)  # it would never end
                self.assertEqual((finished.returncode, finished.stdout), (9, b"end\n"))
                if number == signal.SIGSTOP:
                    collector.program.signal(signal.SIGCONT)
                collector.stop()
                self.assertEqual(self.captured(collector.out), 30)

    def test_finished_run_is_refused(self):
        collector = Restarted(self)
        self.run_program([CUDA_SCRIPT, "kernels:3"], env=self.probed(collector))
        collector.stop()
        again = self.run_program([GPUPROBE, "collect", "--socket", collector.socket, "--out", collector.out])
        self.assertEqual(again.returncode, 1)
        self.assertIn(b"already holds a run", again.stderr)

    def test_run_that_is_being_recorded_is_refused(self):
        collector = Restarted(self)
        program = self.start(self.script(["kernels:3"]), env=self.probed(collector))
        self.await_ready(0)
        second = self.run_program([GPUPROBE, "collect", "--socket", self.path("other.sock"), "--out", collector.out])
        self.assertEqual(second.returncode, 1)
        self.assertIn(b"another collector", second.stderr)
        self.go(0)
        program.wait()
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_complete(collector.out)

    def test_run_whose_programs_are_over_gets_its_report(self):
        collector = Restarted(self)
        self.run_program([CUDA_SCRIPT, "kernels:25"], env=self.probed(collector))
        collector.kill()  # everything is on disk: the program waited for that
        self.assertFalse(os.path.exists(os.path.join(collector.out, "report.json")))
        collector.start_again()
        self.assertEqual(collector.stop().returncode, 0)
        self.assertTrue(os.path.exists(os.path.join(collector.out, "report.json")))
        self.assert_complete(collector.out)

    @hazard("an autostarted collector is killed", sees="no difference", counted="the program starts another one, which continues the run")
    def test_autostarted_collector_is_started_again(self):
        env = {"CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20", **harness.PATIENT}
        program = self.start(self.script(["kernels:30"], ["kernels:20"]), env=env)
        self.await_ready(0)
        lock = self.path("run", "gpuprobe", "collector.sock.lock")
        harness.wait_until(lambda: os.path.exists(lock) and harness.read_file(lock).strip(), "the collector")
        pid = int(harness.read_file(lock))
        harness.wait_until(lambda: os.path.isdir(self.path("cwd", "gpuprobe-runs")) and
                           self.captured(self.only_run_directory()) == 30, "30 kernels in the log")
        os.kill(pid, signal.SIGKILL)
        self.go(0)
        self.await_ready(1)
        harness.wait_until(lambda: harness.read_file(lock).strip() not in (b"", str(pid).encode()), "another collector")
        self.go(1)
        self.assertEqual(program.wait().returncode, 9)
        self.assert_nothing_runs()
        self.assert_complete(self.only_run_directory())

    def overheads(self, records):
        return sum(record["kind"] == "overhead" for record in records)

    @hazard("the collector is stopped (SIGSTOP) until the queue overflows", sees="no difference", counted="the records that the queue could not hold are counted as lost")
    def test_collector_that_stands_still_for_long(self):
        script = self.script(["kernels:100"], ["kernels:10000"] * 40, ["kernels:100"])
        for number in range(3):
            self.go(number)
        plain = Restarted(self)
        self.assertEqual(self.run_program(script, env=self.probed(plain, GPUPROBE_HOST_SAMPLES="0")).returncode, 9)
        self.assertEqual(plain.stop().returncode, 0)
        undisturbed = self.report(plain.out)["trust"]
        self.forget_truth()
        for number in range(3):
            os.unlink(self.path(f"go-{number}"))
            os.unlink(self.path(f"ready-{number}"))
        collector = Restarted(self)
        program = self.start(script, env=self.probed(collector, GPUPROBE_QUEUE_MIB="1", GPUPROBE_HOST_SAMPLES="0"))
        self.await_ready(0)
        collector.program.signal(signal.SIGSTOP)
        self.go(0)
        self.await_ready(1)
        time.sleep(2)  # nothing outside the program shows when its thread has put what it collects four times into the queue
        collector.program.signal(signal.SIGCONT)
        self.go(1)
        self.await_ready(2)
        self.go(2)
        self.assertEqual(program.wait().returncode, 9)
        self.assertEqual(collector.stop().returncode, 0)
        found = self.report(collector.out)["trust"]
        self.assertEqual(set(found["lost"]), {"send_queue_full"})
        # Overheads that were received are no records of the program; of what is lost, nobody can tell what it was.
        lost_overheads = self.overheads(self.truth()) - self.overheads(self.export(collector.out))
        self.assertEqual(found["records"] + found["lost"]["send_queue_full"] - lost_overheads, undisturbed["records"])

    @hazard("the collector is killed while the program exits", sees="exit takes at most about 0.2 s longer", counted="the run is complete, or the rank is marked as cut off")
    def test_collector_killed_while_the_program_exits(self):
        chance = random.Random(SEED)
        for _ in range(6):
            self.forget_truth()
            collector = Restarted(self)
            program = self.start([CUDA_SCRIPT, "kernels:500", "print:end", "return:9"], env=self.probed(collector))
            time.sleep(chance.uniform(0.0, 0.25))
            collector.kill()
            begin = time.monotonic()
            finished = program.wait()
            self.assertLess(time.monotonic() - begin, 3)
            self.assertEqual((finished.returncode, finished.stdout), (9, b"end\n"))
            collector.start_again()
            self.assertEqual(collector.stop().returncode, 0)
            if not os.path.exists(os.path.join(collector.out, "report.json")):
                continue  # it was not heard at all
            report = self.report(collector.out)
            rank = report["ranks"][0]
            self.assert_no_loss(report)
            self.assertTrue(rank["cut_off"] or rank["kernels"]["count"] == 500, rank)

    @hazard("the program is PID 1 of a container: its end kills the collector that runs beside it", sees="its exit waits until the report is written",
            counted="everything is recorded, and report.json is written")
    def test_program_that_is_the_first_process_of_its_namespace(self):
        container = ["unshare", "--pid", "--fork", "--kill-child"]
        if self.run_program([*container, "true"]).returncode != 0:
            self.skipTest("PID namespaces are not permitted here")
        run, socket = self.path("out"), self.path("collector.sock")
        entrypoint = f'"$0" collect --socket {socket} --out {run} >/dev/null 2>&1 & until [ -S {socket} ]; do sleep 0.05; done; exec "$@"'
        env = {"CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20", "GPUPROBE_SOCKET": socket, **harness.PATIENT}
        finished = self.run_program([*container, "sh", "-c", entrypoint, GPUPROBE, CUDA_SCRIPT, "kernels:50", "copies:3", "print:end", "return:9"], env=env)
        self.assertEqual((finished.returncode, finished.stdout), (9, b"end\n"), str(finished))
        self.assert_nothing_runs()
        self.assertTrue(os.path.exists(os.path.join(run, "report.json")), os.listdir(run))
        report = self.report(run)
        self.assertEqual(report["ranks"][0]["kernels"]["count"], 50)
        self.assertFalse(report["ranks"][0]["cut_off"])

    @hazard("the disk is full", sees="no difference", counted="the first line says how many batches are not on disk; the report is printed anyway")
    def test_disk_that_is_full(self):
        out = self.path("small")
        os.mkdir(out)
        mount = f"mount -t tmpfs -o size=8k none {out} && exec \"$@\""
        if self.run_program(["unshare", "-m", "sh", "-c", mount, "sh", "true"]).returncode != 0:
            self.skipTest("mounting is not permitted here")
        name = self.path("small.sock")
        collector = self.start(["unshare", "-m", "sh", "-c", mount, "sh", GPUPROBE, "collect", "--socket", name, "--out", out])
        harness.wait_until(lambda: harness.answers(name), "collector")
        env = {"GPUPROBE_SOCKET": name, "GPUPROBE_AUTOSTART": "0", **harness.PATIENT, "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_FLUSH_MS": "20"}
        plain = self.run_program([CUDA_SCRIPT, "kernels:20000", "print:end", "return:9"])
        finished = self.run_program([CUDA_SCRIPT, "kernels:20000", "print:end", "return:9"], env=env)
        self.assertEqual(finished.outcome, plain.outcome)
        collector.signal(signal.SIGTERM)
        ended = collector.wait()
        self.assertEqual(ended.returncode, 1, str(ended))
        self.assertRegex(ended.stdout.splitlines()[0], rb"0 records lost, \d+ batch(es)? NOT WRITTEN")
        self.assertIn(b"ScriptKernel", ended.stdout)
        self.assertIn(b"could not save the report", ended.stderr)

    @hazard("the collector is killed at random, over and over, under four ranks", sees="output and status unchanged",
            counted="records in the report plus counted losses equal what happened, exactly")
    def test_collector_killed_at_random_under_four_ranks(self):
        print(f"seed {SEED}, {KILLS} kills", flush=True)
        chance = random.Random(SEED)
        stop = self.path("stop")
        command = [harness.LAUNCH_RANKS, "4", harness.BUILD + "/tests/e2e/steady_ranks", stop]
        with open(stop, "w", encoding="utf-8"):
            pass
        plain = self.run_well(command, devices=4)
        os.unlink(stop)
        os.unlink(stop + ".at")
        self.forget_truth()
        collector = Restarted(self, rolls_up=True)
        program = self.start(command, devices=4, env=self.probed(collector))
        harness.wait_until(lambda: self.captured(collector.out) > 0, "records in the log")
        for _ in range(KILLS):
            time.sleep(chance.choice((chance.uniform(0, 0.3), chance.uniform(0, 1.5))))
            collector.kill()
            time.sleep(chance.choice((0, chance.uniform(0, 0.5))))
            collector.start_again()
        self.assertTrue(program.alive(), "it was to work until it is told to stop")
        with open(stop, "w", encoding="utf-8"):
            pass
        finished = program.wait()
        self.assertEqual(finished.outcome, plain.outcome, str(finished))
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        report = self.assert_complete(collector.out)
        print(f"{report['trust']['records']} records", flush=True)
        # Its roll-ups lack nothing, and have nothing twice. Who waited in which step is counted while the last 512 steps are known, and a
        # collector that lives for half a second rolls up more at once than others compare in that time.
        self.assertEqual(self.exact(self.report(os.path.join(collector.out, "roll-up"))), self.exact(report))


if __name__ == "__main__":
    harness.main()
