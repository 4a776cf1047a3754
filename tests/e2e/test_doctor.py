"""`gpuprobe doctor` says what will be recorded and what stands in the way: each defect is really prepared, and is the only one that is found."""
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import unittest

import harness
from harness import BUILD, DDP_TRAIN, GPUPROBE, LIBRARY, SIM_LIB, SOURCE, VECTOR_ADD

GPUS = 4
# Users that nobody else's tests use.
PLAIN_USER = 54321
OTHER_USER = 54322
ADDRESS_SANITIZED = os.path.join(BUILD, "tests", "e2e", "copies_address")
STATIC_PROGRAM = os.path.join(BUILD, "tests", "e2e", "child_view")
REAL_CUPTI = os.environ.get("GPUPROBE_TEST_CUPTI") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "cupti")
RELEASES = {18: "11.8 to 12.1", 20: "12.2", 21: "12.3", 22: "12.4", 23: "12.5", 24: "12.6", 26: "12.8", 27: "12.9", 28: "12.9 Update 1"}
WORSE = ("warning", "problem")


def needs_root(test):
    return unittest.skipUnless(os.geteuid() == 0, "only root can")(test)


def claimed_cupti(version):
    return os.path.join(BUILD, "tests", "e2e", f"cupti_{version}")


def python(script):
    """A launcher: runs the script, then executes its arguments."""
    return [sys.executable, "-c", f"import ctypes, os, resource, sys\n{script}\nos.execv(sys.argv[1], sys.argv[1:])"]


def mounted(script):
    """A launcher in a mount namespace of its own, after the commands."""
    return ["unshare", "-m", "sh", "-c", f'set -e; {script}; exec "$@"', "sh"]


def as_user(uid):
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]


def may_mount():
    return subprocess.run(mounted("mount -t tmpfs none /mnt") + ["true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


needs_mounts = unittest.skipUnless(may_mount(), "needs a mount namespace")


class DoctorTest(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)

    def ask(self, *arguments, launcher=(), env=None, sim_lib=None, cwd=None):
        """Its checks, after its exit status was compared with them."""
        finished = self.run_program([*launcher, GPUPROBE, "doctor", "--json", *map(str, arguments)], env=env, devices=GPUS, sim_lib=sim_lib, cwd=cwd)
        self.assertIn(finished.returncode, (0, 1), str(finished))
        answer = json.loads(finished.stdout)
        checks = answer["checks"]
        self.assertEqual(finished.returncode, int(any(check["state"] in WORSE for check in checks)), str(finished))
        for check in checks:
            self.assertEqual(check["remedy"] is None, check["state"] == "ok", check)
        for word in ("problem", "warning", "note"):
            self.assertEqual(answer[word + "s"], sum(check["state"] == word for check in checks))
        return checks

    def find(self, checks, subject, state, fact, remedy):
        found = [check for check in checks if check["subject"] == subject and check["state"] == state and re.search(fact, check["fact"])]
        self.assertEqual(len(found), 1, json.dumps(checks, indent=1))
        self.assertRegex(found[0]["remedy"], remedy)

    def only(self, checks, subject, state, fact, remedy):
        """This is found, and nothing else that is worse than a note."""
        self.find(checks, subject, state, fact, remedy)
        self.assertEqual({check["subject"] for check in checks if check["state"] in WORSE}, {subject} if state in WORSE else set(), json.dumps(checks, indent=1))

    def script(self, name, text, mode=0o755):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def node_without(self, *libraries):
        """The simulated node's libraries but these."""
        folder = self.path("node")
        os.mkdir(folder)
        for name in os.listdir(SIM_LIB):
            if not name.startswith(libraries):
                os.symlink(os.path.join(SIM_LIB, name), os.path.join(folder, name))
        return folder


class Healthy(DoctorTest):

    def test_nothing_is_wrong_and_nothing_is_changed(self):
        def listing():
            return sorted((path, sorted(names), sorted((file, os.stat(os.path.join(path, file)).st_mtime_ns) for file in files))
                          for path, names, files in os.walk(self.folder))
        before = listing()
        for command in ((), ("--", VECTOR_ADD), ("--", sys.executable, "train.py")):
            with self.subTest(command=command):
                checks = self.ask(*command)
                self.assertEqual([check for check in checks if check["state"] in WORSE], [])
                subjects = [check["subject"] for check in checks]
                for subject in ("library", "driver", "GPUs", "CUPTI", "settings", "sandbox", "limits", "CPUs", "collector", "disk", "clock", "stacks"):
                    self.assertIn(subject, subjects)
                self.assertEqual("command" in subjects, bool(command))
        self.assertEqual(listing(), before)
        facts = {check["subject"]: check["fact"] for check in checks}
        self.assertEqual(facts["driver"], "NVIDIA 580.65.06, for CUDA up to 13.0")
        self.assertEqual(facts["GPUs"], "4 x Simulated GPU")
        self.assertEqual(facts["library"], LIBRARY)
        self.assertIn(os.path.join(SIM_LIB, "libcupti.so.13"), facts["CUPTI"])
        self.assertIn(os.path.join(self.cwd, "gpuprobe-runs"), facts["disk"])

    @unittest.skipUnless(shutil.which("strace"), "no strace")
    def test_no_file_is_made_and_no_process_started(self):
        program = self.start(["sleep", "1000"])
        for arguments in (("--", VECTOR_ADD), ("--", self.script("torchrun", "#!/bin/sh\n"), "--nnodes", "2", "train.py"), (str(program.pid),)):
            with self.subTest(arguments=arguments):
                log = self.path("log")
                calls = "execve,fork,vfork,clone,clone3,openat,open,creat,mkdir,mkdirat,mknod,mknodat,link,linkat,symlink,symlinkat,rename,renameat2,unlink,unlinkat,chmod,fchmod,fchmodat,kill,ptrace"
                traced = self.run_program(["strace", "-f", "-qq", "-e", f"trace={calls}", "-e", "signal=none", "-o", log, GPUPROBE, "doctor", *arguments],
                                          env={"GPUSIM_TRUTH": None}, devices=GPUS)
                if b"ptrace" in traced.stderr:
                    self.skipTest("processes may not be traced here")
                lines = [line.partition(" ")[2].strip() for line in harness.read_file(log).decode().splitlines()]
                self.assertEqual(sum(line.startswith("execve(") for line in lines), 1)
                for line in lines:
                    well = (line.startswith(("execve(", "<...", "+++")) or "CLONE_THREAD" in line
                            or (line.startswith("open") and not re.search("O_CREAT|O_TRUNC|O_WRONLY", line) and ("O_RDWR" not in line or "/dev/nvidia" in line)))
                    self.assertTrue(well, line)

    @needs_root
    def test_no_folder_is_made_for_a_socket(self):
        checks = self.ask("--out", "/tmp/none", launcher=as_user(PLAIN_USER), env={"XDG_RUNTIME_DIR": None})
        self.assertEqual([check["state"] for check in checks if check["subject"] == "collector"], ["ok"])
        self.assertFalse(os.path.exists(f"/tmp/gpuprobe-{PLAIN_USER}") or os.path.exists("/tmp/none"))

    def test_the_screen_and_the_json_say_the_same(self):
        env = {"GPUPROBE_FLUSH_MS": "1", "CUDA_LAUNCH_BLOCKING": "1", "GPUPROBE_DISABLE": "1"}
        checks = self.ask(env=env)
        finished = self.run_program([GPUPROBE, "doctor"], env=env, devices=GPUS)
        self.assertEqual(finished.returncode, 1)
        text = finished.stdout.decode()
        self.assertRegex(text, r"^1 problem, 2 warnings(, \d notes?)?\n")
        words = " ".join(text.split())
        for check in checks:
            disk = check["subject"] == "disk"  # which others write to meanwhile
            fact = check["fact"].partition(":")[0] if disk else check["fact"]
            self.assertIn(" ".join(f"{check['state']} {check['subject']} {fact}".split()), words)
            if check["remedy"]:
                self.assertIn(" ".join(check["remedy"].split()), words)

    def test_wrong_use(self):
        for arguments, said in ((["--"], "no command behind --"), (["1", "--", "true"], "give PID alone"), (["1", "--out", "x"], "give PID alone"),
                                (["train"], "PID"), (["0"], "PID"), (["--frobnicate"], "--frobnicate"), (["--out", ""], "--out")):
            with self.subTest(arguments=arguments):
                finished = self.run_program([GPUPROBE, "doctor", *arguments])
                self.assertEqual((finished.returncode, finished.stdout), (2, b""), str(finished))
                self.assertIn(said, finished.stderr.decode())
                self.assertEqual(finished.stderr.count(b"\n"), 1)
        finished = self.run_program([GPUPROBE, "doctor", "2147483646"])
        self.assertEqual((finished.returncode, finished.stderr.decode()), (1, "gpuprobe: doctor: there is no process 2147483646\n"))


class Machine(DoctorTest):

    def test_no_driver(self):
        self.only(self.ask(sim_lib=self.node_without("libnvidia-ml")), "driver", "problem", r"libnvidia-ml\.so\.1 was not found", r"docker run --gpus all")

    def test_a_driver_that_does_not_answer(self):
        os.mkfifo(self.path("health"))
        self.only(self.ask(env={"GPUSIM_HEALTH": self.path("health")}), "driver", "problem", "did not answer within 2 s", "Xid")

    def test_no_gpus(self):
        finished = self.run_program([GPUPROBE, "doctor", "--json"], env={"CUDA_VISIBLE_DEVICES": ""}, devices=GPUS)
        self.assertEqual(finished.returncode, 1)
        self.only(json.loads(finished.stdout)["checks"], "GPUs", "problem", 'CUDA_VISIBLE_DEVICES="" hides all GPUs', "Unset it")
        self.only(self.ask(env={"CUDA_VISIBLE_DEVICES": "0,7"}), "GPUs", "warning", r"there is no GPU 7 here, so CUDA sees 1 of the 2", "name the GPUs")

    def test_more_ranks_than_gpus(self):
        self.find(self.ask("--", self.script("torchrun", "#!/bin/sh\n"), "--nproc-per-node=8", "train.py"), "GPUs", "warning", "^4 for 8 ranks", "as many ranks")

    def test_gpus_that_are_in_use(self):
        with open(self.path("health"), "w", encoding="utf-8") as file:
            file.write(f"2 process {os.getpid()}\n")
        self.only(self.ask(env={"GPUSIM_HEALTH": self.path("health")}), "GPUs", "note", rf"GPU 2 by python\S* \(pid {os.getpid()}\)", "gpuprobe look")

    @needs_root
    @needs_mounts
    def test_devices_that_this_user_may_not_open(self):
        launcher = mounted("mount -t tmpfs none /dev; touch /dev/nvidiactl /dev/nvidia0; chmod 600 /dev/nvidiactl; chmod 666 /dev/nvidia0") + as_user(PLAIN_USER)
        self.only(self.ask("--out", "/tmp/none", launcher=launcher, env={"XDG_RUNTIME_DIR": None}), "GPUs", "problem", "^/dev/nvidiactl cannot be opened: Permission denied$",
                  "Give this user access")

    def test_cupti_of_a_release_with_defects(self):
        env = {"LD_LIBRARY_PATH": f"{claimed_cupti(130000)}:{SIM_LIB}"}
        self.only(self.ask(env=env), "CUPTI", "warning", r"^13\.0, .*cupti_130000/libcupti\.so\.13.*cuptiActivityFlushAll may crash; cudaDeviceSynchronize has no",
                  r"^Update CUPTI to 13\.4 Update 1 or newer")
        # What nobody asked for is not felt.
        self.assertNotIn("disabling CONCURRENT_KERNEL", json.dumps(self.ask(env=env)))
        self.assertIn("disabling CONCURRENT_KERNEL", json.dumps(self.ask(env={**env, "GPUPROBE_OVERHEAD_BUDGET": "1"})))

    @needs_root
    @needs_mounts
    def test_no_cupti_and_one_that_is_too_old(self):
        hidden = [os.path.realpath(folder) for folder in ("/usr/local/cuda", "/usr/local/cuda/extras/CUPTI/lib64") if os.path.isdir(folder)]
        launcher = mounted("; ".join(["mount --bind /dev/null /etc/ld.so.cache", *(f"mount -t tmpfs none {folder}" for folder in dict.fromkeys(hidden[:1]))]))
        node = self.node_without("libcupti")
        self.only(self.ask(launcher=launcher, sim_lib=node), "CUPTI", "problem", "libcupti was not found: no GPU times", "pip install nvidia-cuda-cupti")
        self.only(self.ask(launcher=launcher, env={"LD_LIBRARY_PATH": f"{claimed_cupti(17)}:{node}"}), "CUPTI", "problem",
                  r"only before 11\.8, .*libcupti\.so\.11\.7.* is older than 11\.8", "pip install nvidia-cuda-cupti")

    def test_cupti_of_the_commands_python(self):
        """A wheel's copy, if PyTorch loads it."""
        site = self.path("venv", "lib", "python3.11", "site-packages")
        wheel = os.path.join(site, "nvidia", "cuda_cupti", "lib")
        os.makedirs(wheel)
        os.makedirs(os.path.join(site, "nvidia_cuda_cupti_cu12-13.0.48.dist-info"))
        os.makedirs(self.path("venv", "bin"))
        os.symlink(os.path.realpath(sys.executable), self.path("venv", "bin", "python3"))
        shutil.copy(os.path.join(claimed_cupti(130000), "libcupti.so.13"), wheel)
        command = ("--", self.script("train", f"#!{self.path('venv', 'bin', 'python3')}\n"))
        self.assertEqual([check["state"] for check in self.ask(*command) if check["subject"] == "CUPTI"], ["ok"])
        os.makedirs(os.path.join(site, "torch", "lib"))
        self.only(self.ask(*command), "CUPTI", "warning", r"^13\.0 \(package 13\.0\.48\), .*/site-packages/nvidia/cuda_cupti/lib/libcupti\.so\.13, PyTorch loads it", "Update CUPTI")


    @unittest.skipUnless(os.path.isdir(REAL_CUPTI), "no real CUPTI: scripts/cupti-env.sh")
    def test_the_release_of_real_ones_is_what_they_answer(self):
        """It is read from the file; the process has called it."""
        script = ("import ctypes, sys, time\nlibrary, answer = ctypes.CDLL(sys.argv[1]), ctypes.c_uint(0)\n"
                  "error = library.cuptiGetVersion(ctypes.byref(answer))\nopen(sys.argv[2], 'w').write(f'{error} {answer.value}\\n')\ntime.sleep(1000)")
        for release in sorted(os.listdir(REAL_CUPTI)):
            folder = os.path.join(REAL_CUPTI, release, "lib")
            names = [name for name in os.listdir(folder) if name.startswith("libcupti.so.")] if os.path.isdir(folder) else []
            if not names:
                continue
            with self.subTest(release=release):
                answer = self.path(release)
                program = self.start([sys.executable, "-c", script, os.path.join(folder, names[0]), answer])
                harness.wait_until(lambda: os.path.exists(answer) and harness.read_file(answer).endswith(b"\n"), "answer")
                error, version = map(int, harness.read_file(answer).split())
                facts = [check["fact"] for check in self.ask(program.pid) if check["subject"] == "CUPTI"]
                if error == 0:
                    self.assertTrue(facts[0].startswith(RELEASES.get(version) or f"{version // 10000}.{version // 100 % 100}"), f"{version}: {facts}")
                    self.assertEqual(f" Update {version % 100}" in facts[0].partition(",")[0], version >= 130000 and version % 100 > 0)
                else:  # from 13.3 on it asks the driver
                    self.assertTrue(facts[0].startswith("13.3 or newer, "), facts)
                program.kill()


class Library(DoctorTest):

    def test_it_is_not_beside_the_program(self):
        program = self.path("gpuprobe")
        shutil.copy(GPUPROBE, program)
        finished = self.run_program([program, "doctor", "--json"], devices=GPUS)
        self.only(json.loads(finished.stdout)["checks"], "library", "problem", r"libgpuprobe\.so not found; looked in ", "Install gpuprobe again")

    @needs_root
    @needs_mounts
    def test_it_is_on_a_file_system_without_programs(self):
        folder = os.path.dirname(LIBRARY)
        launcher = mounted(f"mkdir {self.path('copy')}; cp {LIBRARY} {self.path('copy')}; mount -t tmpfs -o noexec none {folder}; cp {self.path('copy', 'libgpuprobe.so')} {folder}")
        self.only(self.ask(launcher=launcher), "library", "problem", "mounted noexec", "without that option")

    @needs_root
    @needs_mounts
    def test_it_is_damaged(self):
        self.only(self.ask(launcher=mounted(f"mount --bind /dev/null {LIBRARY}")), "library", "problem", "is not a library for this machine", "Install gpuprobe again")
        other = os.path.join(SIM_LIB, "libnccl.so.2")
        self.only(self.ask(launcher=mounted(f"mount --bind {other} {LIBRARY}")), "library", "problem", "lacks InitializeInjection", "Install gpuprobe again")


class Command(DoctorTest):

    def test_no_such_program(self):
        self.only(self.ask("--", "no-such-program"), "command", "problem", "there is no program no-such-program", "PATH")

    def test_not_executable(self):
        self.only(self.ask("--", self.script("plain", "#!/bin/sh\n", 0o644)), "command", "problem", "plain cannot be executed: Permission denied", r"chmod \+x")

    def test_a_script_without_its_interpreter(self):
        self.only(self.ask("--", self.script("script", "#!/nowhere/python3\n")), "command", "problem", "script is a script for /nowhere/python3, which is not there", "Install that interpreter")

    def test_static(self):
        self.only(self.ask("--", STATIC_PROGRAM), "command", "warning", "is statically linked", "Link it dynamically")

    @unittest.skipUnless(shutil.which("musl-gcc"), "no musl-gcc")
    def test_musl(self):
        source = self.script("program.c", "int main(void) { return 0; }\n")
        subprocess.run(["musl-gcc", source, "-o", self.path("program")], check=True)
        self.only(self.ask("--", self.path("program")), "command", "problem", "is built for musl", "glibc")

    @unittest.skipUnless(os.path.exists(ADDRESS_SANITIZED), "no AddressSanitizer")
    def test_address_sanitizer(self):
        self.only(self.ask("--", ADDRESS_SANITIZED), "command", "warning", "AddressSanitizer, whose runtime must be loaded first", "without the sanitizer")
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
        if os.path.exists(runtime):
            checks = self.ask(env={"LD_PRELOAD": os.path.realpath(runtime), "ASAN_OPTIONS": "detect_leaks=0"})
            self.only(checks, "environment", "warning", "LD_PRELOAD has the runtime of AddressSanitizer", "Profile without it")

    def test_another_architecture(self):
        with open(VECTOR_ADD, "rb") as file:
            program = bytearray(file.read())
        program[4] = 1  # ELFCLASS32
        with open(self.path("old"), "wb") as file:
            file.write(program)
        os.chmod(self.path("old"), 0o755)
        self.only(self.ask("--", self.path("old")), "command", "problem", "another architecture", "64-bit")

    @needs_root
    def test_set_user_id(self):
        program = self.path("program")
        shutil.copy(harness.PLAIN_PROGRAM, program)
        os.chown(program, OTHER_USER, OTHER_USER)
        os.chmod(program, 0o755 | stat.S_ISUID)
        self.only(self.ask("--", program), "command", "warning", r"gains privileges .*set-user-ID", "without the set-user-ID bit")

    def test_how_nccl_is_linked(self):
        for program, said in ((DDP_TRAIN, "with NCCL as a library"), (harness.STATIC_COLLECTIVES, "with NCCL inside")):
            facts = [check["fact"] for check in self.ask("--", program) if check["subject"] == "command"]
            self.assertEqual(len(facts), 1)
            self.assertIn(said, facts[0])


class Environment(DoctorTest):

    def test_settings(self):
        for env, state, fact, remedy in (
                ({"GPUPROBE_FLUSHMS": "100"}, "warning", "there is no setting GPUPROBE_FLUSHMS", r"^Did you mean GPUPROBE_FLUSH_MS\?$"),
                ({"GPUPROBE_FLUSH_MS": "5"}, "warning", "GPUPROBE_FLUSH_MS=5 cannot be used", "10 to 60000 ms"),
                ({"GPUPROBE_KINDS": "kernels,nickel"}, "warning", "GPUPROBE_KINDS=kernels,nickel cannot be used", "a list of kernels"),
                ({"GPUPROBE_RANKS": "4-2"}, "warning", "GPUPROBE_RANKS=4-2 cannot be used", "ascending ranks"),
                ({"GPUPROBE_STEP_MARKER": "step"}, "warning", "GPUPROBE_STEP_MARKER=step cannot be used", "nvtx:NAME"),
                ({"GPUPROBE_START_STEP": "3"}, "warning", "GPUPROBE_START_STEP=3 is ignored", "--step-marker"),
                ({"GPUPROBE_START_AFTER_S": "9", "GPUPROBE_STOP_AFTER_S": "4"}, "warning", "GPUPROBE_STOP_AFTER_S=4 is ignored", "greater than GPUPROBE_START_AFTER_S"),
                ({"GPUPROBE_HUB": "host:port"}, "problem", "GPUPROBE_HUB must be HOST", "Name a host"),
                ({"GPUPROBE_DISABLE": "1"}, "problem", "nothing is recorded", "Unset it")):
            with self.subTest(env=env):
                self.find(self.ask(env=env), "settings", state, fact, remedy)
        well = self.ask(env={"GPUPROBE_KINDS": "kernels,graphs", "GPUPROBE_RANKS": "0,4-7", "GPUPROBE_HTTP_TOKEN": "x" * 20})
        self.assertEqual([check["state"] for check in well if check["subject"] == "settings"], ["ok"])

    @staticmethod
    def clock_is_synchronised():
        return ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)) != 5  # TIME_ERROR

    def test_the_secret_is_not_printed(self):
        finished = self.run_program([GPUPROBE, "doctor"], env={"GPUPROBE_HUB_TOKEN": "short-secret"}, devices=GPUS)
        self.assertIn(b"GPUPROBE_HUB_TOKEN cannot be used", finished.stdout)
        self.assertNotIn(b"short-secret", finished.stdout + finished.stderr)

    def test_another_tool_is_injected(self):
        tool = os.path.join(BUILD, "tests", "sim", "libgpusim_injected_tool.so")
        self.only(self.ask(env={"CUDA_INJECTION64_PATH": tool}), "environment", "warning", f"^CUDA_INJECTION64_PATH names another tool, {re.escape(tool)}: it is loaded instead",
                  "Unset it")
        self.only(self.ask("--", VECTOR_ADD, env={"CUDA_INJECTION64_PATH": tool}), "environment", "warning", "gpuprobe run replaces it", "Unset it")
        self.only(self.ask(env={"NVTX_INJECTION64_PATH": "/no/such.so"}), "environment", "warning", "NVTX_INJECTION64_PATH names /no/such.so, which cannot be loaded",
                  "gpuprobe help library-path")
        self.assertEqual([check for check in self.ask(env={"CUDA_INJECTION64_PATH": LIBRARY}) if check["state"] in WORSE], [])

    def test_a_preloaded_library_that_is_not_there(self):
        self.only(self.ask(env={"LD_PRELOAD": "/no/such.so"}), "environment", "warning", "LD_PRELOAD names /no/such.so", "Take it out")

    def test_serialised_launches(self):
        self.only(self.ask(env={"CUDA_LAUNCH_BLOCKING": "1"}), "environment", "warning", "nothing overlaps", "serialised")

    def test_a_profiler_plugin_of_somebody_elses_is_chained(self):
        self.only(self.ask(env={"NCCL_PROFILER_PLUGIN": "inspector"}), "environment", "note", "NCCL_PROFILER_PLUGIN=inspector: it is chained", "Nothing needs to be done")


class Host(DoctorTest):

    def test_a_filter_that_the_container_does_not_have(self):
        allow_all = ("class F(ctypes.Structure):\n    _fields_ = [('code', ctypes.c_ushort), ('jt', ctypes.c_ubyte), ('jf', ctypes.c_ubyte), ('k', ctypes.c_uint)]\n"
                     "class P(ctypes.Structure):\n    _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.POINTER(F))]\n"
                     "f = F(6, 0, 0, 0x7fff0000)\nc = ctypes.CDLL(None)\n"
                     "assert c.prctl(38, 1, 0, 0, 0) == 0\nassert c.prctl(22, 2, ctypes.byref(P(1, ctypes.pointer(f))), 0, 0) == 0")
        self.only(self.ask(launcher=python(allow_all)), "sandbox", "problem", r"PID 1 does not have, so the probe stays out", "GPUPROBE_IN_SANDBOX=1")
        self.only(self.ask(launcher=python(allow_all), env={"GPUPROBE_IN_SANDBOX": "1"}), "sandbox", "note", "says that it allows", "docs/loading.md")

    def test_who_adopts_orphans_starts_no_collector(self):
        self.only(self.ask(launcher=python("assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0")), "sandbox", "note", "adopts orphans", "gpuprobe run -- CMD")

    @needs_root
    def test_pid_1(self):
        self.only(self.ask(launcher=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]), "sandbox", "note", "this is PID 1", "gpuprobe collect")

    def test_limits(self):
        gib = 1 << 30
        for limit, most, state, fact, remedy in (("RLIMIT_AS", 3 * gib, "problem", r"limited to 3\.00 GiB .*nothing is recorded", "ulimit -v unlimited"),
                                                 ("RLIMIT_DATA", 6 * gib, "warning", r"limited to 6\.00 GiB .*smaller buffers", "ulimit -v unlimited"),
                                                 ("RLIMIT_NOFILE", 40, "warning", "^40 file descriptors", "1024 or more"),
                                                 ("RLIMIT_NOFILE", 256, "note", "^256 file descriptors", "1024 or more")):
            with self.subTest(limit=limit, most=most):
                self.only(self.ask(launcher=python(f"resource.setrlimit(resource.{limit}, ({most}, {most}))")), "limits", state, fact, remedy)

    @needs_root
    def test_no_more_processes(self):
        # Set behind the change of user, which the limit would refuse.
        launcher = [*as_user(PLAIN_USER), *python("resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))")]
        self.only(self.ask("--out", "/tmp/none", launcher=launcher, env={"XDG_RUNTIME_DIR": None}), "limits", "warning", r"may start \d more processes and threads", "Raise it")

    def test_fewer_cpus_than_ranks(self):
        torchrun = self.script("torchrun", "#!/bin/sh\n")
        launcher = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]
        self.only(self.ask("--", torchrun, "--nproc-per-node", "3", "train.py", launcher=launcher), "CPUs", "warning", "^1 for 3 ranks: fewer than one for each", "taskset")
        self.only(self.ask("--", torchrun, "--nproc_per_node=gpu", "train.py", launcher=launcher), "CPUs", "warning", f"^1 for {GPUS} ranks", "taskset")
        env = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        self.only(self.ask(launcher=launcher, env=env), "CPUs", "warning", "^1 for 2 ranks", "taskset")

    @needs_root
    @needs_mounts
    def test_who_may_read_stacks(self):
        scope = "/proc/sys/kernel/yama/ptrace_scope"
        if not os.path.exists(scope):
            self.skipTest("this kernel has no Yama")
        launcher = mounted(f"mount --bind {self.script('scope', '2')} {scope}")
        checks = self.ask("--out", "/tmp/none", launcher=launcher + as_user(PLAIN_USER), env={"XDG_RUNTIME_DIR": None})
        self.only(checks, "stacks", "note", "ptrace_scope is 2", "as root")
        self.assertEqual([check["state"] for check in self.ask(launcher=launcher) if check["subject"] == "stacks"], ["ok"])


class Places(DoctorTest):

    def planted(self, owner, mode):
        folder = f"/tmp/gpuprobe-{PLAIN_USER}"
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, owner, owner)
        os.chmod(folder, mode)

    def ask_plain_user(self):
        return self.ask("--out", "/tmp/none", launcher=as_user(PLAIN_USER), env={"XDG_RUNTIME_DIR": None})

    @needs_root
    def test_a_socket_folder_of_another_user(self):
        self.planted(OTHER_USER, 0o700)
        self.only(self.ask_plain_user(), "collector", "problem", rf"^/tmp/gpuprobe-{PLAIN_USER} belongs to another user \(uid {OTHER_USER}\)", "XDG_RUNTIME_DIR")

    @needs_root
    def test_a_socket_folder_that_is_open_to_others(self):
        self.planted(PLAIN_USER, 0o777)
        self.only(self.ask_plain_user(), "collector", "problem", r"is open to others \(mode 0777\)", f"chmod 700 /tmp/gpuprobe-{PLAIN_USER}")

    def test_a_socket_folder_for_which_there_is_another(self):
        os.mkdir(self.path("run", "gpuprobe"))
        os.chmod(self.path("run", "gpuprobe"), 0o755)
        self.only(self.ask(), "collector", "note", r"run/gpuprobe is open to others \(mode 0755\).*; programs use /tmp/gpuprobe-\d+ instead$", "chmod 700")

    def test_a_path_that_is_too_long(self):
        self.find(self.ask(env={"GPUPROBE_SOCKET": "/tmp/" + "x" * 120}), "collector", "problem", "has 125 bytes, and the system allows 107", "shorter")

    def test_a_folder_that_is_not_there(self):
        self.only(self.ask(env={"GPUPROBE_SOCKET": self.path("none", "s.sock")}), "collector", "problem", "is not there", "Make it")

    def test_a_stale_socket(self):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.path("s.sock"))
        self.only(self.ask(env={"GPUPROBE_SOCKET": self.path("s.sock")}), "collector", "note", "left .*s.sock behind", "Nothing needs to be done")

    def test_a_collector_that_runs(self):
        collector = harness.Collector(self)
        self.only(self.ask(env={"GPUPROBE_SOCKET": collector.socket}), "collector", "note", rf"^pid {collector.program.pid} listens on {collector.socket}$", "record there")
        self.assertEqual(collector.stop().returncode, 0)

    def test_nobody_may_start_a_collector(self):
        self.only(self.ask(env={"GPUPROBE_AUTOSTART": "0"}), "collector", "warning", "GPUPROBE_AUTOSTART=0", "gpuprobe collect")

    @needs_root
    @needs_mounts
    def test_disks(self):
        os.mkdir(self.path("disk"))
        for script, fact in ((f"mount -t tmpfs -o size=64k none {self.path('disk')}; head -c 1M /dev/zero > {self.path('disk')}/full || true", r": 0 B free, 0\.0 rank-hours"),
                             (f"mount -t tmpfs none {self.path('disk')}; mount -o remount,ro {self.path('disk')}", "is on a read-only file system")):
            with self.subTest(script):
                self.only(self.ask("--out", self.path("disk", "run"), launcher=mounted(script)), "disk", "problem", fact, "--out")
        few = f"mount -t tmpfs -o size=4G,nr_inodes=20 none {self.path('disk')}"
        self.only(self.ask("--out", self.path("disk", "run"), launcher=mounted(few)), "disk", "warning", r"\d+ more files \(inodes\) fit", "Remove old runs")
        small = f"mount -t tmpfs -o size=500M none {self.path('disk')}"
        self.only(self.ask("--out", self.path("disk", "run"), launcher=mounted(small)), "disk", "warning", r"500 MiB free, 10 rank-hours.*a run may take 2\.00 GiB", "--keep")

    def test_places_that_are_refused(self):
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.only(self.ask("--out", self.path("open", "run")), "disk", "problem", "gpuprobe will not record there: .*every user", "--out")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--steps", "5", "--out", self.path("old")])
        self.only(self.ask("--out", self.path("old")), "disk", "problem", "holds a run already", "--out")
        self.script("file", "")
        self.only(self.ask("--out", self.path("file", "run")), "disk", "problem", "will not record there", "--out")


class SeveralHosts(DoctorTest):
    JOB = ("--nnodes", "2", "--rdzv-endpoint", "n1:29500", "train.py")

    def ask_job(self, **env):
        return self.ask("--", self.script("torchrun", "#!/bin/sh\n"), *self.JOB, env=env)

    def token(self, text, mode):
        os.makedirs(self.path("home", ".config", "gpuprobe"), exist_ok=True)
        return self.script(os.path.join("home", ".config", "gpuprobe", "hub-token"), text, mode)

    def test_the_secret_of_the_hosts(self):
        self.find(self.ask_job(), "hosts", "note", "hub-token is not there yet", "GPUPROBE_HUB_TOKEN")
        self.assertFalse(os.path.exists(self.path("home", ".config")))
        path = self.token("0123456789abcdef" * 2 + "\n", 0o644)
        self.find(self.ask_job(), "hosts", "problem", "can be read by others", f"chmod 600 {path}")
        self.token("short\n", 0o600)
        self.find(self.ask_job(), "hosts", "problem", "16 to 512", "16 characters or more")
        self.token("0123456789abcdef" * 2 + "\n", 0o600)
        self.assertIn(("hosts", "ok"), [(check["subject"], check["state"]) for check in self.ask_job()])

    @needs_root
    def test_the_secret_is_another_users(self):
        path = self.token("0123456789abcdef" * 2 + "\n", 0o600)
        os.chown(path, OTHER_USER, OTHER_USER)
        self.find(self.ask_job(), "hosts", "problem", rf"belongs to another user \(uid {OTHER_USER}\)", "Remove it")

    def test_the_clock_matters(self):
        state = "ok" if Environment.clock_is_synchronised() else "warning"
        self.assertIn(("clock", state), [(check["subject"], check["state"]) for check in self.ask_job()])

    def test_a_hub_that_does_not_answer(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
            self.find(self.ask(env={"GPUPROBE_HUB": f"127.0.0.1:{port}"}), "hosts", "warning", f"no hub answers at 127.0.0.1:{port}: Connection refused", "gpuprobe hub")
            listener.listen()
            self.assertIn(f"something answers at 127.0.0.1:{port}", [check["fact"] for check in self.ask(env={"GPUPROBE_HUB": f"127.0.0.1:{port}"})])


class Processes(DoctorTest):

    def await_state(self, pid, fact, env=None):
        return harness.wait_until(lambda: next((checks for checks in [self.ask(pid, env=env)] if any(re.search(fact, check["fact"]) for check in checks)), None), fact)

    def test_one_that_is_recorded(self):
        job = self.start([GPUPROBE, "run", "--quiet", "--out", self.path("run-1"), "--", DDP_TRAIN, "--steps", "1000000"])
        pid = harness.wait_until(lambda: next((p for p in harness.all_pids() if harness.read_proc(p, "comm") == b"ddp_train\n" and self.mark.encode() in harness.read_proc(p, "environ")), None),
                                 "program")
        checks = self.await_state(pid, "connected to a collector")
        self.assertEqual([check for check in checks if check["state"] in WORSE], [])
        facts = {check["subject"]: check["fact"] for check in checks}
        self.assertEqual(facts["recording"], f"by {LIBRARY}, connected to a collector")
        self.assertIn(os.path.join(SIM_LIB, "libcupti.so.13"), facts["CUPTI"])
        self.assertIn("libnccl.so.2", facts["NCCL"])
        self.assertIn("collector", facts)
        job.signal(signal.SIGTERM)
        job.wait()

    def test_one_that_is_not_recorded(self):
        program = self.start([DDP_TRAIN, "--steps", "1000000"], env={"GPUPROBE_FLUSHMS": "1"})
        checks = harness.wait_until(lambda: next((c for c in [self.ask(program.pid)] if any(check["subject"] == "NCCL" for check in c)), None), "program that communicates")
        self.find(checks, "recording", "warning", "^it is not recorded: libgpuprobe.so is not in it", f"gpuprobe look {program.pid} or gpuprobe stacks {program.pid}.* under gpuprobe run")
        with open(self.path("health"), "w", encoding="utf-8") as file:
            file.write(f"2 process {program.pid}\n")
        facts = [check["fact"] for check in self.ask(program.pid, env={"GPUSIM_HEALTH": self.path("health")})]
        self.assertIn(f"{program.pid}: {DDP_TRAIN} --steps 1000000, on GPU 2", facts)
        self.find(checks, "settings", "warning", "GPUPROBE_FLUSHMS", "GPUPROBE_FLUSH_MS")  # in its environment, not in ours

    def test_one_whose_collector_has_gone(self):
        collector = harness.Collector(self)
        program = self.start([DDP_TRAIN, "--steps", "1000000"], env={**collector.env(), "LD_PRELOAD": LIBRARY})
        self.await_state(program.pid, "connected to a collector")
        collector.stop(signal.SIGKILL)
        checks = self.await_state(program.pid, "no collector is connected")
        self.find(checks, "recording", "warning", "records, but no collector is connected", "gpuprobe collect")

    def test_one_that_has_not_started_cuda(self):
        program = self.start(["sleep", "1000"], env={"LD_PRELOAD": LIBRARY})
        checks = self.await_state(program.pid, "has not started CUDA")
        self.only(checks, "recording", "note", "is loaded and waits", "first use of CUDA")

    def test_a_worker_that_a_recorded_one_has_forked(self):
        program = os.path.join(SOURCE, "tests", "e2e", "programs", "trains_in_python.py")
        job = self.start([GPUPROBE, "run", "--quiet", "--out", self.path("run-1"), "--", sys.executable, "-B", program, self.path(".")],
                         env={"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "WORKERS": "1"})
        harness.wait_until(lambda: os.path.exists(self.path("rank-0")) and harness.read_file(self.path("rank-0")), "rank that trains")
        rank = int(harness.read_file(self.path("rank-0")))

        def worker():
            return next((pid for pid in harness.all_pids() if harness.read_proc(pid, "stat").rpartition(b")")[2].split()[1:2] == [str(rank).encode()]), None)

        self.assertIn(f"gpuprobe stacks {rank} reads those of its Python {sys.version_info[0]}.{sys.version_info[1]}", [check["fact"] for check in self.ask(rank)])
        self.only(self.await_state(harness.wait_until(worker, "worker"), "forked by"), "recording", "note", f"it was forked by pid {rank}, which is recorded", "Nothing needs")
        job.signal(signal.SIGTERM)
        job.wait()

    def test_another_tool_is_in_it(self):
        tool = self.path("libToolsInjection64.so")
        shutil.copy(os.path.join(BUILD, "tests", "e2e", "cupti_17", "libcupti.so.11.7"), tool)
        program = self.start(["sleep", "1000"], env={"LD_PRELOAD": tool})
        self.find(self.await_state(program.pid, "libToolsInjection64"), "other tools", "note", f"^loaded: {tool}$", "one of them at a time")

    @needs_root
    def test_one_of_another_user(self):
        program = self.start(["sleep", "1000"])
        checks = self.ask(program.pid, launcher=as_user(PLAIN_USER))
        self.only(checks, "process", "warning", rf"^{program.pid} \(sleep 1000\) may not be looked into: it belongs to another user \(uid 0\)", "as root")
        self.assertLessEqual({check["subject"] for check in checks}, {"process", "driver", "GPUs"})  # nothing is said of what was not seen


if __name__ == "__main__":
    harness.main()
