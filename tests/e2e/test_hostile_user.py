"""One hostile user against `gpuprobe collect --node`: another user's run is complete, and the collector stays small and comes to rest.

GPUPROBE_HOSTILE_SECONDS=60 makes it last as long as it should be run by hand; the test suite attacks for a few seconds.
"""
import contextlib
import json
import os
import shutil
import sys
import time
import unittest

import harness
import wire
from harness import GPUPROBE, LIBRARY, SIM_LIB, VECTOR_ADD, wait_until
from hazards import hazard

VICTIM, ATTACKER = 12346, 12345
SECONDS = float(os.environ.get("GPUPROBE_HOSTILE_SECONDS", "6"))
MEMORY_MIB, DISK_MIB = 256, 256


@unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as two users")
class HostileUser(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("node"))
        self.socket = self.path("node", "gpuprobe-node.sock")
        self.base = self.path("runs")
        self.collector = self.start([GPUPROBE, "collect", "--node", "--socket", self.socket, "--out", self.base, "--keep", "64MiB",
                                     "--user-disk", f"{DISK_MIB}MiB", "--user-memory", "96MiB"])
        wait_until(lambda: b"collecting for all users" in self.collector.so_far(), "collector")

    def processes(self):
        return [pid for pid in harness.all_pids() if b"--node" in (line := harness.read_proc(pid, "cmdline")) and self.socket.encode() in line]

    def memory_mib(self):
        """All processes of the collector together."""
        kib = 0
        for pid in self.processes():
            for line in harness.read_proc(pid, "smaps_rollup").splitlines():
                kib += int(line.split()[1]) if line.startswith(b"Pss:") else 0
        return kib / 1024

    def disk_mib(self, uid):
        used = 0
        for folder, _, files in os.walk(os.path.join(self.base, str(uid))):
            for name in files:
                try:
                    used += os.lstat(os.path.join(folder, name)).st_blocks * 512
                except FileNotFoundError:
                    pass
        return used / (1 << 20)

    def cpu_s(self):
        ticks = 0
        for pid in self.processes():
            fields = harness.read_proc(pid, "stat").rpartition(b")")[2].split()
            ticks += int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0
        return ticks / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.processes())

    def start_victim(self):
        """Trains for as long as the attack lasts."""
        place = self.path("installed")
        os.mkdir(place)
        for source in (VECTOR_ADD, LIBRARY):
            shutil.copy(source, place)
        shutil.copytree(SIM_LIB, os.path.join(place, "sim"), symlinks=True)
        own = self.path("victim")
        os.mkdir(own)
        os.chown(own, VICTIM, VICTIM)
        env = self.env({"GPUPROBE_SOCKET": self.socket, "GPUPROBE_AUTOSTART": "0", "CUDA_INJECTION64_PATH": os.path.join(place, "libgpuprobe.so"),
                        "GPUSIM_TRUTH": os.path.join(own, "truth"), "HOME": own, "TMPDIR": own, "XDG_RUNTIME_DIR": own, "GPUPROBE_VERBOSE": "1",
                        "GPUSIM_KERNELS": ".*=2ms", **harness.PATIENT}, sim_lib=os.path.join(place, "sim"))
        program = harness.Running([os.path.join(place, "vector_add"), f"--rounds={int(SECONDS * 450)}"], env, own, self.folder, user=VICTIM, group=VICTIM)
        self._programs.append(program)
        return program

    def truth_of(self, folder):
        records = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        return records

    @hazard("one user of a shared node attacks its collector: unfinished frames, huge Hellos, thousands of connections, runs without end",
            sees="another user's program sees no difference; the hostile one is refused", counted="the other user's run is complete; memory, disk and descriptors stay bounded")
    def test_another_users_run_is_complete_and_the_collector_comes_to_rest(self):
        quiet_descriptors, quiet_mib = self.descriptors(), self.memory_mib()
        here = os.path.dirname(os.path.abspath(__file__))
        for source in ("wire.py", os.path.join("programs", "hostile_user.py")):
            shutil.copy(os.path.join(here, source), self.folder)  # the attacker may not be able to read the source tree, or its interpreter
        python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
        attacker = harness.Running([python, "-B", self.path("hostile_user.py"), self.socket, str(SECONDS)],
                                   self.env(), "/", self.folder, user=ATTACKER, group=ATTACKER)
        self._programs.append(attacker)
        time.sleep(0.5)
        victim = self.start_victim()
        most_mib, most_disk, most_processes = 0, 0, 0
        while attacker.alive():
            most_mib = max(most_mib, self.memory_mib())
            most_disk = max(most_disk, self.disk_mib(ATTACKER))
            most_processes = max(most_processes, len(self.processes()))
            time.sleep(0.1)
        ended = attacker.finished()
        self.assertEqual(ended.returncode, 0, str(ended))
        rest_from = time.monotonic()
        cpu_attack = self.cpu_s()
        self.assertEqual(victim.wait().returncode, 0, str(victim.finished()))
        home = os.path.join(self.base, str(VICTIM))
        [run] = wait_until(lambda: [os.path.join(home, name) for name in (os.listdir(home) if os.path.isdir(home) else [])
                                    if os.path.exists(os.path.join(home, name, "report.html"))], "the other user's run", limit=20)
        self.assertEqual(self.differences(self.truth_of(self.path("victim", "truth")), self.export(run)), [], victim.finished())
        self.assert_no_loss(self.report(run))

        wait_until(lambda: len(self.processes()) == 1, "rest: only the collector itself", limit=10 + max(0, SECONDS - (time.monotonic() - rest_from)))
        rest_s = time.monotonic() - rest_from
        self.assertLess(rest_s, 15)
        wait_until(lambda: self.descriptors() == quiet_descriptors, "rest of the descriptors", limit=2)
        before = self.cpu_s()
        time.sleep(1)
        busy = self.cpu_s() - before
        print(f"{SECONDS:.0f} s: {ended.stdout.decode().strip()}; at most {most_mib:.0f} MiB in {most_processes} processes, {most_disk:.0f} MiB on disk, "
              f"{cpu_attack:.1f} s of CPU; at rest after {rest_s:.1f} s with {self.memory_mib():.0f} MiB (before: {quiet_mib:.0f}) and {busy * 100:.0f} % CPU", file=sys.stderr)
        self.assertLess(most_mib, MEMORY_MIB)
        self.assertLess(most_disk, DISK_MIB)
        self.assertLess(busy, 0.1)
        self.assertLess(self.memory_mib(), quiet_mib + 20)
        said = self.collector.so_far().decode()
        self.assertLess(len(said.splitlines()), 100 + SECONDS * 5, "warnings are not rate-limited")
        self.stop()

    def test_more_connections_than_a_user_may_have_are_refused_in_words(self):
        held = []
        refused = None
        while refused is None and len(held) < 1500:
            connection = wire.connect_as(ATTACKER, self.socket)
            if len(held) < 1024:
                connection.sendall(wire.delimited(wire.hello(pid=len(held) + 1, run="one")))
            else:
                refused = wire.refusal(wire.read_until_closed(connection))
            held.append(connection)
        self.assertIn("connections to this node's collector already", refused or "")
        with wire.connect_as(VICTIM, self.socket) as other:
            other.sendall(wire.delimited(wire.hello()) + wire.delimited(wire.bye()))
            self.assertIsNone(wire.refusal(wire.read_some(other, 0.3)))
        held.pop().close()
        held.pop().close()
        def is_taken():
            with wire.connect_as(ATTACKER, self.socket) as connection:
                with contextlib.suppress(BrokenPipeError):  # refused before Hello was sent
                    connection.sendall(wire.delimited(wire.hello(pid=2000, run="one")))
                return wire.refusal(connection.recv(65536)) is None
        wait_until(is_taken, "place for another connection", limit=20)
        for connection in held:
            connection.close()
        self.stop()

    def stop(self):
        self.collector.signal(15)
        self.assertEqual(self.collector.wait().returncode, 0)

    @hazard("a user's runs fill the disk space that the operator allows", sees="one line: refused, with the advice to remove old runs", counted="finished runs are kept; new ones are refused")
    def test_a_full_share_of_the_disk_refuses_new_runs_in_words(self):
        def record(name, read=lambda connection: wire.read_some(connection, 0.3)):
            with wire.connect_as(ATTACKER, self.socket) as connection:
                connection.sendall(wire.delimited(wire.hello(run=name)) + wire.delimited(wire.bye()))
                return wire.refusal(read(connection))
        self.assertIsNone(record("one"))
        home = os.path.join(self.base, str(ATTACKER))
        [run] = wait_until(lambda: os.listdir(home), "run")
        with open(os.path.join(home, run, "more"), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (DISK_MIB - 8) << 20)
        wait_until(lambda: os.path.exists(os.path.join(home, run, "report.html")), "report")
        self.assertRegex(record("two", wire.read_until_closed) or "", r"has reached this node's limit for one user \(256 MiB\); remove old runs")
        self.assertEqual(os.listdir(home), [run], "nothing is deleted")
        os.unlink(os.path.join(home, run, "more"))
        self.assertIsNone(record("three"))
        self.stop()


if __name__ == "__main__":
    harness.main()
