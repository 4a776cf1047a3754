"""At the edges of the process: its environment, descriptors, standard error, children, stacks and limits stay the program's own."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import harness
from harness import GPUPROBE, LIBRARY
from hazards import hazard

OWN_ENVIRONMENT = os.path.join(harness.BUILD, "tests", "e2e", "own_environment")
OWN_NAMES = os.path.join(harness.BUILD, "tests", "e2e", "own_names")
HOST_EDGES = os.path.join(harness.BUILD, "tests", "e2e", "host_edges")
LOADINGS = {"injection": {"CUDA_INJECTION64_PATH": LIBRARY}, "preload": {"LD_PRELOAD": LIBRARY}}
RUNS = int(os.environ.get("GPUPROBE_EDGE_RUNS", "6"))  # of what is a race


class HostEdges(harness.EndToEndTest):

    def autostarts(self):
        """A program that starts its own collector leaves no truth log behind: its descriptors would be the program's to close."""
        return {"GPUSIM_TRUTH": None}

    def in_all_ways(self, operations, extra=None, runs=1, commands=True):
        """Runs the program by injection, preload and `gpuprobe run`; each must end with 0."""
        for turn in range(runs):
            for name, loading in LOADINGS.items():
                with self.subTest(loading=name, turn=turn):
                    self.run_well([HOST_EDGES, *operations], env={**self.autostarts(), **loading, **(extra or {})})
            if commands:
                with self.subTest(loading="run", turn=turn):
                    self.run_well([GPUPROBE, "run", "--", HOST_EDGES, *operations], env={**self.autostarts(), **(extra or {})})
        self.assert_nothing_runs()

    # --- environment

    @hazard("threads read the environment while CUDA starts", sees="every getenv succeeds", counted="nothing is lost")
    def test_threads_that_read_the_environment(self):
        for turn in range(RUNS):
            # C libraries make room for two variables at a time: every other number of them makes the array move.
            self.in_all_ways(["readers:set"], {f"JOB_VARIABLE_{i}": "value" for i in range(10 + turn % 2)})

    @hazard("threads set variables while CUDA starts", sees="each thread finds the last value that it set", counted="nothing is lost")
    def test_threads_that_set_variables(self):
        # Not while ours are read by the C library: only one thread at a time may change them, and each does so under its lock.
        self.in_all_ways(["writers"], runs=2)

    @hazard("the program starts with an empty environment", sees="no difference", counted="everything is recorded, or nothing")
    def test_empty_environment(self):
        self.in_all_ways(["cleared", "start"])

    @hazard("the program manages the array of its environment itself, as perl does: reallocates, frees, exchanges or edits it",
            sees="its array is where it was; getenv and children see its changes", counted="recording goes on")
    def test_programs_that_own_their_environment(self):
        for way in ("realloc", "free", "append", "edit", "swap", "remove"):
            for name, loading in {**LOADINGS, "run": None}.items():
                with self.subTest(way=way, loading=name):
                    command = [OWN_ENVIRONMENT, way] if loading else [GPUPROBE, "run", "--", OWN_ENVIRONMENT, way]
                    finished = self.run_well(command, env={**self.autostarts(), **(loading or {})})
                    self.assertEqual(finished.stdout, b"as expected\n")
        self.assert_nothing_runs()

    def test_children_inherit_what_the_program_had(self):
        """Injection adds no variable, and preloading only the two that name the library."""
        show = "import os, ctypes; ctypes.CDLL('libcudart.so.13').cudaFree(None); os.execvp('env', ['env'])"
        plain = self.environment_of(show, {})
        self.assertEqual(self.environment_of(show, LOADINGS["injection"]), plain | set(self.lines(LOADINGS["injection"])))
        both = {**LOADINGS["preload"], **LOADINGS["injection"], "NVTX_INJECTION64_PATH": LIBRARY}
        self.assertEqual(self.environment_of(show, LOADINGS["preload"]), plain | set(self.lines(both)))

    @staticmethod
    def lines(variables):
        return [f"{name}={value}" for name, value in variables.items()]

    def environment_of(self, program, loading):
        finished = self.run_well([sys.executable, "-c", program], env={**self.autostarts(), **loading, "GPUPROBE_AUTOSTART": "0"})
        return set(finished.stdout.decode().splitlines())

    # --- descriptors

    @hazard("the program closes every descriptor it does not know, and opens files", sees="none of its own files is closed",
            counted="the connection is lost: the rest is counted as lost, or sent over a new one")
    def test_program_that_closes_all_descriptors(self):
        self.in_all_ways(["descriptors"], runs=RUNS)

    @hazard("no descriptors are left (RLIMIT_NOFILE)", sees="no difference", counted="no collector is reached, and nothing is recorded")
    def test_no_descriptors_left(self):
        self.in_all_ways(["limit:nofile", "start", "exit:0"])

    # --- names

    @hazard("a C program has functions of its own that are named send, connect, poll, stat ...", sees="they are called by the program only",
            counted="everything is recorded, nothing lost")
    def test_functions_named_as_the_c_librarys(self):
        for loading in LOADINGS.values():
            collector = harness.Collector(self)
            finished = self.run_well([OWN_NAMES], env={**self.autostarts(), **loading, **collector.env()})
            self.assertEqual(finished.stdout, b"own functions called 0 times\n")
            collector.stop()
            self.assertEqual([record["kind"] for record in self.export(collector.out)].count("memset"), 2100)
            self.assert_no_loss(self.report(collector.out))
            self.run_well([OWN_NAMES], env={**self.autostarts(), **loading})
        self.assert_nothing_runs()

    # --- standard error

    def without_standard_error(self, loading, path):
        env = self.env({**self.autostarts(), **loading, "GPUPROBE_NO_SUCH": "1", "GPUPROBE_VERBOSE": "1"})
        program = subprocess.run(["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", HOST_EDGES, "wait:40", f"data:{path}", "exit:0"],
                                 env=env, cwd=self.cwd, stdout=subprocess.PIPE, check=False, timeout=harness.LIMIT_S)
        return program

    @hazard("standard error is closed, and one of the program's data files gets its number", sees="its file contains only its own bytes",
            counted="the probe's line is not written")
    def test_data_file_on_descriptor_2(self):
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                path = self.path(f"data-{name}")
                program = self.without_standard_error(loading, path)
                self.assertEqual((program.returncode, program.stdout), (0, b"descriptor 2\n"))
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), b"data\n")
        self.assert_nothing_runs()

    @hazard("standard error is closed, and one of the program's older files gets its number", sees="its file contains only its own bytes",
            counted="the probe's line is not written")
    def test_older_data_file_on_descriptor_2(self):
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                path = self.path(f"data-{name}")
                with open(path, "wb") as file:
                    file.write(b"what was there before\n")
                program = self.without_standard_error(loading, path)
                self.assertEqual((program.returncode, program.stdout), (0, b"descriptor 2\n"))
                with open(path, "rb") as file:
                    self.assertEqual(file.read(), b"data\nwas there before\n")
        self.assert_nothing_runs()

    @hazard("standard error is a pipe that nobody reads any more", sees="no SIGPIPE", counted="the probe's line is not written")
    def test_standard_error_is_a_broken_pipe(self):
        self.in_all_ways(["pipe:broken", "start", "exit:0"], {"GPUPROBE_NO_SUCH": "1", "GPUPROBE_VERBOSE": "1"}, commands=False)

    @hazard("standard error is a pipe that is full", sees="CUDA starts without delay", counted="the probe's line is not written")
    def test_standard_error_is_a_full_pipe(self):
        self.in_all_ways(["pipe:full", "start", "exit:0"], {"GPUPROBE_NO_SUCH": "1", "GPUPROBE_VERBOSE": "1"}, commands=False)

    def test_standard_error_that_works_gets_the_line(self):
        """A pipe, a new file, a file that was there, and a terminal."""
        extra = {**self.autostarts(), "GPUPROBE_NO_SUCH": "1", "GPUPROBE_AUTOSTART": "0"}
        for name, loading in LOADINGS.items():
            for redirection in ("2>&1 | cat", "2>new; cat new", "2>>old; cat old"):
                with self.subTest(loading=name, redirection=redirection):
                    self.create_old()
                    finished = self.run_well(["/bin/sh", "-c", f'"$@" {redirection}; rm -f new', "sh", HOST_EDGES, "start"],
                                             env={**extra, **loading})
                    self.assertEqual(finished.stdout.count(b"gpuprobe: unknown setting GPUPROBE_NO_SUCH"), 1, str(finished))
        self.assert_nothing_runs()

    def create_old(self):
        with open(os.path.join(self.cwd, "old"), "wb"):
            pass

    # --- children

    @hazard("children are made by fork, _Fork, clone, vfork and posix_spawn", sees="they end at once, as without the probe",
            counted="they are not recorded as processes of the job")
    def test_children_of_all_kinds(self):
        for way in ("fork", "_Fork", "clone", "vm", "vfork", "spawn"):
            with self.subTest(way=way):
                self.in_all_ways([f"child:{way}"], {"GPUPROBE_EXIT_WAIT_MS": None})

    # --- small stacks and limits

    @hazard("CUDA starts on a thread with a stack of 16 or 32 KiB", sees="the stack is large enough, as without the probe", counted="everything is recorded")
    def test_small_stacks(self):
        for kib in (32, 16):
            with self.subTest(kib=kib):
                self.in_all_ways([f"stack:{kib}"])

    @hazard("address space or data is limited (RLIMIT_AS, RLIMIT_DATA), and the program needs nearly all of it", sees="no difference",
            counted="one line says that nothing is recorded; if the limit leaves sixteen times what the probe takes, everything is")
    def test_limited_memory(self):
        for limit in ("as", "data"):
            for mib in (1000, 400, 100, 60):
                with self.subTest(limit=limit, mib=mib):
                    operations = [f"limit:{limit}:{mib}", "start", f"fill:{mib * 9 // 10 - 30}", "wait:50", "exit:0"]
                    self.in_all_ways(operations, commands=False)
        finished = self.run_well([HOST_EDGES, *operations], env={**self.autostarts(), **LOADINGS["injection"]})
        self.assertIn(b"the memory limit of this process (ulimit -v or -d) leaves too little for the program and the probe; nothing is recorded", finished.stderr)

    def test_limits_that_leave_enough(self):
        """With little of all kinds of memory, or with all of it."""
        for limit in ("as:4000", "data:4000", "as:20000"):
            with self.subTest(limit=limit):
                collector = harness.Collector(self)
                self.run_well([HOST_EDGES, f"limit:{limit}", "start", "exit:0"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})
                self.assertEqual(collector.stop().returncode, 0)
                self.assertEqual(len(self.report(collector.out)["ranks"]), 1)

    @hazard("the program has used up its thread keys (PTHREAD_KEYS_MAX) but for a few", sees="the last ones are its own",
            counted="everything is recorded; threads that come and go are counted as lost beyond 4,096")
    def test_last_thread_keys(self):
        for left in (4, 20):
            # The node takes some itself.
            last = next(n for n in range(left, 0, -1) if self.run_program([HOST_EDGES, f"keys:{left}", "start", f"last-keys:{n}", "exit:0"]).returncode == 0)
            with self.subTest(left=left, last=last):
                self.in_all_ways([f"keys:{left}", "start", f"last-keys:{last}", "exit:0"], commands=False)

    @hazard("the program has used up its descriptors (RLIMIT_NOFILE) but for a few", sees="the last ones are its own",
            counted="with sixteen or fewer left, no collector is reached, and nothing is recorded")
    def test_last_descriptors(self):
        for left in (1, 8, 12):
            with self.subTest(left=left):
                self.in_all_ways([f"files:{left}", "start", "wait:50", f"last-files:{left}", "exit:0"], commands=False)
        collector = harness.Collector(self)
        self.run_well([HOST_EDGES, "files:40", "start", "last-files:16", "exit:0"], env={**self.autostarts(), **collector.env(), **LOADINGS["injection"]})
        self.assertEqual(collector.stop().returncode, 0)
        self.assertEqual(len(self.report(collector.out)["ranks"]), 1)

    @hazard("the program locks all memory that it maps (mlockall)", sees="the probe's memory is not locked, and takes up no room before it is used",
            counted="everything is recorded, nothing lost")
    def test_locked_memory(self):
        operations = ["lock", "start", "wait:50", "resident", "exit:0"]
        plain = self.run_program([HOST_EDGES, *operations])
        if plain.returncode != 0:
            self.skipTest("memory cannot be locked here")
        def resident(finished):
            return int(re.search(rb"(\d+) KiB are resident", finished.stdout)[1])
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                collector = harness.Collector(self)
                finished = self.run_well([HOST_EDGES, *operations], env={**self.autostarts(), **collector.env(), **loading})
                self.assertLess(resident(finished), resident(plain) + (100 << 10))
                self.assertEqual(collector.stop().returncode, 0)
                self.assertEqual(len(self.report(collector.out)["ranks"]), 1)

    @hazard("the program's folder is on a file system that is unmounted as soon as the program has ended; the probe has started a collector",
            sees="umount succeeds, if the run is elsewhere (GPUPROBE_OUT)", counted="everything is recorded, nothing lost")
    def test_unmounted_folder(self):
        mounted = self.path("mounted")
        os.mkdir(mounted)
        script = f'mount -t tmpfs none {mounted} && cd {mounted} || exit 77; "$@" || exit; cd / && umount {mounted}'
        command = ["unshare", "-m", "sh", "-c", script, "sh"]
        if self.run_program([*command, "true"]).returncode != 0:
            self.skipTest("mounting is not permitted here")
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                out = self.path(f"out-{name}")
                finished = self.run_well([*command, HOST_EDGES, "cuda", "wait:300"], env={**self.autostarts(), **loading, **harness.PATIENT, "GPUPROBE_OUT": out})
                self.assertIn(b"recording to", finished.stderr)
                self.assert_nothing_runs()
                self.assertTrue(os.path.exists(os.path.join(out, "report.json")))

    @hazard("another user has taken the name of the folder in /tmp for the collector's socket", sees="no difference",
            counted="nothing is recorded; one line says which variable helps")
    def test_taken_folder(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody else")
        user = 20000 + os.getpid() % 40000
        folder = f"/tmp/gpuprobe-{user}"
        os.mkdir(folder, 0o700)
        self.addCleanup(os.rmdir, folder)
        os.chown(folder, 65534, 65534)
        taken = self.as_somebody(64, [HOST_EDGES, "cuda", "wait:50", "exit:3"], {**LOADINGS["injection"], "XDG_RUNTIME_DIR": None})
        if taken.returncode != 3:
            self.skipTest("nobody else may run what was built here")
        self.assertIn(b"is not this user's alone; set XDG_RUNTIME_DIR or GPUPROBE_SOCKET", taken.stderr)
        self.assertEqual(taken.stdout, b"")
        helped = self.as_somebody(64, [HOST_EDGES, "cuda", "wait:50", "exit:3"], {**LOADINGS["injection"], **harness.PATIENT})
        self.assertIn(b"recording to", helped.stderr)

    @hazard("no file may grow (RLIMIT_FSIZE), and standard error is a file", sees="no SIGXFSZ", counted="the probe's line is not written")
    def test_no_file_may_grow(self):
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                self.run_well([HOST_EDGES, "limit:fsize", "cuda", "wait:50"],
                              env={**loading, "GPUPROBE_NO_SUCH": "1", "GPUPROBE_AUTOSTART": "0", "GPUSIM_TRUTH": None})

    @hazard("no thread can be created (RLIMIT_NPROC)", sees="no difference", counted="nothing is recorded")
    def test_no_thread_can_be_made(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody else")
        for loading in LOADINGS.values():
            os.chmod(self.folder, 0o755)
            finished = self.run_program([HOST_EDGES, "limit:nproc", "start", "exit:0"], env={**loading, "GPUSIM_TRUTH": None})
            plain = self.run_program([HOST_EDGES, "limit:nproc", "start", "exit:0"], env={"GPUSIM_TRUTH": None})
            self.assertEqual((finished.returncode, finished.stderr), (plain.returncode, plain.stderr), str(finished))

    def as_somebody(self, tasks, command, extra=None):
        """Runs the command as a user who has nothing else here and may have so many processes and threads."""
        user = 20000 + os.getpid() % 40000
        for folder, folders, _ in os.walk(self.folder):
            for name in (".", *folders):
                os.chown(os.path.join(folder, name), user, user)
        program = harness.Running(["bash", "-c", 'ulimit -u "$0" && exec "$@"', str(tasks), *command], self.env({"GPUSIM_TRUTH": None, **(extra or {})}),
                                  self.cwd, self.folder, user=user, group=user)
        try:
            finished = program.wait()
        finally:
            program.kill()
            program.close()
        self.assert_nothing_runs()
        return finished

    @hazard("only as many processes and threads are allowed as the program itself has (RLIMIT_NPROC)", sees="no difference, however few there are",
            counted="with room for the probe's thread and the collector, everything is recorded; with less, nothing")
    def test_few_processes(self):
        if os.getuid() != 0:
            self.skipTest("only root can become somebody else, and the limit is not root's")
        command = [HOST_EDGES, "cuda", "wait:100", "exit:3"]
        if self.as_somebody(1, command).returncode != 3:
            self.skipTest("nobody else may run what was built here")
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                seen = []
                for tasks in range(1, 12):
                    finished = self.as_somebody(tasks, command, {**loading, **harness.PATIENT})
                    self.assertEqual((finished.returncode, finished.stdout), (3, b""), str(finished))
                    seen.append("recorded" if b"recording to" in finished.stderr else
                                "no collector" if b"the gpuprobe program did not start" in finished.stderr else finished.stderr.decode())
                    if seen[-1] == "recorded":
                        break
                # Without a thread of ours nobody can say a line.
                self.assertEqual(list(dict.fromkeys(seen)), ["", "no collector", "recorded"], f"with 1, 2, ... of them: {seen}")
                self.assertEqual(len(self.report(self.only_run_directory())["ranks"]), 1)
                shutil.rmtree(os.path.join(self.cwd, "gpuprobe-runs"))

    @hazard("the run directory is on a disk that fills up (ENOSPC)", sees="output and status unchanged",
            counted="`gpuprobe run` reports everything and says how many batches are not on disk; a later report has what is on disk")
    def test_small_disk(self):
        out = self.path("small")
        os.mkdir(out)
        mounted = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=64k none {out} && "$@"', "sh"]
        if self.run_program([*mounted, "true"]).returncode != 0:
            self.skipTest("mounting is not permitted here")
        command = [harness.CUDA_SCRIPT, "kernels:60000", "print:end", "return:9"]
        plain = self.run_program([*mounted, *command])
        finished = self.run_program([*mounted, GPUPROBE, "run", "--out", out, "--", *command], env=self.autostarts())
        self.assertEqual((finished.returncode, finished.stdout), (plain.returncode, plain.stdout), str(finished))
        self.assertRegex(finished.stderr, rb"records are no longer written: .*No space left on device")
        self.assertRegex(finished.stderr, rb"120,002 records, 0 records lost, \d+ batch(es)? NOT WRITTEN")
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                script = f'"$@"; echo "status $?"; exec {GPUPROBE} report {out} --json --ranks'
                finished = self.run_program([*mounted, "sh", "-c", script, "sh", *command],
                                            env={**self.autostarts(), **loading, **harness.PATIENT, "GPUPROBE_OUT": out})
                output, status, report = finished.stdout.partition(b"status 9\n")
                self.assertEqual((output, status), (plain.stdout, b"status 9\n"), str(finished))
                self.assertIn(json.loads(report)["ranks"][0]["kernels"]["count"], range(1, 60000))
                self.assert_nothing_runs()

    @hazard("the working directory has been deleted", sees="no difference", counted="the run directory is in /tmp")
    def test_working_directory_is_gone(self):
        for loading in LOADINGS.values():
            os.makedirs(self.path("gone"), exist_ok=True)
            finished = self.run_well([HOST_EDGES, "gone", "start"], env={**self.autostarts(), **loading, "GPUPROBE_AUTOSTART": "0"}, cwd=self.path("gone"))
            self.assertEqual(finished.stderr, b"")
        self.assert_nothing_runs()

    @hazard("the collector that the probe started never comes up", sees="exit takes at most a fifth of a second longer", counted="nothing is recorded")
    def test_collector_that_never_comes_up(self):
        folder = self.path("broken", "lib")
        os.makedirs(folder)
        library = os.path.join(folder, "libgpuprobe.so")
        shutil.copy(LIBRARY, library)
        with open(self.path("broken", "lib", "gpuprobe"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec sleep 3\n")
        os.chmod(self.path("broken", "lib", "gpuprobe"), 0o755)
        for name, loading in {"injection": "CUDA_INJECTION64_PATH", "preload": "LD_PRELOAD"}.items():
            with self.subTest(loading=name):
                began = time.monotonic()
                self.run_well([HOST_EDGES, "start", "exit:0"], env={**self.autostarts(), loading: library})
                self.assertLess(time.monotonic() - began, 1.5)
        self.assert_nothing_runs()


if __name__ == "__main__":
    harness.main()
