"""Bad situations at the edges of a process, one after the other: the program behaves as without the probe, and what is recorded or lost is counted."""
import os
import resource
import shutil
import signal
import stat
import sys
import unittest

import harness
from harness import BUILD, CUDA_SCRIPT, GPUPROBE, LIBRARY, SOURCE
from hazards import hazard

BAD_SITUATIONS = os.path.join(BUILD, "tests", "e2e", "bad_situations")
LATE_ENDS = os.path.join(BUILD, "tests", "e2e", "late_ends.so")
PYTHON_CUDA = os.path.join(SOURCE, "tests", "e2e", "programs", "python_processes.py")
LOADINGS = {"injection": {"CUDA_INJECTION64_PATH": LIBRARY}, "preload": {"LD_PRELOAD": LIBRARY, "CUDA_INJECTION64_PATH": LIBRARY}}
SOME_USER = 65534


def library_path(name):
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return None


def limited(*limits):
    """A launcher that sets resource limits, and gives the program the signal dispositions that Python changes."""
    script = ("import os,resource,signal,sys\n"
              f"for limit, most in {list(limits)}:\n    resource.setrlimit(limit, (most, most))\n"
              "for number in (signal.SIGPIPE, signal.SIGXFSZ):\n    signal.signal(number, signal.SIG_DFL)\n"
              "os.execv(sys.argv[1], sys.argv[1:])")
    return [sys.executable, "-c", script]


def needs_root(test):
    return unittest.skipUnless(os.geteuid() == 0, "only root can")(test)


class BadSituations(harness.EndToEndTest):

    def compare(self, *operations, env=None, program=BAD_SITUATIONS, loadings=LOADINGS, before=None, launcher=()):
        """Runs the program without and with the probe, loaded in each way, and compares everything that can be seen of it.

        `before` prepares each run. Returns the last way's report, or None if nothing was recorded.
        """
        command = [*launcher, program, *operations]
        prepare = before or (lambda: None)
        prepare()
        plain = self.run_program(command, env=env)
        files = sorted(os.listdir(self.cwd))
        report = None
        for name, loading in loadings.items():
            with self.subTest(loading=name):
                self.forget_truth()
                prepare()
                collector = harness.Collector(self)
                # What the environment of the case says about loading comes before the probe's.
                extra = {**collector.env(), **loading, **(env or {})}
                if "LD_PRELOAD" in (env or {}) and "LD_PRELOAD" in loading:
                    extra["LD_PRELOAD"] = f"{env['LD_PRELOAD']}:{loading['LD_PRELOAD']}"
                probed = self.run_program(command, env=extra)
                self.assertEqual(probed.outcome, plain.outcome, str(probed))
                self.assertEqual(sorted(os.listdir(self.cwd)), files)
                self.assert_nothing_runs(but=[collector.program])
                self.assertEqual(collector.stop().returncode, 0)
                self.last_out = collector.out
                report = self.report(collector.out) if os.path.exists(os.path.join(collector.out, "report.json")) else None
        return report

    def assert_kernels(self, report, *counts):
        """The kernels of each recorded process, in any order, without a loss."""
        self.assertIsNotNone(report, "nothing was recorded")
        self.assertEqual(sorted(rank["kernels"]["count"] for rank in report["ranks"]), sorted(counts))
        self.assert_no_loss(report)

    def kernels(self, report):
        return 0 if report is None else sum(rank["kernels"]["count"] for rank in report["ranks"])


class Ending(BadSituations):

    @hazard("exit handlers call CUDA, some registered before and some after CUDA was started", sees="its handlers run as without the probe",
            counted="handlers from after CUDA's start are recorded; older ones run after our last flush")
    def test_exit_handlers(self):
        report = self.compare("exit-handlers:4", "print:main returns")
        self.assertGreaterEqual(self.kernels(report), 8)
        self.assertLessEqual(self.kernels(report), 12)

    @hazard("a static destructor calls CUDA", sees="its destructor runs as without the probe", counted="everything from before the exit handlers is recorded")
    def test_static_destructor(self):
        self.assertGreaterEqual(self.kernels(self.compare("static-destructor:4", "print:main returns")), 4)

    @hazard("quick_exit, with a handler that calls CUDA", sees="its quick_exit handlers run, status unchanged", counted="the rank is marked as cut off")
    def test_quick_exit(self):
        report = self.compare("quick-exit:4")
        if report is not None and report["ranks"]:
            self.assertTrue(report["ranks"][0]["cut_off"])

    @hazard("a thread other than main calls exit", sees="ends with its own status", counted="everything is recorded")
    def test_exit_from_a_thread(self):
        self.assert_kernels(self.compare("exit-from-thread:5"), 5)

    @hazard("the main thread calls pthread_exit while others go on", sees="the others run to the end", counted="everything is recorded")
    def test_main_thread_leaves(self):
        self.assert_kernels(self.compare("main-thread-leaves:5"), 5)

    @hazard("a program replaces itself with execve while it is recorded", sees="the new program runs with the same pid",
            counted="what the first program delivered, and all of the second, is recorded")
    def test_exec_over(self):
        report = self.compare("work:3", "exec-over:4")
        self.assertGreaterEqual(max(rank["kernels"]["count"] for rank in report["ranks"]), 4)

    @hazard("the program is stopped (SIGSTOP) until its collector has ended, then continued", sees="runs to its own end",
            counted="what was delivered before is in the report; the rank is marked as cut off")
    def test_stopped_past_the_collectors_end(self):
        operations = ["work:3", f"touch:{self.path('ready')}", f"await:{self.path('go')}", "work:3", "print:done"]
        open(self.path("go"), "w", encoding="utf-8").close()
        plain = self.run_program([BAD_SITUATIONS, *operations])
        os.unlink(self.path("go"))
        os.unlink(self.path("ready"))
        collector = harness.Collector(self)
        program = self.start([BAD_SITUATIONS, *operations], env={**collector.env(), **LOADINGS["injection"], "GPUPROBE_FLUSH_MS": "20",
                                                             "GPUPROBE_EXIT_WAIT_MS": "500"})
        harness.wait_until(lambda: os.path.exists(self.path("ready")), "the program's readiness")
        program.signal(signal.SIGSTOP)
        harness.wait_until(lambda: b"State:\tT" in harness.read_proc(program.pid, "status"), "stop")
        self.assertEqual(collector.stop().returncode, 0)
        open(self.path("go"), "w", encoding="utf-8").close()
        program.signal(signal.SIGCONT)
        self.assertEqual(program.wait().outcome, plain.outcome)
        self.assert_nothing_runs()
        self.assertTrue(os.path.isdir(collector.out))

    @hazard("the collector is stopped (SIGSTOP) past the program's exit", sees="ends after at most GPUPROBE_EXIT_WAIT_MS, status unchanged",
            counted="what was sent is in the report once the collector goes on")
    def test_collector_stopped_past_exit(self):
        plain = self.run_program([BAD_SITUATIONS, "work:5", "print:done"])
        collector = harness.Collector(self)
        collector.program.signal(signal.SIGSTOP)
        probed = self.run_program([BAD_SITUATIONS, "work:5", "print:done"], env={**collector.env(), **LOADINGS["injection"], "GPUPROBE_EXIT_WAIT_MS": "300"}, limit=20)
        self.assertEqual(probed.outcome, plain.outcome)
        collector.program.signal(signal.SIGCONT)
        self.assertEqual(collector.stop().returncode, 0)


class Processes(BadSituations):

    @hazard("vfork and exec of a CUDA program", sees="parent and child run as without the probe", counted="both are recorded, nothing lost")
    def test_vfork_and_exec(self):
        self.assert_kernels(self.compare("work:2", "vfork-exec:3", "work:2"), 3, 4)

    @hazard("a vforked child calls _exit", sees="parent goes on", counted="the parent is recorded, nothing lost")
    def test_vfork_and_exit(self):
        self.assert_kernels(self.compare("work:2", "vfork-exit", "work:2"), 4)

    @hazard("posix_spawn of a CUDA program", sees="parent and child run as without the probe", counted="both are recorded, nothing lost")
    def test_posix_spawn(self):
        self.assert_kernels(self.compare("work:2", "spawn:3", "work:2"), 3, 4)

    @hazard("system() and popen() of a program that uses CUDA", sees="output and status of its children unchanged", counted="the parent is recorded, nothing lost")
    def test_system_and_popen(self):
        self.assert_kernels(self.compare("work:2", "system", "work:2"), 4)

    @hazard("a program daemonises itself, then uses CUDA", sees="the daemon does its work", counted="the daemon is recorded, nothing lost")
    def test_daemon(self):
        ready = self.path("daemon-done")
        for name, loading in {"plain": None, **LOADINGS}.items():
            with self.subTest(loading=name):
                collector = harness.Collector(self) if loading else None
                finished = self.run_program([BAD_SITUATIONS, "daemon:4", f"touch:{ready}"], env={**collector.env(), **loading} if loading else None)
                self.assertEqual((finished.returncode, finished.stderr), (0, b""))
                harness.wait_until(lambda: os.path.exists(ready), "the daemon's end")
                os.unlink(ready)
                self.assert_nothing_runs(but=[collector.program] if collector else ())
                if collector:
                    self.assertEqual(collector.stop().returncode, 0)
                    self.assert_kernels(self.report(collector.out), 4)

    @hazard("a hundred children are forked while eight threads call CUDA", sees="every child ends at once, with its own status",
            counted="only the parent is recorded")
    def test_fork_among_threads(self):
        report = self.compare("fork-among-threads:100")
        self.assertEqual(len(report["ranks"]), 1)
        self.assert_no_loss(report)

    @hazard("a program waits for any child (waitpid(-1))", sees="ECHILD: the collector is not its child", counted="nothing to report")
    def test_no_child_of_ours(self):
        plain = self.run_program([BAD_SITUATIONS, "no-child"])
        self.assertIn(b"No child processes", plain.stdout)
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                probed = self.run_program([BAD_SITUATIONS, "no-child"], env={**loading, **harness.PATIENT})
                self.assertEqual((probed.returncode, probed.stdout), (plain.returncode, plain.stdout))
                self.assert_nothing_runs()

    def in_a_container(self, command):
        """The command as the first process of a PID namespace."""
        return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *command]

    def adopting(self, launcher, *operations, before=None, says=rb""):
        """A program that adopts orphans sees its own children only, whatever the probe would like to start."""
        command = [*launcher, BAD_SITUATIONS, *operations]
        prepare = before or (lambda: None)
        prepare()
        plain = self.run_program(command)
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name, command=command):
                prepare()
                probed = self.run_program(command, env={**loading, **harness.PATIENT})
                self.assertEqual((probed.returncode, probed.stdout), (plain.returncode, plain.stdout), str(probed))
                self.assertRegex(probed.stderr, says)
                self.assert_nothing_runs()

    NO_COLLECTOR = rb"gpuprobe: no collector at .*this process adopts orphans, so the collector would be its child\); nothing is recorded. Start gpuprobe collect"

    @hazard("a program that adopts orphans (a subreaper) waits for any child, and no collector is there", sees="ECHILD: no collector is started, which would be its child",
            counted="nothing is recorded; one line says why and what to do")
    def test_subreaper(self):
        self.adopting([], "adopt-orphans", "no-child", says=self.NO_COLLECTOR)
        self.adopting([], "adopt-orphans", "work:2", "reap-all", says=self.NO_COLLECTOR)
        self.assertFalse(os.path.exists(os.path.join(self.cwd, "gpuprobe-runs")))

    @hazard("a program that is PID 1 of a container waits for any child, and no collector is there", sees="ECHILD: no collector is started, which would be its child",
            counted="nothing is recorded; one line says why and what to do")
    def test_first_process_of_a_container(self):
        if self.run_program(self.in_a_container(["true"])).returncode != 0:
            self.skipTest("PID namespaces are not permitted here")
        self.adopting(self.in_a_container([]), "no-child", says=self.NO_COLLECTOR)
        self.adopting(self.in_a_container([]), "work:2", "reap-all", says=self.NO_COLLECTOR)

    @hazard("a program begins to adopt orphans after the collector was started", sees="ECHILD: the collector stays another process's child",
            counted="everything is recorded, nothing lost")
    def test_subreaper_from_later_on(self):
        self.adopting([], "work:2", "wait-long", "adopt-orphans", "no-child", says=rb"gpuprobe: recording to ")

    @hazard("a program's child starts a collector, which the program adopts; then the program itself uses CUDA and waits for all its children",
            sees="its wait ends: a collector refuses its own parent, and ends after its last client",
            counted="the child is recorded; one line says why the parent is not")
    def test_collector_of_a_child(self):
        def fresh():
            for name in ("ready", "go"):
                if os.path.exists(os.path.join(self.cwd, name)):
                    os.unlink(os.path.join(self.cwd, name))
        operations = ["leave-running:2", "await:ready", "wait-long", "work:2", "wait-long", "touch:go", "reap-all"]
        refused = rb"gpuprobe: the collector refused: pid \d+ adopts orphans, and has become the parent of this collector"
        self.adopting([], "adopt-orphans", *operations, before=fresh, says=refused)
        if self.run_program(self.in_a_container(["true"])).returncode == 0:
            self.adopting(self.in_a_container([]), *operations, before=fresh, says=refused)

    @hazard("the first process of a container only starts the program and reaps (docker --init)", sees="no difference", counted="everything is recorded, nothing lost")
    def test_init_of_a_container(self):
        init = ("import os, sys\nchild = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])\n"
                "while True:\n    pid, status = os.wait()\n    if pid == child:\n        os._exit(os.waitstatus_to_exitcode(status))")
        if self.run_program(self.in_a_container(["true"])).returncode != 0:
            self.skipTest("PID namespaces are not permitted here")
        self.adopting(self.in_a_container([sys.executable, "-c", init]), "work:5", "no-child", says=rb"gpuprobe: recording to ")
        for run in os.listdir(os.path.join(self.cwd, "gpuprobe-runs")):
            self.assert_kernels(self.report(os.path.join(self.cwd, "gpuprobe-runs", run)), 6)

    def python_processes(self, way):
        report = self.compare(PYTHON_CUDA, way, harness.SIM_LIB, program=sys.executable)
        self.assertEqual(len(report["ranks"]), 2, "the two workers")
        self.assert_no_loss(report)

    @hazard("Python workers made by fork use CUDA", sees="workers' results unchanged", counted="each worker is recorded as a process, nothing lost")
    def test_python_fork(self):
        self.python_processes("fork")

    @hazard("Python workers made by spawn use CUDA", sees="workers' results unchanged", counted="each worker is recorded as a process, nothing lost")
    def test_python_spawn(self):
        self.python_processes("spawn")

    @hazard("Python workers made by a fork server use CUDA", sees="workers' results unchanged", counted="each worker is recorded as a process, nothing lost")
    def test_python_forkserver(self):
        self.python_processes("forkserver")

    @hazard("the command of `gpuprobe run` leaves a background process behind", sees="`gpuprobe run` ends with the command's status; the process goes on",
            counted="the report is written without waiting for it")
    def test_background_process(self):
        script = f"({CUDA_SCRIPT} kernels:2 print:left await:{self.path('go')} >/dev/null 2>&1 &) ; {CUDA_SCRIPT} kernels:3 return:4"
        finished = self.run_program([GPUPROBE, "run", "--out", self.path("out"), "--", "/bin/sh", "-c", script])
        self.assertEqual(finished.returncode, 4, str(finished))
        left = [pid for pid in harness.all_pids() if self.mark.encode() in harness.read_proc(pid, "environ")]
        self.assertEqual(len(left), 1, harness.describe_processes(left))
        self.assertIn(3, [rank["kernels"]["count"] for rank in self.report(self.path("out"))["ranks"]])
        open(self.path("go"), "w", encoding="utf-8").close()
        self.assert_nothing_runs()


class Signals(BadSituations):

    @hazard("two interval timers (SIGALRM, SIGPROF) interrupt the program every half millisecond, on an alternate stack",
            sees="its handler runs on its own stack; every interrupted call continues", counted="everything is recorded, nothing lost")
    def test_timers(self):
        self.assert_kernels(self.compare("timers:200"), 200)

    @hazard("the program handles every signal there is, and gets each many times", sees="every signal arrives at its own handlers",
            counted="everything is recorded, nothing lost")
    def test_every_signal(self):
        self.assert_kernels(self.compare("every-signal:3"), 4)

    @hazard("the program depends on its process state: signals, umask, working directory, locale, rounding, limits, timers, thread name",
            sees="all of it is unchanged while CUDA starts and works", counted="everything is recorded, nothing lost")
    def test_process_state(self):
        self.assert_kernels(self.compare("state:5"), 5)

    def priorities(self, tids):
        """Policy, real-time priority, nice value and processors of each."""
        return {(os.sched_getscheduler(tid), os.sched_getparam(tid).sched_priority, os.getpriority(os.PRIO_PROCESS, tid), tuple(sorted(os.sched_getaffinity(tid))))
                for tid in tids}

    @hazard("the program runs in real time (SCHED_FIFO), on one processor, at a raised priority", sees="nothing of ours runs before it, or only on its processor",
            counted="everything is recorded, nothing lost")
    def test_real_time(self):
        if self.run_program([BAD_SITUATIONS, "real-time"]).stderr:
            self.skipTest("real-time priorities are not permitted here")
        operations = ["real-time", "work:3", f"touch:{self.path('ready')}", f"await:{self.path('go')}", "work:2", "print:done"]
        ordinary = (os.SCHED_OTHER, 0, 0, tuple(sorted(os.sched_getaffinity(0))))
        raised = (os.SCHED_FIFO, 20, -5, (0,))
        lock = self.path("run", "gpuprobe", "collector.sock.lock")
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                program = self.start([BAD_SITUATIONS, *operations], env={**loading, **harness.PATIENT})
                harness.wait_until(lambda: os.path.exists(self.path("ready")) and os.path.exists(lock) and harness.read_file(lock).strip(), "the collector")
                own = [int(tid) for tid in os.listdir(f"/proc/{program.pid}/task") if harness.read_proc(program.pid, f"task/{tid}/comm") == b"gpuprobe\n"]
                collector = int(harness.read_file(lock))
                self.assertEqual(self.priorities([program.pid]), {raised})
                self.assertTrue(own)
                harness.wait_until(lambda: self.priorities(own) == {ordinary}, "the ordinary priority of our thread", limit=20)
                self.assertEqual(self.priorities(int(tid) for tid in os.listdir(f"/proc/{collector}/task")), {ordinary})
                open(self.path("go"), "w", encoding="utf-8").close()
                finished = program.wait()
                self.assertEqual((finished.returncode, finished.stdout), (0, b"done\n"))
                self.assert_nothing_runs()
                os.unlink(self.path("ready"))
                os.unlink(self.path("go"))

    @hazard("`gpuprobe run` is started in real time, or bound to one processor (chrt, taskset)", sees="the command has what it was given",
            counted="its recording runs at ordinary priority, on any processor")
    def test_run_in_real_time(self):
        launcher = ["chrt", "-f", "30", "taskset", "-c", "0"]
        if self.run_program([*launcher, "true"]).returncode != 0:
            self.skipTest("real-time priorities are not permitted here")
        operations = ["work:3", f"touch:{self.path('ready')}", f"await:{self.path('go')}", "print:done"]
        program = self.start([*launcher, GPUPROBE, "run", "--out", self.path("out"), "--", BAD_SITUATIONS, *operations])
        harness.wait_until(lambda: os.path.exists(self.path("ready")), "the program")
        collector, _witness, command = map(int, harness.read_proc(program.pid, f"task/{program.pid}/children").split())
        self.assertEqual(self.priorities([command]), {(os.SCHED_FIFO, 30, os.nice(0), (0,))})
        self.assertEqual(self.priorities(int(tid) for tid in os.listdir(f"/proc/{collector}/task")),
                         {(os.SCHED_OTHER, 0, os.nice(0), tuple(sorted(os.sched_getaffinity(0))))})
        open(self.path("go"), "w", encoding="utf-8").close()
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout), (0, b"done\n"), str(finished))
        self.assert_kernels(self.report(self.path("out")), 3)

    @hazard("the program throws and catches exceptions between its CUDA calls", sees="each is caught where it would be without the probe", counted="everything is recorded, nothing lost")
    def test_exceptions(self):
        self.assert_kernels(self.compare("exceptions:5"), 5)


class Size(BadSituations):

    @hazard("10,000 streams", sees="output and status unchanged", counted="a kernel of each stream is recorded, nothing lost")
    def test_streams(self):
        report = self.compare("streams:10000", loadings={"injection": LOADINGS["injection"]})
        self.assertEqual(self.kernels(report) + sum(report["trust"]["lost"].values()), 10000)

    @hazard("the device is reset 300 times", sees="output and status unchanged", counted="a kernel of each context is recorded, nothing lost")
    def test_resets(self):
        report = self.compare("resets:300", loadings={"injection": LOADINGS["injection"]})
        self.assertEqual(self.kernels(report) + sum(report["trust"]["lost"].values()), 300)

    @hazard("1,000 threads call CUDA at once", sees="output and status unchanged", counted="every kernel is recorded or counted as lost")
    def test_threads(self):
        report = self.compare("threads:1000", loadings={"injection": LOADINGS["injection"]})
        self.assertLessEqual(self.kernels(report), 1001)
        self.assertGreaterEqual(self.kernels(report) + sum(report["trust"]["lost"].values()), 1001)

    @hazard("threads with a stack of 64 KiB, half used up, call CUDA", sees="no overflow", counted="everything is recorded, nothing lost")
    def test_small_stacks(self):
        self.assert_kernels(self.compare("small-stacks:5"), 6)


class Limits(BadSituations):

    @hazard("only a few file descriptors are allowed (RLIMIT_NOFILE 32)", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_few_descriptors(self):
        self.assert_kernels(self.compare("work:5", "print:done", launcher=limited((resource.RLIMIT_NOFILE, 32))), 5)

    @hazard("no file may grow (RLIMIT_FSIZE 0)", sees="output and status unchanged, no SIGXFSZ", counted="everything is recorded: the probe writes no file")
    def test_no_files(self):
        for loading in LOADINGS.values():
            collector = harness.Collector(self)
            # Standard output is a pipe, and the node writes no truth log: these are files that would have to grow.
            finished = self.run_program(["sh", "-c", '"$@" | cat', "sh", *limited((resource.RLIMIT_FSIZE, 0)), BAD_SITUATIONS, "work:5", "print:done"],
                                        env={**collector.env(), **loading, "GPUSIM_TRUTH": None})
            self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (0, b"done\n", b""))
            self.assertEqual(collector.stop().returncode, 0)
            self.assert_kernels(self.report(collector.out), 5)

    @hazard("a small main stack (RLIMIT_STACK 256 KiB)", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_small_main_stack(self):
        self.assert_kernels(self.compare("work:5", "print:done", launcher=limited((resource.RLIMIT_STACK, 256 << 10))), 5)

    @hazard("no core files are allowed (RLIMIT_CORE 0), and the program aborts", sees="dies by SIGABRT, as without the probe", counted="the rank is marked as cut off")
    def test_abort_without_core(self):
        report = self.compare("kernels:3", "abort", program=CUDA_SCRIPT, launcher=limited((resource.RLIMIT_CORE, 0)))
        for rank in report["ranks"] if report else []:
            self.assertTrue(rank["cut_off"])

    @hazard("no memory may be locked (RLIMIT_MEMLOCK 0)", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_no_locked_memory(self):
        self.assert_kernels(self.compare("work:5", "print:done", launcher=limited((resource.RLIMIT_MEMLOCK, 0))), 5)

    @hazard("the program has used up all its file descriptors (EMFILE) when CUDA starts", sees="output and status unchanged",
            counted="nothing can be sent; a line says that nothing was recorded")
    def test_no_descriptors_left(self):
        self.compare("no-descriptors:5", "print:done", launcher=limited((resource.RLIMIT_NOFILE, 64)), env={"GPUSIM_TRUTH": None})

    @hazard("a sandbox refuses sockets (seccomp, EPERM)", sees="output and status unchanged", counted="nothing can be sent; nothing is recorded")
    def test_sandbox_without_sockets(self):
        for extra in ({"GPUPROBE_AUTOSTART": "0"}, {"GPUPROBE_AUTOSTART": "0", "GPUPROBE_IN_SANDBOX": "1"}):
            report = self.compare("no-sockets", "work:5", "print:done", env=extra)
            self.assertEqual(self.kernels(report), 0)

    @hazard("a sandbox refuses sockets (seccomp) while the probe is recording", sees="output and status unchanged", counted="the open connection stays in use, nothing lost")
    def test_sandbox_after_the_start(self):
        self.assert_kernels(self.compare("work:5", "no-sockets", "work:5", "print:done"), 10)

    @hazard("a sandbox kills the program (seccomp) for what only the probe would do, before CUDA starts", sees="output and status unchanged",
            counted="nothing is recorded, in silence: the sandbox might not even allow a line. GPUPROBE_IN_SANDBOX=1 overrides it")
    def test_killing_sandbox(self):
        for extra in ({"GPUPROBE_AUTOSTART": "0"}, {"GPUPROBE_SOCKET": None, "GPUPROBE_AUTOSTART": None}):
            self.assertEqual(self.kernels(self.compare("kill-filter:3", "work:5", "print:done", env=extra)), 0)

    @hazard("the program installs a filter that kills it (seccomp) for what only the probe would do, while it is recorded", sees="output and status unchanged",
            counted="recording ends before the filter is in force; one line says so, and the rank is marked as cut off")
    def test_killing_sandbox_after_the_start(self):
        ways = {0: "prctl", 1: "seccomp", 2: "seccomp for all threads", 4: "prctl, looked up by dlsym", 5: "syscall, looked up by dlsym", 6: "a library just opened"}
        for way, how in ways.items():
            for name, loading in LOADINGS.items():
                with self.subTest(loading=name, way=how):
                    self.check_killing_sandbox(way, loading)

    @hazard("the same, while a thread of the probe is slow to end", sees="output and status unchanged",
            counted="the filter is installed when the kernel has none of the probe's threads any more, or after 10 s")
    def test_killing_sandbox_while_threads_end(self):
        self.check_killing_sandbox(2, {"LD_PRELOAD": f"{LIBRARY}:{LATE_ENDS}", "CUDA_INJECTION64_PATH": LIBRARY}, 3)

    def check_killing_sandbox(self, way, loading, waits=0):
        operations = ["work:5", f"kill-filter:{way}", "spin-long", *["wait-long"] * waits, "work:5", "print:done"]
        plain = self.run_program([BAD_SITUATIONS, *operations], env={"GPUSIM_TRUTH": None})  # the filter forbids to write it
        self.assertEqual((plain.returncode, plain.stdout), (0, b"done\n"), str(plain))
        collector = harness.Collector(self)
        probed = self.run_program([BAD_SITUATIONS, *operations], env={**collector.env(), **loading, "GPUSIM_TRUTH": None})
        self.assertEqual((probed.returncode, probed.stdout), (plain.returncode, plain.stdout), str(probed))
        self.assertIn(b"gpuprobe: the program installs a system-call filter (seccomp) that may kill it; recording ends here", probed.stderr)
        self.assertEqual(collector.stop().returncode, 0)
        report = self.report(collector.out)
        self.assert_kernels(report, 5)
        self.assertTrue(report["ranks"][0]["cut_off"])

    @hazard("the collector's files may not grow (RLIMIT_FSIZE)", sees="output and status unchanged", counted="the collector survives and reports that records could not be written")
    def test_collector_that_cannot_write(self):
        plain = self.run_program([BAD_SITUATIONS, "work:2000", "print:done"])
        socket_path = self.path("small.sock")
        collector = self.start([*limited((resource.RLIMIT_FSIZE, 4096)), GPUPROBE, "collect", "--socket", socket_path, "--out", self.path("small")])
        harness.wait_until(lambda: harness.answers(socket_path) or not collector.alive(), "collector")
        probed = self.run_program([BAD_SITUATIONS, "work:2000", "print:done"],
                                  env={"GPUPROBE_SOCKET": socket_path, "GPUPROBE_AUTOSTART": "0", **LOADINGS["injection"]})
        self.assertEqual(probed.outcome, plain.outcome)
        collector.signal(signal.SIGTERM)
        finished = collector.wait()
        self.assertGreaterEqual(finished.returncode, 0, f"died by a signal: {finished}")
        self.assertIn(b"too large", finished.stderr.lower() + finished.stdout.lower(), str(finished))


class Surroundings(BadSituations):

    @hazard("the environment is empty except for the library paths", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_empty_environment(self):
        plain = self.run_program(["/usr/bin/env", "-i", f"LD_LIBRARY_PATH={harness.SIM_LIB}", BAD_SITUATIONS, "work:5", "print:done"])
        collector = harness.Collector(self)
        probed = self.run_program(["/usr/bin/env", "-i", f"LD_LIBRARY_PATH={harness.SIM_LIB}", f"CUDA_INJECTION64_PATH={LIBRARY}",
                                   f"GPUPROBE_SOCKET={collector.socket}", "GPUPROBE_AUTOSTART=0", "GPUPROBE_EXIT_WAIT_MS=60000", BAD_SITUATIONS, "work:5", "print:done"])
        self.assertEqual(probed.outcome, plain.outcome)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_kernels(self.report(collector.out), 5)

    @hazard("the environment holds 1 MiB in 10,000 variables", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_huge_environment(self):
        huge = {f"HUGE_{i:05d}": "x" * 90 for i in range(10000)}
        self.assert_kernels(self.compare("work:5", "print:done", env=huge), 5)

    @hazard("1 MiB of environment, and the probe has to start the collector", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_huge_environment_with_autostart(self):
        huge = {f"HUGE_{i:05d}": "x" * 90 for i in range(10000)}
        plain = self.run_program([BAD_SITUATIONS, "work:5", "print:done"], env=huge)
        probed = self.run_program([BAD_SITUATIONS, "work:5", "print:done"], env={**huge, **LOADINGS["injection"], **harness.PATIENT})
        self.assertEqual((probed.returncode, probed.stdout), (plain.returncode, plain.stdout))
        self.assert_nothing_runs()
        self.assert_kernels(self.report(self.only_run_directory()), 5)

    @hazard("the program clears its environment, then uses CUDA", sees="output and status unchanged", counted="CUDA no longer finds the preloaded probe: nothing is recorded")
    def test_cleared_before_cuda(self):
        self.compare("clear-environment", "work:5", "print:done")

    @hazard("the program clears its environment while it is recorded", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_cleared_while_recording(self):
        self.assert_kernels(self.compare("work:5", "clear-environment", "work:5", "print:done"), 10)

    @hazard("the program changes its working directory while it is recorded", sees="output and status unchanged, nothing written there", counted="everything is recorded, nothing lost")
    def test_chdir(self):
        os.mkdir(self.path("elsewhere"))
        self.assert_kernels(self.compare("work:5", f"chdir:{self.path('elsewhere')}", "work:5", "print:done"), 10)
        self.assertEqual(os.listdir(self.path("elsewhere")), [])

    @hazard("the working directory is deleted before CUDA starts, and the probe has to start the collector", sees="output and status unchanged",
            counted="the run directory is created in another place that the user owns")
    def test_deleted_folder(self):
        doomed = self.path("doomed")
        for loading in (None, *LOADINGS.values()):
            os.mkdir(doomed)
            env = {**loading, "GPUPROBE_OUT": self.path("out-of-the-way"), **harness.PATIENT} if loading else None
            finished = self.run_program([BAD_SITUATIONS, f"chdir:{doomed}", f"rmdir:{doomed}", "work:5", "print:done"], env=env)
            self.assertEqual((finished.returncode, finished.stdout), (0, b"done\n"), str(finished))
            self.assert_nothing_runs()
            if loading:
                self.assert_kernels(self.report(self.path("out-of-the-way")), 5)
                shutil.rmtree(self.path("out-of-the-way"))

    @needs_root
    @hazard("the program enters a chroot while it is recorded", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_chroot(self):
        os.mkdir(self.path("jail"))
        self.assert_kernels(self.compare("work:5", f"chroot:{self.path('jail')}", "work:5", "print:done"), 10)
        self.assertEqual(os.listdir(self.path("jail")), [])

    @needs_root
    @hazard("the program enters an empty chroot before CUDA starts", sees="output and status unchanged", counted="no collector is reached: nothing is recorded")
    def test_chroot_before_cuda(self):
        os.mkdir(self.path("jail"))
        command = [BAD_SITUATIONS, f"chroot:{self.path('jail')}", "work:5", "print:done"]
        plain = self.run_program(command, env={"GPUSIM_TRUTH": None})
        for loading in LOADINGS.values():
            probed = self.run_program(command, env={**loading, "GPUSIM_TRUTH": None, "GPUPROBE_AUTOSTART": "0"})
            self.assertEqual(probed.outcome, plain.outcome)

    @needs_root
    @hazard("the program enters a chroot without /proc before CUDA starts; the collector's socket and the libraries are in it",
            sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_chroot_without_proc(self):
        jail = self.path("jail")
        for name in (LIBRARY, *(os.path.join(harness.SIM_LIB, library) for library in os.listdir(harness.SIM_LIB))):
            if os.path.isfile(name):
                os.makedirs(jail + os.path.dirname(name), exist_ok=True)
                shutil.copy(name, jail + name)
        os.mkdir(os.path.join(jail, "run"))
        command = [BAD_SITUATIONS, f"chroot:{jail}", "work:5", "print:done"]
        plain = self.run_program(command, env={"GPUSIM_TRUTH": None})
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                collector = self.start([GPUPROBE, "collect", "--socket", os.path.join(jail, "run", "c.sock"), "--out", self.path(name)])
                harness.wait_until(lambda: harness.answers(os.path.join(jail, "run", "c.sock")), "collector")
                probed = self.run_program(command, env={**loading, "GPUSIM_TRUTH": None, "GPUPROBE_AUTOSTART": "0", "GPUPROBE_SOCKET": "/run/c.sock", **harness.PATIENT})
                self.assertEqual(probed.outcome, plain.outcome)
                collector.signal(signal.SIGTERM)
                self.assertEqual(collector.wait().returncode, 0)
                self.assert_kernels(self.report(self.path(name)), 5)

    @needs_root
    @hazard("the program gives up root while it is recorded", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_other_user(self):
        self.assert_kernels(self.compare("work:5", f"set-user:{SOME_USER}", "work:5", "print:done"), 10)

    @needs_root
    @hazard("a set-user-ID program under `gpuprobe run`", sees="runs with its own rights; the loader ignores the probe", counted="one line says so")
    def test_set_user_id(self):
        program = self.path("setuid_program")
        shutil.copy(harness.PLAIN_PROGRAM, program)
        os.chown(program, SOME_USER, SOME_USER)
        os.chmod(program, 0o755 | stat.S_ISUID)
        os.chmod(self.folder, 0o755)
        plain = self.run_program([program])
        finished = self.run_program([GPUPROBE, "run", "--out", self.path("out"), "--", program])
        self.assertEqual((finished.returncode, finished.stdout), (plain.returncode, plain.stdout))
        self.assertIn(b"set-user-ID", finished.stderr)

    @hazard("the program closes every descriptor from 3 up while it is recorded", sees="output and status unchanged", counted="nothing is lost, or the rank is marked as cut off")
    def test_close_everything(self):
        report = self.compare("work:5", "close-all", "work:5", "print:done", env={"GPUSIM_TRUTH": None, "GPUPROBE_EXIT_WAIT_MS": "500"})
        if report is None or self.kernels(report) < 10:
            self.assertTrue(report is None or report["ranks"][0]["cut_off"], report)


class OtherTools(BadSituations):

    def with_allocator(self, name):
        path = library_path(name)
        if path is None:
            raise unittest.SkipTest(f"no {name}")
        self.assert_kernels(self.compare("work:5", "threads:20", "print:done", env={"LD_PRELOAD": path}), 26)

    @hazard("jemalloc is preloaded", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_jemalloc(self):
        self.with_allocator("libjemalloc.so.2")

    @hazard("tcmalloc is preloaded", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_tcmalloc(self):
        self.with_allocator("libtcmalloc_minimal.so.4")

    @unittest.skipUnless(shutil.which("valgrind"), "no valgrind")
    @hazard("the program runs under valgrind's memcheck", sees="output and status unchanged, no additional errors", counted="everything recorded is in the report, nothing lost")
    def test_valgrind(self):
        launcher = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=no"]
        plain = self.run_program([*launcher, BAD_SITUATIONS, "work:3", "print:done"])
        collector = harness.Collector(self)
        probed = self.run_program([*launcher, BAD_SITUATIONS, "work:3", "print:done"], env={**collector.env(), **LOADINGS["injection"]})
        self.assertEqual(probed.outcome, plain.outcome, str(probed))
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_kernels(self.report(collector.out), 3)

    @unittest.skipUnless(shutil.which("gdb"), "no gdb")
    @hazard("a debugger stops the program at a breakpoint and goes on", sees="stops where it should, then runs to its end", counted="everything is recorded, nothing lost")
    def test_gdb(self):
        commands = ["-ex", "set debuginfod enabled off", "-ex", "set confirm off", "-ex", "break cudaDeviceSynchronize", "-ex", "run", "-ex", "delete", "-ex", "continue"]
        collector = harness.Collector(self)
        for loading in (None, LOADINGS["injection"]):
            env = {**collector.env(), **loading} if loading else {}
            settings = [part for name, value in env.items() for part in ("-ex", f"set environment {name}={value}")]
            finished = self.run_program(["gdb", "-nx", "-batch", *settings, *commands, "--args", BAD_SITUATIONS, "work:3", "print:done"])
            if b"ptrace" in finished.stderr:
                raise unittest.SkipTest("processes may not be traced here")
            self.assertIn(b"Breakpoint 1, ", finished.stdout, str(finished))
            self.assertIn(b"done\n", finished.stdout)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_kernels(self.report(collector.out), 3)

    @unittest.skipUnless(shutil.which("gdb"), "no gdb")
    @hazard("a debugger attaches to the running program and detaches, three times", sees="runs to its own end", counted="everything is recorded, nothing lost")
    def test_gdb_attaches(self):
        command = [CUDA_SCRIPT, "kernels:5", f"touch:{self.path('begun')}", f"await:{self.path('go')}", "kernels:5", "print:done", "return:7"]
        for name, loading in LOADINGS.items():
            with self.subTest(loading=name):
                collector = harness.Collector(self)
                program = self.start(command, env={**collector.env(), **loading})
                harness.wait_until(lambda: os.path.exists(self.path("begun")), "first kernels")
                for _ in range(3):
                    debugger = self.run_program(["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-solib-add off",
                                                 "-p", str(program.pid), "-ex", "info threads", "-ex", "detach"], env={"LD_LIBRARY_PATH": None})
                    if b"ptrace" in debugger.stderr:
                        raise unittest.SkipTest("processes may not be traced here")
                    self.assertIn(b"detached]", debugger.stdout, str(debugger))
                with open(self.path("go"), "wb"):
                    pass
                finished = program.wait()
                self.assertEqual(finished.outcome, (7, b"done\n", b""))
                os.unlink(self.path("begun"))
                os.unlink(self.path("go"))
                self.assertEqual(collector.stop().returncode, 0)
                self.assert_kernels(self.report(collector.out), 10)

    @hazard("two copies of the probe are loaded, one preloaded and one by CUDA, from different files", sees="output and status unchanged",
            counted="the process is recorded once")
    def test_two_copies(self):
        other = self.path("libgpuprobe.so")
        shutil.copy(LIBRARY, other)
        report = self.compare("work:5", "print:done", loadings={"two": {"LD_PRELOAD": LIBRARY, "CUDA_INJECTION64_PATH": other}})
        self.assertEqual(self.kernels(report), 5)

    @hazard("`gpuprobe run` under `gpuprobe run`", sees="output and status unchanged", counted="the inner run records everything; the outer one says that nothing was recorded")
    def test_nested_runs(self):
        plain = self.run_program([CUDA_SCRIPT, "kernels:5", "print:done", "return:7"])
        finished = self.run_program([GPUPROBE, "run", "--out", self.path("outer"), "--", GPUPROBE, "run", "--out", self.path("inner"), "--",
                                     CUDA_SCRIPT, "kernels:5", "print:done", "return:7"])
        self.assertEqual((finished.returncode, finished.stdout), (plain.returncode, plain.stdout), str(finished))
        self.assert_kernels(self.report(self.path("inner")), 5)
        self.assertIn(b"nothing was recorded", finished.stderr)
        self.assertFalse(os.path.exists(self.path("outer")))

    @hazard("the program opens and closes the probe's library itself, twenty times", sees="output and status unchanged", counted="everything is recorded, nothing lost")
    def test_opened_and_closed(self):
        self.assert_kernels(self.compare(f"open-and-close:{LIBRARY}", "print:done"), 2)


if __name__ == "__main__":
    harness.main()
