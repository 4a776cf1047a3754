"""Another user of the machine tampers with the directory that a run is recorded in: nothing is written into the victim's own files."""
import os
import signal
import stat
import time
import unittest

import harness
import wire
from harness import GPUPROBE, wait_until
from hazards import hazard

VICTIM, ATTACKER, PROJECT = 12346, 12345, 4711
FILES = ("report.json", "ranks.json", "summary.json", "report.html", "live.json", "settings.txt", "rank-0.gpr")


class RunDirectoryAttacks(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root: it acts as two users")
        os.chmod(self.folder, 0o755)
        self.program = harness.shutil.copy(GPUPROBE, self.path("gpuprobe"))
        os.chmod(self.program, 0o755)
        self.home = self.folder_of(VICTIM, "victim", 0o700)
        self.runs = 0

    def folder_of(self, uid, name, mode, group=None):
        path = self.path(name)
        os.mkdir(path)
        os.chown(path, uid, uid if group is None else group)
        os.chmod(path, mode)
        return path

    def collect(self, out):
        """A collector of the victim's, which shares the project's group with the attacker."""
        socket = os.path.join(self.home, f"{self.runs}.sock")
        self.runs += 1
        program = harness.Running([self.program, "collect", "--socket", socket, "--out", out, "--step-marker", "nvtx:step"],
                                  self.env(), self.home, self.folder, user=VICTIM, group=PROJECT)
        self._programs.append(program)
        wait_until(lambda: harness.answers(socket) or not program.alive(), "collector")
        return program, socket

    def record(self, socket):
        with wire.connect(socket) as connection:
            connection.sendall(wire.delimited(wire.hello()))
            time.sleep(0.05)
            connection.sendall(wire.delimited(wire.block(3, wire.number(1, 1) + wire.block(2, wire.clock()))))

    def assert_home_untouched(self, before):
        for name, content in before.items():
            with open(os.path.join(self.home, name), encoding="utf-8") as file:
                self.assertEqual(file.read(), content, name)
        others = [name for name in os.listdir(self.home) if name not in before and not name.endswith((".sock", ".lock"))]
        self.assertEqual(others, [], "written into the victim's home")

    def precious_files(self):
        before = {}
        for name in FILES:
            for suffix in ("", ".tmp"):
                before[name + suffix] = "precious"
                with open(os.path.join(self.home, name + suffix), "w", encoding="utf-8") as file:
                    file.write("precious")
                os.chown(os.path.join(self.home, name + suffix), VICTIM, VICTIM)
        return before

    @hazard("another user replaces the run directory with a symbolic link during recording",
            sees="no difference", counted="the run is complete in the directory that was opened; nothing is written elsewhere")
    def test_exchanged_while_it_is_recorded(self):
        before = self.precious_files()
        shared = self.folder_of(ATTACKER, "shared", 0o2770, PROJECT)
        out = os.path.join(shared, "run")
        collector, socket = self.collect(out)
        self.assertTrue(collector.alive(), str(collector.finished()))
        os.rename(out, os.path.join(shared, "moved"))  # as the owner of the folder may
        os.symlink(self.home, out)
        self.record(socket)
        collector.signal(signal.SIGTERM)
        self.assertEqual(collector.wait().returncode, 0, str(collector.finished()))
        self.assert_home_untouched(before)
        self.assertLessEqual({"report.json", "report.html", "settings.txt"}, set(os.listdir(os.path.join(shared, "moved"))))

    @hazard("symbolic links are planted in the run directory under the names of the collector's files",
            sees="no difference", counted="they are replaced or avoided, never written through")
    def test_links_planted_in_the_directory(self):
        before = self.precious_files()
        out = self.folder_of(VICTIM, "out", 0o2770, PROJECT)
        collector, socket = self.collect(out)
        self.assertTrue(collector.alive(), str(collector.finished()))
        for name in before:
            if not name.endswith(".gpr"):
                os.symlink(os.path.join(self.home, name), os.path.join(out, name))
        self.record(socket)
        collector.signal(signal.SIGTERM)
        self.assertEqual(collector.wait().returncode, 0, str(collector.finished()))
        self.assert_home_untouched(before)
        self.assertTrue(stat.S_ISREG(os.lstat(os.path.join(out, "report.json")).st_mode))

    @hazard("the run directory's parent is writable by every user, or belongs to another user",
            sees="the command is refused before it starts, in one line with a remedy", counted="nothing is recorded")
    def test_places_that_somebody_else_controls_are_refused(self):
        for name, uid, mode in (("open", VICTIM, 0o777), ("theirs", ATTACKER, 0o1777)):
            with self.subTest(name):
                folder = self.folder_of(uid, name, mode)
                collector, _ = self.collect(os.path.join(folder, "run"))
                refused = collector.wait()
                self.assertEqual(refused.returncode, 1, str(refused))
                self.assertRegex(refused.stderr.decode(), r"^gpuprobe: collect: .*--out\n$")
                self.assertEqual(os.listdir(folder), [])

    @hazard("a run directory from somebody else contains pipes and links instead of files",
            sees="no difference", counted="files that are not regular are named; reading never waits")
    def test_a_hostile_run_directory_is_read_without_waiting(self):
        hostile = self.folder_of(0, "hostile", 0o755)
        for name in ("rank-0.gpr", "settings.txt", "live.json", "totals-0002.gpt"):
            os.mkfifo(os.path.join(hostile, name))
        for command in (["report", hostile], ["export", hostile], ["top", hostile, "--once"], ["diff", hostile, hostile]):
            with self.subTest(command[0]):
                finished = self.run_program([GPUPROBE, *command], limit=20)
                self.assertEqual(finished.returncode, 1, str(finished))
                self.assertEqual(len(finished.stderr.splitlines()), 1, str(finished))


if __name__ == "__main__":
    harness.main()
