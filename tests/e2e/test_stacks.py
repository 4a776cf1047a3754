"""`gpuprobe stacks` shows the stacks that Python itself reports, for every Python that this machine has, and never a wrong one."""
import glob
import json
import os
import re
import subprocess
import unittest

import harness

PROGRAMS = os.path.join(harness.SOURCE, "tests", "e2e", "programs")
PARKED = os.path.join(PROGRAMS, "python_stacks.py")
CHURN = os.path.join(PROGRAMS, "python_churn.py")
GARBAGE = os.path.join(PROGRAMS, "python_garbage.py")
SOAK = os.path.join(harness.BUILD, "tests", "stacks", "gpuprobe_stack_soak")
SAMPLES = int(os.environ.get("STACK_SAMPLES", "1000"))  # of each Python
MOST_FRAMES = 192
EMBEDDED = os.path.join(harness.BUILD, "tests", "e2e", "embedded_python")
PARKS = "import time\ndef parked():\n time.sleep(1000)\nparked()"
# Of another Debian, with its own C library: scripts/pythons-env.sh.
FOREIGN = os.path.expanduser("~/.cache/gpuprobe/pythons/*/python3")
# Who calls whom in python_churn.py, and which lines a function has.
MAY_CALL = {"climb": {"descend"}, "descend": {"stumble", "climb"}, "stumble": {"climb"}, "work": {"climb"}, "main": set()}
LINES = {"climb": range(6, 8), "descend": range(10, 15), "stumble": range(17, 21), "work": range(23, 27), "main": range(29, 36)}


def pythons():
    """{version: command}."""
    found = {}
    places = (os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"), "/usr/bin/python3", FOREIGN)
    for path in [path for place in places for path in sorted(glob.glob(place))]:
        try:
            said = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=True).stdout.decode()
        except (OSError, subprocess.SubprocessError):
            continue
        version = re.fullmatch(r"Python (3\.(?:[89]|1[0-4])\.\d+)\S*\n", said)
        if version:
            found[version[1]] = path
    return found


PYTHONS = pythons()


@unittest.skipUnless(PYTHONS, "no Python from 3.8 to 3.14")
class Stacks(harness.EndToEndTest):

    def stacks(self, *targets):
        return json.loads(self.run_well([harness.GPUPROBE, "stacks", *map(str, targets), "--json"]).stdout)

    def runs_main(self, pid):
        return [("main", CHURN)] == [(frame["function"], frame["file"]) for frame in self.stacks(pid)[0]["threads"][0]["frames"][-2:-1]]

    def park(self, version):
        """A program with parked threads, and what Python says of them."""
        said = self.path(f"said-{version}-{len(os.listdir(self.folder))}")
        program = self.start([PYTHONS[version], "-B", PARKED, said])
        harness.wait_until(lambda: os.path.exists(said) or not program.alive(), "stacks that Python reports")
        # The main thread parks after it has said so.
        harness.wait_until(lambda: self.stacks(program.pid)[0]["threads"][0]["call"] == "futex", "main thread that waits")
        with open(said, encoding="utf-8") as file:
            return program, json.load(file)

    def test_every_thread_is_where_python_says(self):
        for version in PYTHONS:
            with self.subTest(python=version):
                program, said = self.park(version)
                process, = self.stacks(program.pid)
                # Before 3.11 a process does not say which release it is.
                self.assertTrue(version.startswith(process["python"]), process["python"])
                self.assertEqual(process["threads"][0]["tid"], program.pid)
                self.assertEqual(process["threads"][0]["frames"][0]["function"], "main")
                seen = {thread["tid"]: thread for thread in process["threads"]}
                for name, thread in said.items():
                    shown = seen[thread["tid"]]
                    frames = [[frame["function"], frame["file"], frame["line"]] for frame in shown["frames"]]
                    self.assertEqual(frames, thread["frames"][:MOST_FRAMES], name)
                    self.assertIs(shown["torn"], False)
                program.kill()

    def test_threads_that_run_have_no_wrong_frame(self):
        """Each frame is a function's own line, and was called by a function that calls it; what cannot be read is torn, not something else."""
        for version, command in PYTHONS.items():
            with self.subTest(python=version):
                program = self.start([command, "-B", CHURN])
                harness.wait_until(lambda p=program.pid: self.runs_main(p), "its main function")
                lines = self.run_well([SOAK, str(program.pid), str(SAMPLES)]).stdout.decode().splitlines()
                whole, cut, torn, ended = map(int, lines[0].split("\t")[1:])
                self.assertGreaterEqual(whole + cut + torn + ended, SAMPLES)
                self.assertGreater(whole, torn, "most stacks can be read")
                self.assertEqual(cut, 0)
                functions, library = set(), {CHURN}
                for line in lines[1:]:
                    function, at, caller, _, file = line.split("\t")[1:]
                    functions.add(function)
                    if file == CHURN and function not in ("<listcomp>", "main.<locals>.<listcomp>", "<module>"):
                        self.assertTrue(int(at) in LINES[function] or at == "0", line)
                        self.assertIn(function, MAY_CALL.get(caller, {"work", "main"}), line)
                    elif file not in library:
                        self.assertTrue(os.path.isfile(file) or file.startswith("<frozen "), line)
                        library.add(file)
                self.assertTrue(functions.issuperset({"climb", "descend", "stumble", "work", "main"}), functions)
                if SAMPLES > 1000:
                    print(f"{version}: {whole} whole, {torn} torn, {ended} ended")
                program.kill()

    def in_its_loop(self, command, *arguments):
        program = self.start([command, "-B", GARBAGE, *arguments])
        harness.wait_until(lambda: '"work"' in json.dumps(self.stacks(program.pid)), "its loop")
        return program

    def callers(self, pid):
        """(function, who called it) of 200 looks without a pause: all of them may be of one turn with the interpreter's lock."""
        lines = self.run_well([SOAK, str(pid), "400"]).stdout.decode().splitlines()[1:]
        return {(function, caller) for function, _, caller, *_ in (line.split("\t")[1:] for line in lines)}

    def test_collected_garbage_is_seen_in_the_thread_that_collects(self):
        for version, command in PYTHONS.items():
            with self.subTest(python=version):
                program, seen = self.in_its_loop(command), set()

                def both_work(pid=program.pid, seen=seen):
                    seen |= self.callers(pid)
                    return {"<garbage collection>", "work"} <= {function for function, _ in seen}
                harness.wait_until(both_work, "both threads at work")
                program.kill()
                self.assertEqual({caller for function, caller in seen if function == "<garbage collection>"}, {"collect"})

                program = self.in_its_loop(command, "never")
                for _ in range(5):
                    self.assertNotIn("<garbage collection>", {function for function, _ in self.callers(program.pid)})
                program.kill()

    def is_named(self, pid):
        """Whether the main thread is seen to wait in `work` for the other, in `hog`, which never waits."""
        threads = self.stacks(pid)[0]["threads"]
        if len(threads) != 2 or "gil_holder" not in threads[0]:
            return False
        waiting, other = threads
        self.assertNotIn("waits_for_gil", other)
        self.assertEqual((waiting["tid"], waiting["gil_holder"]), (pid, other["tid"]))
        return [thread["frames"][0]["function"] for thread in threads] == ["work", "hog"]

    def test_the_thread_that_has_the_interpreter_is_named(self):
        program_text = "import threading, time\nready = []\ndef hog():\n while not ready: time.sleep(0.01)\n sum(range(10**11))\n" \
                       "threading.Thread(target=hog, daemon=True).start()\ndef work():\n ready.append(1)\n while True: pass\nwork()"
        for version, command in PYTHONS.items():
            with self.subTest(python=version):
                program = self.start([command, "-c", program_text])
                # It looks at the lock every 5 ms.
                harness.wait_until(lambda p=program.pid: self.is_named(p), "thread that has the interpreter")
                said = re.compile(r", waits for Python's lock \(GIL\), which thread \d+ has\n    work \(<string>:9\)")
                harness.wait_until(lambda p=program.pid: said.search(self.run_well([harness.GPUPROBE, "stacks", str(p)]).stdout.decode()), "the same in words")
                program.kill()

    def test_processes_are_grouped_and_the_odd_one_is_first(self):
        version = max(PYTHONS, key=lambda text: tuple(map(int, text.split("."))))
        parked = [self.park(version)[0].pid for _ in range(3)]
        odd = self.start([PYTHONS[version], "-c", "import time\ndef elsewhere(): time.sleep(1000)\nelsewhere()"])
        harness.wait_until(lambda: self.stacks(odd.pid)[0]["threads"][0]["call"] in ("nanosleep", "select") and "elsewhere" in str(self.stacks(odd.pid)),
                           "the sleeping function")
        shown = self.run_well([harness.GPUPROBE, "stacks", *map(str, [*parked, odd.pid])]).stdout.decode().splitlines()
        self.assertEqual(shown[:4], ["2 different stacks in 4 main threads, the odd ones first", "",
                                     f"1 of 4, in nanosleep: pid {odd.pid}" if "nanosleep" in shown[2] else f"1 of 4, in select: pid {odd.pid}",
                                     "    elsewhere (<string>:2)"])
        self.assertIn(f"3 of 4, in futex: pid {parked[0]}, pid {parked[1]}, pid {parked[2]}", shown)

    def parked_frames(self, command, env=None):
        """The frames of the main thread, once it sleeps, or why there are none."""
        program = self.start(command, env=env)
        harness.wait_until(lambda: self.stacks(program.pid)[0]["threads"][0]["call"] in ("nanosleep", "select") or not program.alive(), "the sleep")
        process, = self.stacks(program.pid)
        return [frame["function"] for frame in process["threads"][0]["frames"]], process.get("no_python_stacks"), program

    def test_the_ranks_beside_a_process(self):
        """Those of the same launcher, without the workers that a rank has started, and nobody else's."""
        python = max(PYTHONS.values())
        worker = "import os, sys\nif os.fork() == 0:\n os.environ['WORKER'] = '1'\n" + PARKS
        script = " ".join(f"RANK={rank} WORLD_SIZE=3 {python} -c \"$PROGRAM\" & " for rank in range(3)) + "wait"
        jobs = [self.start(["bash", "-c", script], env={"PROGRAM": worker}) for _ in range(2)]

        def ranks():
            found = {}
            for pid in harness.processes_of_session(jobs[0].pid):
                parent = int(harness.read_proc(pid, "stat").rpartition(b")")[2].split()[1])
                rank = re.search(rb"\0RANK=(\d)\0", b"\0" + harness.read_proc(pid, "environ"))
                if parent == jobs[0].pid and rank and b"PROGRAM" not in harness.read_proc(pid, "cmdline"):
                    found[int(rank[1])] = pid
            return found if len(found) == 3 else None

        pids = harness.wait_until(ranks, "three ranks")
        harness.wait_until(lambda: all(len(self.stacks(pid)[0]["threads"][0]["frames"]) == 2 for pid in pids.values()), "parked ranks")
        seen = json.loads(self.run_well([harness.GPUPROBE, "stacks", str(pids[1]), "--all-ranks", "--json"]).stdout)
        self.assertEqual([(process["label"], process["pid"]) for process in seen], [(f"rank {rank}", pids[rank]) for rank in range(3)])
        text = self.run_well([harness.GPUPROBE, "stacks", str(pids[2]), "--all-ranks"]).stdout.decode()
        self.assertIn("3 of 3, in nanosleep: rank 0, rank 1, rank 2\n", text)
        alone = self.start([python, "-c", PARKS])
        refused = self.run_program([harness.GPUPROBE, "stacks", str(alone.pid), "--all-ranks"])
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"process {alone.pid} is no rank of a job on this host", refused.stderr.decode())
        for program in (*jobs, alone):
            program.kill()

    def test_an_interpreter_that_a_program_embeds(self):
        places = ("/usr/lib/*-linux-gnu", os.path.expanduser("~/.pyenv/versions/3.*/lib"))
        libraries = [path for place in places for path in glob.glob(place + "/libpython3.*.so.1.0") if re.search(r"libpython3\.(8|9|1[0-4])\.", path)]
        for library in libraries:
            with self.subTest(library=library):
                home = {} if library.startswith("/usr") else {"PYTHONHOME": os.path.dirname(os.path.dirname(library))}
                frames, why, program = self.parked_frames([EMBEDDED, library, PARKS], home)
                self.assertEqual((frames, why), (["parked", "<module>"], None))
                program.kill()

    def test_several_interpreters_of_a_process(self):
        of_another = "import threading, time\ntry: import _interpreters as i\nexcept ImportError: import _xxsubinterpreters as i\n" \
                     "def run(): i.run_string(i.create(), 'import time\\ndef within():\\n time.sleep(1000)\\nwithin()')\n" \
                     "threading.Thread(target=run, daemon=True).start()\ndef parked():\n time.sleep(1000)\nparked()"
        for version, command in PYTHONS.items():
            if tuple(map(int, version.split(".")[:2])) < (3, 9):
                continue  # ends when a thread runs another interpreter
            with self.subTest(python=version):
                program = self.start([command, "-c", of_another])
                harness.wait_until(lambda p=program.pid: {"parked", "within"} <= self.innermost(p) or not program.alive(), "both")
                self.assertLessEqual({"parked", "within"}, self.innermost(program.pid))
                program.kill()

    def innermost(self, pid):
        return {thread["frames"][0]["function"] for thread in self.stacks(pid)[0]["threads"] if thread["frames"]}

    def of_an_ordinary_user(self, command):
        """Runs it; without the rights of root."""
        os.chmod(self.folder, 0o755)
        running = harness.Running(command, self.env(), "/", self.folder, **({"user": 65534, "group": 65534} if os.geteuid() == 0 else {}))
        self._programs.append(running)
        return running

    def test_a_process_that_forbids_it(self):
        program = self.of_an_ordinary_user(["/usr/bin/python3", "-c", "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\ntime.sleep(1000)"])
        harness.wait_until(lambda: os.stat(f"/proc/{program.pid}/environ").st_uid == 0 or not program.alive(), "a process that is root's to look at")
        finished = self.of_an_ordinary_user([harness.GPUPROBE, "stacks", str(program.pid)]).wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertIn(b"no Python stack: its memory may not be read: the program forbids it (prctl PR_SET_DUMPABLE); try as root", finished.stdout)

    def test_a_sandbox_that_refuses_to_read_memory(self):
        """The file /proc/PID/mem leads to the same stacks."""
        for version, command in PYTHONS.items():
            with self.subTest(python=version):
                program, _ = self.park(version)
                show = [harness.GPUPROBE, "stacks", str(program.pid), "--json"]
                within = self.run_well([command, "-B", os.path.join(PROGRAMS, "refuse_reads.py"), *show])
                self.assertEqual(json.loads(within.stdout)[0]["threads"], self.stacks(program.pid)[0]["threads"])
                program.kill()

    def test_what_cannot_be_read_is_said(self):
        sleeper = self.start(["sleep", "1000"])
        harness.wait_until(lambda: harness.read_proc(sleeper.pid, "comm") == b"sleep\n", "exec")
        shown = self.run_well([harness.GPUPROBE, "stacks", str(sleeper.pid)]).stdout.decode()
        self.assertIn(", in nanosleep\n    no Python stack: no CPython was found in the process\n", shown)
        sleeper.kill()
        missing = self.run_program([harness.GPUPROBE, "stacks", str(sleeper.pid)])
        self.assertEqual((missing.returncode, missing.stdout, missing.stderr), (1, b"", f"gpuprobe: stacks: there is no process {sleeper.pid}\n".encode()))
        nothing = self.run_program([harness.GPUPROBE, "stacks"])
        self.assertEqual((nothing.returncode, nothing.stderr),
                         (1, b"gpuprobe: stacks: no run is being recorded under gpuprobe-runs; name a process id or a run directory\n"))

    @unittest.skipUnless(os.geteuid() == 0, "another user is needed")
    def test_another_users_process_is_not_read(self):
        version = next(iter(PYTHONS))
        program, _ = self.park(version)
        os.chmod(self.folder, 0o755)
        other = harness.Running([harness.GPUPROBE, "stacks", str(program.pid)], self.env(), "/", self.folder, user=65534, group=65534)
        finished = other.wait()
        other.close()
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertIn(b"no Python stack: its memory may not be read", finished.stdout)


if __name__ == "__main__":
    harness.main()
