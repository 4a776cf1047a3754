"""`gpuprobe attach` and `detach`: programs that run already are recorded from then on, and neither see it nor suffer from it, whatever goes wrong."""
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
import unittest

import harness
import pytorch
from hazards import hazard

TARGET = os.path.join(harness.BUILD, "tests", "e2e", "attach_target")
STATUS = 7  # its own
REFUSED = 125


def sum_of(launches):
    value = 0
    for i in range(launches):
        value = ((value ^ i) * 1099511628211) & (2**64 - 1)
    return value


def states(pid):
    """State letters of all threads."""
    tasks = f"/proc/{pid}/task"
    return [harness.read_proc(pid, f"task/{tid}/stat").rpartition(b")")[2].split()[:1] for tid in (os.listdir(tasks) if os.path.isdir(tasks) else [])]


def thread_names(pid):
    return [harness.read_proc(pid, f"task/{tid}/comm").decode().strip() for tid in os.listdir(f"/proc/{pid}/task")]


class AttachTest(harness.EndToEndTest):

    def start_target(self, launches, *modes, command=(), **options):
        """A program that uses CUDA and that nobody records, once it runs."""
        ready = self.path("tmp", f"ready-{random.getrandbits(32)}")
        program = self.start([*command, TARGET, str(launches), *modes, "ready", ready], **options)
        harness.wait_until(lambda: os.path.exists(ready) or not program.alive(), "program that runs")
        self.assertTrue(program.alive(), program)
        return program

    def start_users_target(self, launches, *modes):
        """As root: one that runs as nobody."""
        for name, mode in ((".", 0o755), ("cwd", 0o755), ("tmp", 0o777)):
            os.chmod(self.path(name), mode)
        return self.start_target(launches, *modes, command=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], env={"GPUSIM_TRUTH": None})

    def assert_unharmed(self, program, launches, status=STATUS):
        finished = program.wait()
        self.assertEqual((finished.returncode, finished.stdout.decode(), finished.stderr.decode()),
                         (status, f"{launches} launches, sum {sum_of(launches):016x}, 0 wrong\n", ""))

    def attach(self, *arguments, limit=harness.LIMIT_S, env=None):
        return self.run_program([harness.GPUPROBE, "attach", *map(str, arguments)], limit=limit, env=env)

    def record_a_while(self, launches, *modes, seconds):
        """Attaches to a program, which is unharmed, and returns the run. On a busy machine, a program may end meanwhile: then to one that runs longer."""
        while True:
            target = self.start_target(launches, *modes)
            out = self.path(f"out-{random.getrandbits(32)}")
            finished = self.attach(target.pid, "--out", out, "--for", str(seconds))
            self.assert_unharmed(target, launches)
            if finished.returncode == 0:
                return out
            self.assertEqual((finished.returncode, b"it ended meanwhile" in finished.stderr), (REFUSED, True), str(finished))
            launches *= 2
            self.assertLess(launches, 50_000)

    def start_attach(self, *arguments, **options):
        """Once it records."""
        program = self.start([harness.GPUPROBE, "attach", *map(str, arguments)], **options)
        harness.wait_until(lambda: b"attached to" in program.so_far() or not program.alive(), "attached process")
        self.assertTrue(program.alive(), program.finished())
        return program

    def refuse(self, pid, expected, **options):
        finished = self.attach(pid, **options)
        self.assertEqual(finished.returncode, REFUSED, str(finished))
        self.assertEqual(finished.stdout, b"")
        self.assertRegex(finished.stderr.decode(), rf"^gpuprobe: attach: {pid}: {expected}[^\n]*\n$")

    def assert_same_kernels(self, out, pid):
        """What was captured happened, and nothing between the first and the last of it is missing."""
        def line(record):
            return (record["name"], record["start_ns"], record["end_ns"], record["correlation"])
        happened = sorted((line(r) for r in self.truth() if r["kind"] == "kernel" and r["pid"] == pid), key=lambda r: r[1])
        captured = sorted((line(r) for r in self.export(out) if r["kind"] == "kernel" and r["pid"] == pid), key=lambda r: r[1])
        self.assertGreater(len(captured), 50)
        within = [r for r in happened if captured[0][1] <= r[1] <= captured[-1][1]]
        self.assertEqual(within, captured)


class Recorded(AttachTest):

    def test_a_program_is_recorded_from_then_on(self):
        target = self.start_target(3000)
        finished = self.attach(target.pid, "--out", self.path("out"), "--for", "1s")
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertIn(f"attached to 1 process; recording to {self.path('out')} for 1s", finished.stderr.decode())
        self.assertIn("AttachedKernel", finished.stdout.decode())
        self.assertTrue(target.alive())
        self.assert_unharmed(target, 3000)
        self.assert_same_kernels(self.path("out"), target.pid)
        report = self.report(self.path("out"))
        self.assert_no_loss(report)
        self.assertEqual([a["who"] for a in report["trust"]["attached"]], [f"pid {target.pid}"])
        self.assertLessEqual({f["id"] for f in report["findings"]} - {"attached-late", "healthy"}, {"launch-bound", "gpu-idle", "input-bound", "host-pause", "cpu-starved", "steps-unknown", "long-steps"})
        self.assertEqual(report["trust"]["cut_off"], [])

    def test_until_the_end_of_the_program(self):
        target = self.start_target(1500)
        finished = self.attach(target.pid, "--out", self.path("out"))
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_unharmed(target, 1500)
        happened = [r["start_ns"] for r in self.truth() if r["kind"] == "kernel"]
        captured = [r["start_ns"] for r in self.export(self.path("out")) if r["kind"] == "kernel"]
        self.assertEqual(max(happened), max(captured))
        self.assert_same_kernels(self.path("out"), target.pid)

    @hazard("recording is attached to a program and ended again", sees="goes on, with its own result and status", counted="everything in between is recorded, nothing lost")
    def test_ctrl_c_ends_the_recording_and_not_the_program(self):
        target = self.start_target(4000)
        attach = self.start_attach(target.pid, "--out", self.path("out"))
        time.sleep(0.5)
        attach.signal(signal.SIGINT)
        self.assertEqual(attach.wait().returncode, 0)
        self.assertTrue(target.alive())
        self.assertNotIn("gpuprobe", thread_names(target.pid))
        self.refuse(target.pid, "it was recorded before, or is now, and that works once in a process")
        self.assert_unharmed(target, 4000)
        self.assert_same_kernels(self.path("out"), target.pid)

    def test_the_end_of_a_recording_has_longer_than_that_of_a_program(self):
        target = self.start_target(4000)
        attach = self.start_attach(target.pid, "--out", self.path("out"), env={"GPUPROBE_EXIT_WAIT_MS": "0"})
        time.sleep(0.5)
        attach.signal(signal.SIGINT)
        self.assertEqual(attach.wait().returncode, 0)
        self.assertTrue(target.alive(), "it did not end")
        self.assertEqual(self.report(self.path("out"))["trust"]["cut_off"], [])
        self.assert_unharmed(target, 4000)
        self.assert_same_kernels(self.path("out"), target.pid)

    @hazard("recording is attached to all ranks of a training", sees="same output and status", counted="every rank from then on; no alarm about what came before")
    def test_all_ranks_of_a_training(self):
        steps = 9000
        bare = self.run_well([harness.LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", str(steps)], devices=2)
        self.forget_truth()
        job = self.start([harness.LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", str(steps)], devices=2)

        def ranks():
            pids = [pid for pid in harness.processes_of_session(job.pid) if b"ddp_train\0--steps" in harness.read_proc(pid, "cmdline")
                    and b"launch_ranks" not in harness.read_proc(pid, "cmdline") and b"libcuda.so" in harness.read_proc(pid, "maps")]
            return pids if len(pids) == 2 else None
        pids = harness.wait_until(ranks, "ranks that use CUDA")
        time.sleep(0.5)
        finished = self.attach(*pids, "--out", self.path("out"), "--for", "1")
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertEqual(job.wait().outcome, bare.outcome)
        report = self.report(self.path("out"))
        self.assert_no_loss(report)
        self.assertEqual([(r["rank"], r["pid"]) for r in report["ranks"]], [(rank, pid) for rank, pid in enumerate(sorted(pids))])
        self.assertGreater(report["steps"]["count"], 10)
        self.assertFalse({"memory-leak", "rank-cut-off", "rank-died", "records-lost", "hang-missing-rank"} & {f["id"] for f in report["findings"]}, report["findings"])

    def test_detach_ends_it(self):
        targets = [self.start_target(6000) for _ in range(2)]
        attach = self.start_attach(*(t.pid for t in targets), "--out", self.path("out"))
        self.run_well([harness.GPUPROBE, "detach", str(targets[0].pid)])
        self.assertNotIn("gpuprobe", thread_names(targets[0].pid))
        self.assertIn("gpuprobe", thread_names(targets[1].pid))
        self.assertTrue(attach.alive())
        self.run_well([harness.GPUPROBE, "detach", self.path("out")])
        self.assertEqual(attach.wait().returncode, 0)
        for target in targets:
            self.assertNotIn("gpuprobe", thread_names(target.pid))
            self.assert_unharmed(target, 6000)
            self.assert_same_kernels(self.path("out"), target.pid)

    def test_nothing_to_detach(self):
        target = self.start_target(1500)
        for what, why in ((str(target.pid), f"{target.pid} is not recorded"), ("2147483646", "there is no process"), (self.path("nowhere"), "neither a process nor a run directory"),
                          (self.path("home"), "no gpuprobe attach records to")):
            finished = self.run_program([harness.GPUPROBE, "detach", what])
            self.assertEqual(finished.returncode, REFUSED)
            self.assertRegex(finished.stderr.decode(), rf"^gpuprobe: detach: [^\n]*{why}[^\n]*\n$")
        self.assert_unharmed(target, 1500)


class InPyTorch(pytorch.PyTorchTest, AttachTest):

    @hazard("recording is attached to a PyTorch program", sees="same output and status", counted="steps, and Python lines of its pauses")
    def test_a_training_loop(self):
        if not pytorch.environments():
            raise unittest.SkipTest("no PyTorch; scripts/pytorch-env.sh makes it")
        loop = [self.python, os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "attached_loop.py"), "1000"]
        bare = self.run_program(loop)
        self.assertEqual(bare.returncode, 3, str(bare))
        self.forget_truth()
        program = self.start(loop)
        harness.wait_until(lambda: b"ready" in program.so_far() or not program.alive(), "training loop")
        finished = self.attach(program.pid, "--out", self.path("out"), "--for", "1.5s")
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertTrue(program.alive())
        self.assertEqual(program.wait().outcome, bare.outcome)
        self.assert_same_kernels(self.path("out"), program.pid)
        report = self.report(self.path("out"))
        self.assert_no_loss(report)
        self.assertGreater(report["steps"]["count"], 100)
        self.assertFalse({"memory-leak", "rank-cut-off", "records-lost"} & {f["id"] for f in report["findings"]}, report["findings"])


class Unharmed(AttachTest):

    @hazard("attached to while threads wait in every kind of system call, and one checks its registers", sees="no call ends early, no register differs", counted="recorded from then on")
    def test_waits_are_not_ended_and_registers_are_kept(self):
        for _ in range(10):
            self.record_a_while(1500, "waits", "registers", seconds=0.2)

    @hazard("attached to while the only thread that waits checks its registers", sees="no register differs", counted="recorded from then on")
    def test_only_one_thread_that_waits_with_known_registers(self):
        """The main thread never waits, so this one is used."""
        for _ in range(10):
            self.record_a_while(1000, "busy", "registers", seconds=0.1)

    @hazard("attached to while a thread waits without end, in each kind of call", sees="no call ends", counted="recorded from then on")
    def test_waits_without_end(self):
        for kind in ("nanosleep", "poll", "timed-poll", "select", "epoll", "read", "recv", "timed-recv", "condition", "timed-condition"):
            with self.subTest(kind=kind):
                target = self.start_target(2000, "busy", "sleep:" + kind)
                tid = sorted(int(tid) for tid in os.listdir(f"/proc/{target.pid}/task"))[1]
                before = harness.read_proc(target.pid, f"task/{tid}/syscall").split()[-2:]
                finished = self.attach(target.pid, "--out", self.path("out-" + kind), "--for", "0.1")
                self.assertEqual(finished.returncode, 0, str(finished))
                self.assertEqual(harness.read_proc(target.pid, f"task/{tid}/syscall").split()[-2:], before)
                self.assert_unharmed(target, 2000)

    @hazard("attached to while threads are in malloc, in dlopen and in signal handlers, and children come and go", sees="same result and status", counted="recorded from then on, or one line says why not")
    def test_threads_in_allocator_loader_handlers_and_children(self):
        for modes in (["malloc"], ["dlopen"], ["handlers"], ["forks"], ["malloc", "dlopen", "handlers", "forks", "waits"]):
            for round_ in range(3):
                with self.subTest(modes=modes, round=round_):
                    target = self.start_target(2500, *modes)
                    out = self.path(f"out-{'-'.join(modes)}-{round_}")
                    finished = self.attach(target.pid, "--out", out, "--for", "0.3")
                    self.assertIn(finished.returncode, (0, REFUSED), str(finished))
                    self.assert_unharmed(target, 2500)

    @hazard("attached to while a thread changes the environment all the time", sees="same result and status", counted="recorded from then on, with the rank that the environment says now")
    def test_a_thread_changes_the_environment(self):
        for _ in range(10):
            out = self.record_a_while(1500, "environment", seconds=0.2)
            self.assertEqual([rank["rank"] for rank in self.report(out)["ranks"]], [3])

    @hazard("`gpuprobe attach` is killed at any moment", sees="same result and status", counted="recording ends by itself")
    def test_attach_is_killed_at_any_moment(self):
        for round_ in range(15):
            target = self.start_target(2000, "waits", "registers")
            for _ in range(3):
                attach = self.start([harness.GPUPROBE, "attach", str(target.pid), "--out", self.path(f"out-{random.getrandbits(64)}")])
                time.sleep(random.uniform(0, 0.25))
                attach.signal(signal.SIGKILL)
                attach.wait()
            self.assert_unharmed(target, 2000)

    @hazard("`gpuprobe attach` is killed while it records", sees="goes on; the thread of the library ends", counted="what was delivered before is in the log")
    def test_recording_ends_when_its_collector_is_killed(self):
        target = self.start_target(4000)
        attach = self.start_attach(target.pid)
        attach.signal(signal.SIGKILL)
        attach.wait()
        harness.wait_until(lambda: "gpuprobe" not in thread_names(target.pid), "end of the recording")
        self.assert_unharmed(target, 4000)

    @hazard("several `gpuprobe attach` at once", sees="same result and status, no register differs", counted="one of them records, the others say why not")
    def test_several_at_once(self):
        for round_ in range(5):
            target = self.start_target(3000, "busy", "registers")
            attaches = [self.start([harness.GPUPROBE, "attach", str(target.pid), "--out", self.path(f"out-{round_}-{i}"), "--for", "0.3"]) for i in range(4)]
            codes = sorted(attach.wait().returncode for attach in attaches)
            self.assertEqual(codes, [0, REFUSED, REFUSED, REFUSED], [attach.so_far() for attach in attaches])
            self.assert_unharmed(target, 3000)

    @hazard("the program ends at any moment while it is attached to", sees="ends with its own status", counted="what was delivered before, or one line that it ended")
    def test_the_program_ends_at_any_moment(self):
        for round_ in range(20):
            launches = 300
            target = self.start_target(launches, "waits")
            time.sleep(random.uniform(0, 0.45))
            finished = self.attach(target.pid, "--out", self.path(f"out-{round_}"))
            self.assertIn(finished.returncode, (0, REFUSED), str(finished))
            self.assert_unharmed(target, launches)

    @hazard("the program is killed, or replaced by the next one, while it is attached to", sees="ends by its signal; the next one runs", counted="one line says so")
    def test_the_program_is_killed_or_replaced_meanwhile(self):
        for round_ in range(10):
            script = f"exec {TARGET} 700"
            target = self.start_target(300, command=["sh", "-c", f'"$@"; {script}', "sh"] if round_ % 2 else [])
            if round_ % 2:
                target_pid = next(pid for pid in harness.processes_of_session(target.pid) if b"libcuda.so" in harness.read_proc(pid, "maps"))
            else:
                target_pid = target.pid
            attach = self.start([harness.GPUPROBE, "attach", str(target_pid), "--out", self.path(f"out-{round_}")])
            time.sleep(random.uniform(0, 0.2))
            if round_ % 2 == 0:
                target.signal(signal.SIGKILL)
                self.assertEqual(target.wait().returncode, -signal.SIGKILL)
            else:
                self.assertEqual(target.wait().returncode, STATUS)
            self.assertIn(attach.wait().returncode, (0, REFUSED))


class Refused(AttachTest):

    def test_what_cannot_be_attached_to(self):
        self.refuse(2147483646, "there is no such process")
        sleeper = self.start(["sleep", "60"])
        self.refuse(sleeper.pid, "it does not use CUDA")
        target = self.start_target(20000, "waits")
        thread = next(int(tid) for tid in os.listdir(f"/proc/{target.pid}/task") if int(tid) != target.pid)
        self.refuse(thread, f"it is a thread of process {target.pid}; give that number")
        attach = self.start_attach(target.pid, "--out", self.path("out"))
        self.refuse(target.pid, "it is recorded already")
        attach.signal(signal.SIGINT)
        attach.wait()

    @hazard("attach to a stopped program", sees="stays stopped, and goes on when it is continued", counted="one line says so")
    def test_a_stopped_one(self):
        target = self.start_target(1500)
        target.signal(signal.SIGSTOP)
        harness.wait_until(lambda: [b"T"] in states(target.pid), "stopped program")
        self.refuse(target.pid, "it is stopped; continue it first: kill -CONT")
        target.signal(signal.SIGCONT)
        self.assert_unharmed(target, 1500)

    @hazard("attach to a process that has ended", sees="nothing to harm", counted="one line says so")
    def test_a_zombie(self):
        parent = self.start([sys.executable, "-c", "import subprocess, sys, time\np = subprocess.Popen(['true'])\nprint(p.pid, flush=True, file=sys.stderr)\ntime.sleep(60)"])
        pid = int(harness.wait_until(parent.so_far, "process"))
        harness.wait_until(lambda: states(pid) == [[b"Z"]], "zombie")
        self.refuse(pid, "it has ended, and its parent has not asked for its status yet")

    @hazard("attach to a program whose main thread has ended while others go on", sees="no difference", counted="one line says so")
    def test_one_without_its_main_thread(self):
        program = self.start([sys.executable, "-c", "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nctypes.CDLL(None).pthread_exit(None)"])
        harness.wait_until(lambda: b"Z" in harness.read_proc(program.pid, "stat").rpartition(b")")[2].split()[:1], "end of the main thread")
        self.refuse(program.pid, "its main thread has ended, and of such a process the kernel shows nothing; start it anew")
        self.assertTrue(program.alive())

    @hazard("attach to a program that a debugger traces", sees="no difference", counted="one line names the tracer")
    def test_one_that_is_traced(self):
        target = self.start_target(3000)
        tracer = self.start([sys.executable, "-c", "import ctypes, sys, time\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                             f"assert libc.ptrace(0x4206, {target.pid}, None, None) == 0\nprint('traced', flush=True, file=sys.stderr)\ntime.sleep(60)"])
        harness.wait_until(tracer.so_far, "tracer")
        self.refuse(target.pid, rf"it is traced by \S+ \(pid {tracer.pid}\); end that first")
        tracer.kill()
        self.assert_unharmed(target, 3000)

    @hazard("attach to a program with a system-call filter of its own", sees="no difference", counted="one line says so")
    def test_one_with_a_filter_of_its_own(self):
        filtered = self.start([sys.executable, "-c", "import ctypes, sys, time\n"
                               "ctypes.CDLL('libcuda.so.1')\nlibc = ctypes.CDLL(None, use_errno=True)\n"
                               "class F(ctypes.Structure): _fields_ = [('c', ctypes.c_ushort), ('t', ctypes.c_ubyte), ('f', ctypes.c_ubyte), ('k', ctypes.c_uint)]\n"
                               "class P(ctypes.Structure): _fields_ = [('n', ctypes.c_ushort), ('f', ctypes.POINTER(F))]\n"
                               "code = (F * 1)(F(0x06, 0, 0, 0x7fff0000))\np = P(1, code)\n"
                               "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(p), 0, 0) == 0\n"
                               "print('filtered', flush=True, file=sys.stderr)\ntime.sleep(60)"])
        harness.wait_until(filtered.so_far, "filter")
        self.refuse(filtered.pid, r"it has a system-call filter \(seccomp\)")

    @hazard("attach to a static program, one for musl, one with AddressSanitizer", sees="no difference", counted="one line says which")
    def test_static_musl_and_sanitized_programs(self):
        source = self.path("waits.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <unistd.h>\nint main(void) { write(2, \"x\", 1); pause(); return 0; }\n")
        for compiler, expected in ((["gcc", "-static"], "it is linked statically"), (["musl-gcc"], "it uses musl"), (["gcc", "-fsanitize=address"], "it is built with AddressSanitizer")):
            with self.subTest(compiler=compiler):
                program = self.path("waits-" + compiler[0] + str(len(compiler[-1])))
                with contextlib.suppress(FileNotFoundError):
                    if subprocess.run([*compiler, source, "-o", program], check=False, capture_output=True).returncode == 0:
                        running = self.start([program])
                        harness.wait_until(running.so_far, "program")
                        self.refuse(running.pid, expected)

    @hazard("attach to a program whose own threads never wait", sees="same result and status", counted="recorded from then on, or one line says why not")
    def test_only_busy_threads(self):
        target = self.start_target(8000, "busy", env={"GPUSIM_THREADS": "0"})
        finished = self.attach(target.pid, "--out", self.path("out"), "--for", "0.1")
        self.assertIn(finished.returncode, (0, REFUSED), str(finished))
        self.assert_unharmed(target, 8000)

    @hazard("attach to a program whose memory is limited to what it has (ulimit -v)", sees="same result and status, no register differs", counted="one line says so")
    def test_no_memory_left(self):
        for more in (0, 1 << 20):
            target = self.start_target(3000, "busy", "registers")
            size = int(harness.read_proc(target.pid, "statm").split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.prlimit(target.pid, resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))
            self.refuse(target.pid, "it cannot have (more memory|another thread)")
            self.assert_unharmed(target, 3000)

    @hazard("attach to a program that may not have another thread (ulimit -u)", sees="same result and status, no register differs", counted="one line says so")
    def test_no_thread_left(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, because the limit does not hold for root")
        target = self.start_users_target(3000, "busy", "registers", "limited")
        self.refuse(target.pid, "it cannot have another thread")
        self.assert_unharmed(target, 3000)

    @hazard("attach to a program in a mount namespace that has no libgpuprobe.so", sees="no difference", counted="one line says so")
    def test_a_mount_namespace_without_the_library(self):
        target = self.start(["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {os.path.dirname(harness.LIBRARY)} && exec {TARGET} 2500"])
        harness.wait_until(lambda: b"libcuda.so" in harness.read_proc(target.pid, "maps") or not target.alive(), "program that uses CUDA")
        if not target.alive():
            raise unittest.SkipTest("no mount namespaces here")
        self.refuse(target.pid, "it is in another container, which has no ")
        self.assert_unharmed(target, 2500)

    @hazard("attach to another user's program", sees="no difference", counted="one line says so")
    def test_another_users(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to have two users")
        target = self.start_target(3000)
        finished = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", harness.GPUPROBE, "attach", str(target.pid)], capture_output=True, check=False,
                                  cwd="/", env={"PATH": os.environ["PATH"], "HOME": "/", "LD_LIBRARY_PATH": harness.SIM_LIB}, timeout=60)
        self.assertEqual(finished.returncode, REFUSED, finished)
        self.assertRegex(finished.stderr.decode(), rf"^gpuprobe: attach: {target.pid}: it belongs to another user \(uid 0\); [^\n]*\n$")
        self.assert_unharmed(target, 3000)

    @hazard("root attaches to a user's program", sees="same result and status", counted="recorded from then on")
    def test_root_attaches_to_a_users_program(self):
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root, to have two users")
        target = self.start_users_target(3000)
        finished = self.attach(target.pid, "--out", self.path("out"), "--for", "0.5")
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_unharmed(target, 3000)

    def test_usage(self):
        for arguments in ([], ["0"], ["x"], ["1", "--for", "soon"], ["1", "--for", "-3"]):
            finished = self.attach(*arguments)
            self.assertEqual(finished.returncode, 2, str(finished))
            self.assertEqual(finished.stderr.count(b"\n"), 1, str(finished))


if __name__ == "__main__":
    harness.main()
