"""Another user of the machine tampers with the directory that a run is recorded in: nothing is written into the victim's own files."""
import multiprocessing
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
        os.chmod(harness.shutil.copy(harness.LIBRARY, self.path("libgpuprobe.so")), 0o755)
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

    def as_victim(self, *arguments, cwd, limit=60):
        program = harness.Running([self.program, *arguments], self.env(), cwd, self.folder, user=VICTIM, group=PROJECT)
        self._programs.append(program)
        return program.wait(limit)

    def as_attacker(self, action):
        """In a child, as the attacker, who shares the project's group."""
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setresgid(PROJECT, PROJECT, PROJECT)
                os.setresuid(ATTACKER, ATTACKER, ATTACKER)
                action()
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

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

    def shared_folders(self):
        """Where others may make entries beside the victim's: everybody in a sticky folder, and the group in a project's."""
        return (self.folder_of(0, "sticky", 0o1777), self.folder_of(0, "project", 0o2770, PROJECT))

    @hazard("another user has planted a symbolic link `gpuprobe-runs`, or another one on the way to --out, in a shared folder",
            sees="`run` and `collect` are refused before the program starts, in one line that names the link",
            counted="nothing is written where the link leads")
    def test_planted_links_on_the_way_are_not_followed(self):
        before = self.precious_files()
        for folder in self.shared_folders():
            self.as_attacker(lambda folder=folder: os.symlink(self.home, os.path.join(folder, "gpuprobe-runs")))
            for command in (["run", "--", "touch", self.path("started")], ["run", "--out", "gpuprobe-runs/x/y", "--", "touch", self.path("started")],
                            ["run", "--out", os.path.join(folder, "gpuprobe-runs", "x"), "--", "touch", self.path("started")],
                            ["run", "--out", "gpuprobe-runs", "--", "touch", self.path("started")],
                            ["collect", "--socket", os.path.join(self.home, "c.sock")], ["collect", "--socket", os.path.join(self.home, "c.sock"), "--out", "gpuprobe-runs/x"]):
                with self.subTest(folder=folder, command=command):
                    refused = self.as_victim(*command, cwd=folder)
                    self.assertEqual(refused.returncode, 125 if command[0] == "run" else 1, str(refused))
                    self.assertRegex(refused.stderr.decode(), r"^gpuprobe: .*gpuprobe-runs is a symbolic link.*\n$")
                    self.assertFalse(os.path.exists(self.path("started")), "the program must not run when its record has no place")
            self.assert_home_untouched(before)

    @hazard("a program starts its own collector in a folder where another user has planted a symbolic link `gpuprobe-runs`",
            sees="no difference", counted="the run is recorded in `/tmp/gpuprobe-$UID`; nothing is written where the link leads")
    def test_planted_links_and_an_autostarted_collector(self):
        before = self.precious_files()
        fallback = f"/tmp/gpuprobe-{VICTIM}"
        self.addCleanup(harness.shutil.rmtree, fallback, ignore_errors=True)
        for number, folder in enumerate(self.shared_folders()):
            self.as_attacker(lambda folder=folder: os.symlink(self.home, os.path.join(folder, "gpuprobe-runs")))
            socket = os.path.join(self.home, "auto.sock")
            program = harness.Running([self.program, "collect", "--autostarted", "--socket", socket], self.env(), folder, self.folder, user=VICTIM, group=PROJECT)
            self._programs.append(program)
            wait_until(lambda: harness.answers(socket), "collector")
            recording = multiprocessing.Process(target=self.record, args=(socket,))  # an autostarted collector refuses its parent
            recording.start()
            recording.join()
            self.assertEqual(program.wait().returncode, 0, str(program.finished()))
            self.assert_home_untouched(before)
            runs = [name for name in os.listdir(fallback) if os.path.isdir(os.path.join(fallback, name))]
            self.assertEqual(len(runs), number + 1, runs)

    def test_own_links_are_followed(self):
        folder = self.folder_of(0, "project", 0o2770, PROJECT)
        runs = self.folder_of(VICTIM, "victims-runs", 0o700)
        os.symlink(runs, os.path.join(folder, "gpuprobe-runs"))
        os.lchown(os.path.join(folder, "gpuprobe-runs"), VICTIM, PROJECT)
        os.symlink("gpuprobe-runs", os.path.join(folder, "roots"))
        for out in ("gpuprobe-runs/a", "gpuprobe-runs/../victims-runs/b", "roots/c"):
            collector, socket = self.collect(os.path.join(folder, out))
            self.assertTrue(collector.alive(), str(collector.finished()))
            self.record(socket)
            collector.signal(signal.SIGTERM)
            self.assertEqual(collector.wait().returncode, 0, str(collector.finished()))
        self.assertEqual(sorted(os.listdir(runs)), ["a", "b", "c"])

    @hazard("another user has planted symbolic links under the names of files that `trace` and `export` are to write", sees="no difference",
            counted="the command is refused in one line that names the link")
    def test_planted_links_under_output_files(self):
        before = self.precious_files()
        run = os.path.join(self.folder_of(VICTIM, "own", 0o700), "run")
        collector, socket = self.collect(run)
        self.record(socket)
        collector.signal(signal.SIGTERM)
        self.assertEqual(collector.wait().returncode, 0, str(collector.finished()))
        for folder in self.shared_folders():
            def plant(folder=folder):
                os.symlink(os.path.join(self.home, "report.json"), os.path.join(folder, "trace"))
                os.symlink(os.path.join(self.home, "new.db"), os.path.join(folder, "db"))
                os.symlink(self.home, os.path.join(folder, "tables"))
            self.as_attacker(plant)
            for command in (["trace", run, "-o", "trace"], ["trace", run, "--format", "chrome", "-o", "tables"], ["trace", run, "-o", "tables/t"],
                            ["export", run, "--format", "sqlite", "-o", "db"], ["export", run, "--format", "sqlite", "-o", "tables/db"],
                            ["export", run, "--format", "csv", "-o", "tables"]):
                with self.subTest(folder=folder, command=command):
                    refused = self.as_victim(*command, cwd=folder)
                    self.assertEqual(refused.returncode, 1, str(refused))
                    self.assertRegex(refused.stderr.decode(), r"^gpuprobe: .*(trace|db|tables)\b.*\n$")
            self.assert_home_untouched(before)

    @hazard("root records in a user's folder in which the user has made a symbolic link into a folder of root's", sees="the command is refused before it starts",
            counted="one line names the link; root writes nothing where it leads")
    def test_root_does_not_follow_a_users_link(self):
        folder = self.folder_of(VICTIM, "users", 0o755)
        target = self.folder_of(0, "roots", 0o755)
        for name in ("gpuprobe-runs", "o"):
            os.symlink(target, os.path.join(folder, name))
            os.lchown(os.path.join(folder, name), VICTIM, VICTIM)
        for arguments in ([], ["--out", "o/x"], ["--out", "o"], ["--out", "gpuprobe-runs/x/y"]):
            finished = self.run_program([GPUPROBE, "run", *arguments, "--", "true"], cwd=folder)
            self.assertEqual(finished.returncode, 125, str(finished))
        self.assertEqual(os.listdir(target), [])

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
