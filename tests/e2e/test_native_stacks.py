"""`gpuprobe stacks --native` names the native functions that threads are in, with Python's between them, and the programs notice nothing."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, wait_until
from test_stacks import PROGRAMS, PYTHONS

PROGRAM = os.path.join(BUILD, "tests", "e2e", "native_stacks")
LIBRARY = os.path.join(BUILD, "tests", "e2e", "libnative_library.so")
MODULE = os.path.join(BUILD, "tests", "e2e", "cuda_module.so")
SCRIPT = os.path.join(PROGRAMS, "native_stacks.py")
TIMES = 10
PTRACE_SEIZE = 0x4206


def line_of(source, text):
    """The line of a program that has this."""
    lines = harness.read_file(os.path.join(PROGRAMS, source)).decode().splitlines()
    line, = [number for number, each in enumerate(lines, 1) if text in each]
    return line


def place(frame):
    """(function, file and line) of a frame, if it has a line."""
    return re.sub(r"\(anonymous namespace\)::|\(\)", "", frame["function"]), f"{os.path.basename(frame['file'])}:{frame['line']}"


class NativeStacks(harness.EndToEndTest):

    def stacks(self, *targets):
        return json.loads(self.run_well([GPUPROBE, "stacks", *map(str, targets), "--native", "--json"]).stdout)

    def screen(self, *targets):
        return self.run_well([GPUPROBE, "stacks", *map(str, targets), "--native"]).stdout.decode()

    def begin(self, *arguments):
        ends = os.pipe()
        self.addCleanup(os.close, ends[1])
        program = self.start([PROGRAM, *arguments], stdin=ends[0])
        os.close(ends[0])
        return program, ends[1]

    def waits(self, pid, call="futex", within=""):
        def main():
            return json.loads(self.run_well([GPUPROBE, "stacks", str(pid), "--json"]).stdout)[0]["threads"][0]
        wait_until(lambda: (thread := main())["call"].startswith(call) and within in str(thread["frames"]), f"main thread in {call}")

    def threads_of(self, program):
        """{name: thread} when all wait."""
        waiting = {"read", "poll", "epoll", "sleep", "until", "futex", "semaphore", "receive", "sigwait", "wait"}

        def states():
            names = {}
            for tid in os.listdir(f"/proc/{program.pid}/task"):
                stat = harness.read_proc(program.pid, f"task/{tid}/stat").decode()
                names[stat[stat.find("(") + 1:stat.rfind(")")]] = stat[stat.rfind(")") + 2]
            return names
        wait_until(lambda: all(states().get(name) == "S" for name in waiting), "waiting threads")
        return {thread["name"]: thread for thread in self.stacks(program.pid)[0]["threads"]}

    def test_no_call_is_interrupted_and_no_signal_is_lost(self):
        program, stdin = self.begin()
        threads = self.threads_of(program)
        for name, function in (("read", "InRead"), ("epoll", "InEpoll"), ("poll", "InPoll"), ("sleep", "InSleep"), ("until", "InSleepUntil"), ("futex", "InFutex"),
                               ("semaphore", "InSemaphore"), ("receive", "InReceive"), ("sigwait", "InSigwait"), ("wait", "InWait")):
            with self.subTest(name):
                line = line_of("native_stacks.cc", f"// here: {name}")
                self.assertIn((function, f"native_stacks.cc:{line}"), [place(frame) for frame in threads[name]["frames"]])
                self.assertIs(threads[name]["native_whole"], True)
        for _ in range(TIMES):
            process, = self.stacks(program.pid)
            self.assertEqual(len(process["threads"]), len(os.listdir(f"/proc/{program.pid}/task")))
            for thread in process["threads"]:
                self.assertNotIn("no_native_stack", thread)
                self.assertGreater(thread["stopped_us"], 0)
        os.write(stdin, b"\n")
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout.decode()), (0, "ready\nend\n"))

    def test_whoever_is_killed_lets_go(self):
        program, _ = self.begin()
        self.threads_of(program)
        for milliseconds in range(0, 40, 2):
            looking = self.start([GPUPROBE, "stacks", str(program.pid), "--native"])
            time.sleep(milliseconds / 1000)
            looking.kill()
        for tid in os.listdir(f"/proc/{program.pid}/task"):
            self.assertIn(b"TracerPid:\t0\n", harness.read_proc(program.pid, f"task/{tid}/status"))
            self.assertNotIn(b"State:\tt", harness.read_proc(program.pid, f"task/{tid}/status"))

    @unittest.skipUnless(PYTHONS, "no Python from 3.8 to 3.14")
    def test_python_frames_are_where_the_interpreter_ran_them(self):
        for version, command in PYTHONS.items():
            with self.subTest(python=version):
                program = self.start([command, "-B", SCRIPT, LIBRARY])
                # An interpreter that begins reads, too: its modules.
                self.waits(program.pid, "read", within="hook")
                main = self.stacks(program.pid)[0]["threads"][0]
                shown = [place(frame) for frame in main["frames"] if frame["line"] > 0]
                ours = [(function, at) for function, at in shown if at.startswith("native_")]
                at = {name: f"native_library.c:{line_of('native_library.c', f'// here: {name}')}" for name in ("Fill", "ReadShard", "CallBack")}
                method = "Shards.read" if "Shards.read" in str(main) else "read"
                self.assertEqual(ours, [("Fill", at["Fill"]), ("ReadShard", at["ReadShard"]),
                                        (method, f"native_stacks.py:{line_of('native_stacks.py', 'library.ReadShard')}"),
                                        ("hook", f"native_stacks.py:{line_of('native_stacks.py', 'Shards().read')}"),
                                        ("CallBack", at["CallBack"]),
                                        ("train", f"native_stacks.py:{line_of('native_stacks.py', 'CALLBACK(hook)')}"),
                                        ("main", f"native_stacks.py:{line_of('native_stacks.py', 'sorted([1]')}"),
                                        ("<module>", f"native_stacks.py:{len(harness.read_file(SCRIPT).splitlines())}")])
                # Nothing of the interpreter's, and nothing around it.
                self.assertEqual(main["frames"][-1]["function"], "<module>")
                self.assertFalse([frame for frame in main["frames"] if frame["function"].startswith(("_PyEval", "Py_", "PyObject_"))])
                self.assertNotIn("python_frames", main)
                self.assertIs(main["torn"], False)
                program.kill()

    def test_a_frozen_process_stays_frozen_and_its_parent_sees_no_stop(self):
        program = self.start(["sleep", "1000"])
        self.waits(program.pid, "nanosleep")
        program.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, program.pid, os.WSTOPPED)
        for _ in range(TIMES):
            thread, = self.stacks(program.pid)[0]["threads"]
            self.assertIn("nanosleep", str([frame["function"] for frame in thread["frames"]]))
            self.assertEqual(thread["state"], "T")
        self.assertIsNone(os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG))
        self.assertIn(b"T (stopped)", harness.read_proc(program.pid, "status"))
        program.signal(signal.SIGCONT)
        os.waitid(os.P_PID, program.pid, os.WCONTINUED)
        self.stacks(program.pid)
        self.assertIsNone(os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG))

    def test_whoever_traces_it_is_named(self):
        program = self.start(["sleep", "1000"])
        self.waits(program.pid, "nanosleep")
        tracer = self.start([sys.executable, "-c", f"import ctypes, time; ctypes.CDLL(None).ptrace({PTRACE_SEIZE}, {program.pid}, 0, 0); time.sleep(1000)"])
        wait_until(lambda: b"TracerPid:\t0\n" not in harness.read_proc(program.pid, "status"), "tracer")
        name = harness.read_proc(tracer.pid, "comm").decode().strip()
        self.assertIn(f"no native stack: pid {tracer.pid} ({name}) traces it, and only one can\n", self.screen(program.pid))
        self.assertIn(f"TracerPid:\t{tracer.pid}\n".encode(), harness.read_proc(program.pid, "status"))
        tracer.kill()  # first: whoever traces a process also reaps it

    def test_a_thread_that_cannot_be_interrupted_is_left_alone(self):
        program, _ = self.begin("vfork")
        wait_until(lambda: b"State:\tD" in harness.read_proc(program.pid, "status"), "vfork")
        thread, = self.stacks(program.pid)[0]["threads"]
        self.assertEqual((thread["state"], thread["no_native_stack"], thread["frames"]), ("D", "it cannot be interrupted", []))
        self.assertNotIn("stopped_us", thread)
        if os.geteuid() == 0:
            self.assertIn("vfork", str(thread["kernel"]))

    @unittest.skipUnless(os.geteuid() == 0, "another user is needed")
    def test_who_may_not_look_is_told_why(self):
        os.chmod(self.folder, 0o755)

        def as_nobody(command):
            running = harness.Running(command, self.env(), "/", self.folder, user=65534, group=65534)
            self._programs.append(running)
            return running
        program = self.start(["sleep", "1000"])
        self.waits(program.pid, "nanosleep")
        finished = as_nobody([GPUPROBE, "stacks", str(program.pid), "--native"]).wait()
        self.assertIn(b"no native stack: it belongs to another user (uid 0); try as that user or as root\n", finished.stdout)
        hidden = as_nobody([PROGRAM, "undumpable"])
        wait_until(lambda: hidden.finished().stdout == b"ready\n", "prctl")
        finished = as_nobody([GPUPROBE, "stacks", str(hidden.pid), "--native"]).wait()
        self.assertIn(b"no native stack: the program forbids it (prctl PR_SET_DUMPABLE); try as root\n", finished.stdout)
        # A library that is gone is read from memory, by root and by others.
        shutil.copy(LIBRARY, self.path("gone.so"))
        os.chmod(self.path("gone.so"), 0o755)
        own = as_nobody(["/usr/bin/python3", "-B", SCRIPT, self.path("gone.so")])
        self.waits(own.pid, "read", within="hook")
        with open(self.path("gone.so.new"), "w", encoding="utf-8") as file:
            file.write("another file")
        os.replace(self.path("gone.so.new"), self.path("gone.so"))
        finished = as_nobody([GPUPROBE, "stacks", str(own.pid), "--native", "--json"]).wait()
        functions = [frame["function"] for frame in json.loads(finished.stdout)[0]["threads"][0]["frames"]]
        self.assertIn("ReadShard", functions)
        self.assertIn("CallBack", functions)
        self.assertEqual(functions[-1], "<module>")

    def test_a_program_without_symbols_has_offsets(self):
        program = self.path("bare")
        with open(program + ".c", "w", encoding="utf-8") as file:
            file.write("#include <unistd.h>\nint main(void) { return pause() + 1; }\n")
        subprocess.run(["cc", "-O1", "-static", "-o", program, program + ".c"], check=True)
        shutil.copy(program, self.path("full"))
        subprocess.run(["strip", program], check=True)
        bare = self.start([program])
        wait_until(lambda: b"State:\tS" in harness.read_proc(bare.pid, "status") and harness.read_proc(bare.pid, "comm") == b"bare\n", "pause")
        thread, = self.stacks(bare.pid)[0]["threads"]
        offsets = [frame["offset"] for frame in thread["frames"] if frame["object"] == program]
        named = subprocess.run(["addr2line", "-f", "-e", self.path("full"), *map(hex, offsets)], check=True, capture_output=True, text=True).stdout.split()[::2]
        self.assertIn("main", named)
        self.assertEqual(named[-1], "_start")
        self.assertIn(f"    ? (bare+0x{offsets[-1]:x})\n", self.screen(bare.pid))

    def test_the_rank_that_hangs_in_a_native_function_comes_first(self):
        out = self.path("out")
        job = self.start([GPUPROBE, "run", "--quiet", "--out", out, "--", LAUNCH_RANKS, "3", "/usr/bin/python3", "-B", SCRIPT, LIBRARY, MODULE], devices=3)

        def ready():
            looked = self.run_program([GPUPROBE, "stacks", out, "--native"])
            shown = looked.stdout.decode()
            return looked.returncode == 0 and "1 of 3, in read " in shown and "2 of 3, in futex" in shown and shown
        wait_until(lambda: ready() or not job.alive(), "ranks that wait")
        shown = ready().splitlines()
        self.assertEqual(shown[0], "2 different stacks in 3 main threads, the odd ones first")
        self.assertRegex(shown[2], r"^1 of 3, in read pipe:\[\d+\]: rank 1 \(pid \d+\)$")
        odd = shown[3:shown.index("", 3)]

        def native(function):
            """How its frame ends: where the sources were when it was compiled is not known, a compiler's cache may have it from elsewhere."""
            return rf"^    {function} \(/\S*/tests/e2e/programs/native_library\.c:{line_of('native_library.c', f'// here: {function}')}\)$"
        self.assertTrue(any(re.match(native("ReadShard"), line) for line in odd), odd)
        self.assertTrue(odd[-1].startswith("    <module> ("))
        self.assertIn("2 of 3, in futex: rank 0, rank 2", shown)
        self.assertTrue(any(re.match(native("WaitForPeers"), line) for line in shown), shown)
        self.assertRegex(shown[-1], r"^3 threads were stopped for at most \d+\.\d\d ms to copy their stacks, one after the other\.$")
        job.signal(signal.SIGTERM)
        job.wait()


if __name__ == "__main__":
    harness.main()
