"""Bad input, each with its message and exit code: what people mistype, what disks do to files, what strangers say on the socket."""
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time

import harness
import truth
import wire
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard


class CommandLine(harness.EndToEndTest):

    def refused(self, *arguments, says, code=2):
        finished = self.run_program([GPUPROBE, *arguments])
        self.assertEqual(finished.returncode, code, str(finished))
        for text in says if isinstance(says, tuple) else (says,):
            self.assertIn(text, finished.stderr.decode(), str(finished))
        self.assertEqual(finished.stdout, b"", "errors belong on standard error")

    def test_unknown_subcommand(self):
        self.refused("frobnicate", says="frobnicate")

    def test_unknown_option(self):
        self.refused("report", "--frobnicate", self.cwd, says="--frobnicate")

    def test_run_without_a_program(self):
        self.refused("run", says="run")
        self.refused("run", "--", says="run")

    def test_report_without_a_directory(self):
        self.refused("report", says="there is no run under gpuprobe-runs here", code=1)

    def test_run_directory_that_is_not_there(self):
        self.refused("report", self.path("nowhere"), says=self.path("nowhere"), code=1)

    def test_run_directory_that_is_not_one(self):
        self.refused("report", self.cwd, says=self.cwd, code=1)
        self.refused("export", self.cwd, "--format", "jsonl", says=self.cwd, code=1)

    def test_unknown_export_format(self):
        self.refused("export", self.cwd, "--format", "xml", says="xml")

    def test_unwritable_out(self):
        self.refused("collect", "--socket", self.path("s.sock"), "--out", "/dev/null/out", says="/dev/null/out", code=1)

    def test_socket_that_is_too_long_for_the_library(self):
        """Said, and the program goes on."""
        for loading in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
            finished = self.run_well([harness.VECTOR_ADD], env={loading: harness.LIBRARY, "GPUPROBE_SOCKET": "/tmp/" + "x" * 200})
            self.assertEqual(finished.stderr.count(b"GPUPROBE_SOCKET is too long"), 1, str(finished))

    def test_socket_that_cannot_be_bound(self):
        self.refused("collect", "--socket", "/dev/null/s.sock", "--out", self.path("out"), says="/dev/null", code=1)

    def test_second_collector_on_a_socket(self):
        first = harness.Collector(self)
        finished = self.run_program([GPUPROBE, "collect", "--socket", first.socket, "--out", self.path("second")])
        self.assertEqual(finished.returncode, 1, str(finished))
        self.assertIn(str(first.program.pid), finished.stderr.decode())
        self.assertTrue(harness.answers(first.socket), "the first goes on")
        self.assertEqual(first.stop().returncode, 0)

    def test_stale_socket_is_taken_over(self):
        first = harness.Collector(self)
        first.stop(9)
        self.assertTrue(os.path.exists(first.socket))
        second = self.start([GPUPROBE, "collect", "--socket", first.socket, "--out", self.path("second")])
        harness.wait_until(lambda: harness.answers(first.socket) or not second.alive(), "second collector")
        self.run_well([VECTOR_ADD], env={**first.env(), "CUDA_INJECTION64_PATH": LIBRARY})
        second.signal(15)
        self.assertEqual(second.wait().returncode, 0)
        self.assertEqual(len(self.report(self.path("second"))["ranks"]), 1)


class DamagedLog(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.out = self.path("out")
        self.run_well([GPUPROBE, "run", "--out", self.out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, env=PATIENT)
        self.logs = sorted(glob.glob(os.path.join(self.out, "*.gpr")))
        self.assertTrue(self.logs, f"no logs in {os.listdir(self.out)}")
        self.intact = self.export(self.out)

    def damage(self, change):
        """Applies `change` to the bytes of the largest log, and returns its path."""
        log = max(self.logs, key=os.path.getsize)
        with open(log, "rb") as file:
            data = bytearray(file.read())
        with open(log, "wb") as file:
            file.write(change(data))
        return log

    def check(self, log):
        """The damage is named, the other rank is whole, and of this one what came before."""
        for command in (["report", self.out], ["report", self.out, "--json"], ["export", self.out, "--format", "jsonl"]):
            finished = self.run_program([GPUPROBE, *command])
            self.assertEqual(finished.returncode, 0, str(finished))
            self.assertIn(os.path.basename(log), finished.stderr.decode())
            self.assertIn("damaged", finished.stderr.decode())
        kept = self.export(self.out)
        self.assertLess(len(kept), len(self.intact))
        intact = {truth.frozen(record, sorted(record)) for record in self.intact if record["kind"] == "kernel"}
        found = {truth.frozen(record, sorted(record)) for record in kept if record["kind"] == "kernel"}
        self.assertLessEqual(found, intact, "damage may hide records, never invent them")
        return kept

    def test_truncated(self):
        self.check(self.damage(lambda data: data[:len(data) * 2 // 3]))

    def test_truncated_to_nothing(self):
        log = self.damage(lambda data: b"")
        finished = self.run_program([GPUPROBE, "report", self.out])
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertIn(os.path.basename(log), finished.stderr.decode())

    def test_one_wrong_byte(self):
        def flip(data):
            data[len(data) // 2] ^= 0x55
            return data
        self.check(self.damage(flip))

    def test_overwritten_with_noise(self):
        def noise(data):
            middle = len(data) // 2
            data[middle:] = bytes((i * 7919 + 13) % 251 for i in range(len(data) - middle))
            return data
        self.check(self.damage(noise))

    def test_replaced_by_text(self):
        log = self.damage(lambda data: b"this is not a log\n" * 100)
        finished = self.run_program([GPUPROBE, "report", self.out])
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertIn(os.path.basename(log), finished.stderr.decode())

    def test_log_alone(self):
        """The summaries are made again from the log when they are gone."""
        shutil.copytree(self.out, self.path("copy"))
        for name in os.listdir(self.path("copy")):
            if not name.endswith(".gpr"):
                os.unlink(self.path("copy", name))
        self.assertEqual(len(self.report(self.path("copy"))["ranks"]), 2)


class LogCutOffWhileItIsRead(harness.EndToEndTest):
    """Somebody else may write the files, too: a reader that maps them must not die of it."""

    def setUp(self):
        super().setUp()
        collector = harness.Collector(self)
        self.run_well([harness.CUDA_SCRIPT, "kernels:60000"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
        self.assertEqual(collector.stop().returncode, 0)
        self.whole = collector.out

    def copy(self):
        out = tempfile.mkdtemp(dir=self.folder)
        for name in os.listdir(self.whole):
            if not os.path.isdir(os.path.join(self.whole, name)):
                shutil.copy(os.path.join(self.whole, name), out)
        return out, glob.glob(os.path.join(out, "*.gpr"))[0]

    def check(self, finished):
        self.assertGreaterEqual(finished.returncode, 0, f"died by a signal, having said {finished.stderr}")
        if finished.stderr:
            self.assertRegex(finished.stderr.decode(), r"is damaged after .* \((became shorter while it was read|cut off) at byte")

    @hazard("a log is cut off while `gpuprobe export` reads it", sees="not applicable: it has ended", counted="everything before the cut is printed; one line names the file and where it ends")
    def test_export(self):
        out, log = self.copy()
        read_end, write_end = os.pipe()
        program = subprocess.Popen([GPUPROBE, "export", out, "--format", "jsonl"], env=self.env(), stdout=write_end, stderr=subprocess.PIPE)
        os.close(write_end)
        with open(read_end, "rb") as output:
            output.readline()
            os.truncate(log, 5000)  # it is waiting for us to read on, in the middle of the log
            rest = output.read()
        errors = program.communicate(timeout=harness.LIMIT_S)[1]
        self.check(harness.Finished(program.args, program.returncode, rest, errors))
        self.assertIn(b"became shorter while it was read", errors)
        self.assertLess(rest.count(b"\n"), 60000)

    @hazard("a log is cut off while `gpuprobe report` reads it", sees="not applicable: it has ended", counted="everything before the cut is reported; one line names the file and where it ends")
    def test_report(self):
        for delay_ms in (8, 16, 24, 32, 48, 64):
            out, log = self.copy()
            program = self.start([GPUPROBE, "report", out])
            time.sleep(delay_ms / 1000)
            program.signal(signal.SIGSTOP)
            os.truncate(log, 5000)
            program.signal(signal.SIGCONT)
            self.check(program.wait())


class Strangers(harness.EndToEndTest):
    """A bad client costs that client only."""

    def setUp(self):
        super().setUp()
        self.collector = harness.Collector(self)

    def check_others_go_on(self):
        self.run_well([VECTOR_ADD], env={**self.collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
        finished = self.collector.stop()
        self.assertEqual(finished.returncode, 0, str(finished))
        report = self.report(self.collector.out)
        with_kernels = [rank for rank in report["ranks"] if rank["kernels"]["count"]]
        self.assertEqual(len(with_kernels), 1)
        self.assertEqual(with_kernels[0]["kernels"]["count"], 10)
        return finished

    def send(self, data):
        with wire.connect(self.collector.socket) as connection:
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            return wire.read_until_closed(connection)

    def test_newer_major_version(self):
        answer = wire.refusal(self.send(wire.delimited(wire.hello(major=7))))
        self.assertIsNotNone(answer, "refused without a word")
        self.assertIn("7", answer)
        self.assertIn(str(wire.PROTOCOL_MAJOR), answer)
        self.check_others_go_on()

    def test_newer_minor_version_with_unknown_fields(self):
        with wire.connect(self.collector.socket) as connection:
            unknown = wire.block(900, b"from the future") + wire.number(901, 12345)
            connection.sendall(wire.delimited(wire.hello(minor=99, pid=777) + unknown))
            bye = wire.block(3, wire.number(1, 1) + wire.block(2, wire.clock()) + wire.block(900, b"more"))
            connection.sendall(wire.delimited(bye))
        self.check_others_go_on()
        self.assertIn(777, [rank["pid"] for rank in self.report(self.collector.out)["ranks"]])

    def test_garbage(self):
        self.send(bytes((i * 7919 + 13) % 251 for i in range(100000)))
        self.check_others_go_on()

    def test_http(self):
        """Its first byte claims a frame of 71 bytes."""
        self.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: something/1.0\r\n\r\n")
        self.check_others_go_on()

    def test_frame_of_4_gib(self):
        before = self.collector_memory_kib()
        self.send(wire.varint(4 << 30) + b"x" * 1000)
        self.assertLess(self.collector_memory_kib(), before + (64 << 10), "memory was reserved for a claim")
        self.check_others_go_on()

    def test_batch_before_hello(self):
        self.send(wire.delimited(wire.block(2, wire.number(1, 1))))
        self.check_others_go_on()

    def test_columns_of_unequal_length(self):
        kernels = wire.block(1, wire.varint(2) * 3) + wire.block(2, wire.varint(5) * 2) + wire.block(3, wire.varint(1) * 3)
        self.send(wire.delimited(wire.hello(pid=778)) + wire.delimited(wire.block(2, wire.number(1, 1) + wire.block(9, kernels))))
        self.check_others_go_on()

    def test_client_that_says_half_a_frame_and_goes(self):
        with wire.connect(self.collector.socket) as connection:
            connection.sendall(wire.delimited(wire.hello())[:10])
        self.check_others_go_on()

    def test_client_that_says_nothing(self):
        with wire.connect(self.collector.socket):
            self.check_others_go_on()

    def collector_memory_kib(self):
        for line in harness.read_proc(self.collector.program.pid, "status").decode().splitlines():
            if line.startswith("VmSize:"):
                return int(line.split()[1])
        raise AssertionError("the collector has no VmSize: it has ended")


if __name__ == "__main__":
    harness.main()
