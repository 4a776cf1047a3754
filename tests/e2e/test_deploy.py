"""What samples/deploy has for clusters, each tried on a node that has gpuprobe where the packages put it: systemd's units, Slurm's scripts, enroot's hook, Kubernetes' manifests and the CDI file.

The node is this host with a /usr, /etc, /run, /tmp and /var/log of its own (overlays, in a mount namespace), and a network that nobody else sees. Without the real counterpart that a test names, it is skipped.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

import harness
from harness import GPUPROBE, LIBRARY, SIM_LIB, SOURCE, VECTOR_ADD, wait_until

DEPLOY = os.path.join(SOURCE, "samples", "deploy")
SANDBOX = os.path.join(SOURCE, "tests", "e2e", "unit_sandbox.py")
ENV = os.environ.get("GPUPROBE_DEPLOY_ENV") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "deploy-env")
TOKEN = "a-token-that-node-and-hub-have"
ALICE = 54321  # nobody's
SOCKET, INSTALLED = "/run/gpuprobe/collector.sock", "/usr/lib/gpuprobe/lib/libgpuprobe.so"
# Highest exposure that each unit may have, as systemd-analyze security says it, in tenths.
EXPOSURE = {"gpuprobe-node": 36, "gpuprobe-hub": 16}
SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=2
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
TaskProlog={folder}/task-prolog.sh
Epilog={folder}/epilog.sh
NodeName=a NodeHostname=localhost NodeAddr=127.0.0.1 Port=26818 CPUs=8 State=UNKNOWN
NodeName=b NodeHostname=localhost NodeAddr=127.0.0.1 Port=26819 CPUs=8 State=UNKNOWN
PartitionName=plain Nodes=a,b Default=YES MaxTime=INFINITE State=UP
PartitionName=recorded Nodes=a,b MaxTime=INFINITE State=UP
"""


def text_of(*parts):
    return harness.read_file(os.path.join(DEPLOY, *parts)).decode()


def tool(name):
    return shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin")


@unittest.skipUnless(os.geteuid() == 0, "needs root: it makes a node of its own")
class Node(harness.EndToEndTest):
    """This host with folders and a network of its own. Commands run there by `on_node`."""

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        own = self.path("node")
        os.mkdir(own)
        overlays = " && ".join(f"mkdir -p {own}/{name}-up {own}/{name}-work && mount -t overlay {name} -o lowerdir=/{name},upperdir={own}/{name}-up,workdir={own}/{name}-work /{name}" for name in ("usr", "etc"))
        # Leads nowhere. Resolvers know no IPv4 where only loopback has it.
        cable = "ip link add eth0 type veth peer name eth1 && ip addr add 10.78.0.1/24 dev eth0 && ip link set eth0 up && ip link set eth1 up"
        # The workspace stays where it is.
        tmp = f"mount --bind {self.folder} /mnt && mount -t tmpfs -o mode=1777 none /tmp && mkdir {self.folder} && mount --move /mnt {self.folder} && mount -t tmpfs -o mode=1777 none /dev/shm"
        script = (f"mount --make-rprivate / && {tmp} && mount -t tmpfs none {own} && {overlays} && mount -t tmpfs none /run && mount -t tmpfs none /var/log && mount -t tmpfs none /var/lib && mount -t tmpfs none /opt && mount -t tmpfs none /root && "
                  f"mkdir -p /usr/lib/gpuprobe/lib /usr/lib/gpuprobe/bin && cp {GPUPROBE} /usr/lib/gpuprobe/bin/ && cp {LIBRARY} {INSTALLED} && ln -s ../lib/gpuprobe/bin/gpuprobe /usr/bin/gpuprobe && "
                  f"echo 'gpuprobe:x:54300:54300::/nonexistent:/bin/false' >> /etc/passwd && ip link set lo up && {cable} && echo made && exec sleep 1000")
        self.node = self.start(["unshare", "--mount", "--net", "sh", "-c", script])
        wait_until(lambda: b"made\n" in self.node.finished().stdout or not self.node.alive(), "node")
        if not self.node.alive():
            self.skipTest(f"no node can be made here: {self.node.finished().stderr.decode()}")
        self.sim = self.path("sim")
        shutil.copytree(SIM_LIB, self.sim, symlinks=True)
        shutil.copy(VECTOR_ADD, self.path("vector_add"))

    def on_node(self, command, **options):
        return self.start(["nsenter", f"--target={self.node.pid}", "--mount", "--net", f"--wdns={self.cwd}", *command], **options)

    def run_on_node(self, command, **options):
        return self.on_node(command, **options).wait()

    def put(self, path, content):
        done = self.run_on_node(["sh", "-c", f"mkdir -p {os.path.dirname(path)} && printf %s \"$1\" > {path}", "sh", content])
        self.assertEqual(done.returncode, 0, str(done))

    def start_unit(self, name, options="", **env):
        """What the unit starts, under its restrictions."""
        unit = os.path.join(DEPLOY, "systemd", f"{name}.service")
        start = re.search(r"^ExecStart=(.*)$", text_of("systemd", f"{name}.service"), re.MULTILINE)[1]
        return self.on_node(["unshare", "--mount", "/usr/bin/python3", "-B", SANDBOX, unit, self.folder, "--", *start.replace("$OPTIONS", options).split()], env={"XDG_RUNTIME_DIR": None, **env})

    def start_collector(self, *options):
        program = self.on_node(["/usr/bin/gpuprobe", "collect", "--node", *options])
        return self.await_said(program, "collecting for all users")

    def await_said(self, program, words):
        wait_until(lambda: words.encode() in program.so_far() or not program.alive(), words)
        self.assertTrue(program.alive(), program.so_far().decode())
        return program

    def job_env(self, **extra):
        return {"GPUPROBE_AUTOSTART": None, "XDG_RUNTIME_DIR": None, "GPUSIM_TRUTH": self.path("truth"), "LD_LIBRARY_PATH": self.sim, **harness.PATIENT, **extra}

    def runs(self, user="root"):
        """Reports of that user's runs on the node."""
        found = self.run_on_node(["sh", "-c", f"ls -d /var/log/gpuprobe/{user}/*/report.json 2>/dev/null"]).stdout.decode().split()
        return [json.loads(self.run_on_node(["cat", path]).stdout) for path in found]

    def end(self, *programs):
        for program in programs:
            program.signal(signal.SIGTERM)
        return [program.wait() for program in programs]

    def assert_recorded(self, user="root", ranks=1):
        reports = wait_until(lambda: self.runs(user), "report")
        self.assertEqual([len(report["ranks"]) for report in reports], [ranks])
        self.assertGreater(min(rank["kernels"]["count"] for rank in reports[0]["ranks"]), 0)


class Systemd(Node):

    @unittest.skipUnless(tool("systemd-analyze"), "no systemd-analyze: apt-get install systemd")
    def test_units_are_right_and_hardened(self):
        for name, most in EXPOSURE.items():
            unit = self.path(f"{name}.service")
            shutil.copy(os.path.join(DEPLOY, "systemd", f"{name}.service"), unit)
            verified = self.run_on_node(["systemd-analyze", "verify", "--man=no", unit])
            self.assertEqual((verified.returncode, verified.stderr), (0, b""), str(verified))
            judged = self.run_on_node(["systemd-analyze", "security", "--offline=true", f"--threshold={most}", "--no-pager", unit])
            self.assertEqual(judged.returncode, 0, judged.stdout.decode()[-200:])
            self.assertIn(b"Overall exposure level", judged.stdout)

    @unittest.skipUnless(tool("systemd-analyze"), "no systemd-analyze: apt-get install systemd")
    def test_the_restrictions_hold(self):
        """As the sandbox of these tests applies them."""
        tries = {"touch /usr/new": False, "touch /run/gpuprobe/new": True, "unshare --mount true": False, "unshare --user true": False, "mknod /run/gpuprobe/device c 1 3": False,
                 "hostname another": False, "python3 -c 'import socket; socket.socket(socket.AF_PACKET)'": False, "python3 -c 'import socket; socket.socket(socket.AF_INET)'": True,
                 "python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=7)'": False, "setpriv --reuid=54321 --regid=54321 --clear-groups true": True, "ls /root": True}
        for command, works in tries.items():
            unit = os.path.join(DEPLOY, "systemd", "gpuprobe-node.service")
            done = self.run_on_node(["unshare", "--mount", "/usr/bin/python3", "-B", SANDBOX, unit, self.folder, "--", "/bin/sh", "-c", command])
            self.assertEqual(done.returncode == 0, works, f"{command}: {done}")

    @unittest.skipUnless(tool("systemd-analyze"), "no systemd-analyze: apt-get install systemd")
    def test_node_and_hub_work_under_their_restrictions(self):
        self.put("/root/.config/gpuprobe/hub-token", TOKEN)
        self.run_on_node(["chmod", "600", "/root/.config/gpuprobe/hub-token"])
        hub = self.await_said(self.start_unit("gpuprobe-hub", GPUPROBE_HUB_TOKEN=TOKEN), "gpuprobe: jobs: http://127.0.0.1:9460")
        node = self.await_said(self.start_unit("gpuprobe-node", "--hub 127.0.0.1"), "collecting for all users")
        for program in (hub, node):
            self.assertRegex(harness.read_proc(program.pid, "status").decode(), r"NoNewPrivs:\s1\nSeccomp:\s2\n")
        for user, uid in (("root", 0), (str(ALICE), ALICE)):
            home = self.path(f"home-{uid}")
            os.mkdir(home)
            os.chown(home, uid, uid)
            done = self.run_on_node(["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", self.path("vector_add")],
                                    env=self.job_env(CUDA_INJECTION64_PATH=INSTALLED, GPUSIM_TRUTH=os.path.join(home, "truth"), TMPDIR=home, HOME=home))
            self.assertEqual(done.returncode, 0, str(done))
            self.assert_recorded(user)
        # root's token is in its home, which the unit may read; the other user has neither.
        said = wait_until(lambda: (text := node.so_far().decode()) and text.count("1 rank, ") == 2 and text, "both runs")
        self.assertRegex(said, rf"root: 1 rank, /var/log/gpuprobe/root/\S+; \S+ has it, too\n")
        self.assertRegex(said, rf"{ALICE}: 1 rank, /var/log/gpuprobe/{ALICE}/\S+")
        for ended in self.end(node, hub):
            self.assertEqual(ended.returncode, 0, str(ended))


@unittest.skipUnless(all(tool(name) for name in ("slurmctld", "slurmd", "srun")), "no Slurm: apt-get install slurmctld slurmd slurm-client")
class Slurm(Node):
    """A controller and two nodes."""

    def setUp(self):
        super().setUp()
        self.cluster = self.path("slurm")
        os.mkdir(self.cluster)
        for name in ("state", "spool-a", "spool-b"):
            os.mkdir(os.path.join(self.cluster, name))
        self.conf = os.path.join(self.cluster, "slurm.conf")
        with open(self.conf, "w", encoding="utf-8") as file:
            file.write(SLURM_CONF.format(folder=self.cluster))
        for name, partitions in (("task-prolog.sh", "recorded"), ("epilog.sh", "")):
            path = os.path.join(self.cluster, name)
            with open(path, "w", encoding="utf-8") as file:  # as a site sets it up
                file.write(text_of("slurm", name).replace('partitions=""', f'partitions="{partitions}"'))
            os.chmod(path, 0o755)
        self.daemons = [self.on_node([*command, "-f", self.conf], env={"SLURM_CONF": self.conf}) for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "a"], ["slurmd", "-D", "-N", "b"])]
        wait_until(lambda: self.slurm("sinfo", "-h", "-o", "%D %t", "-p", "plain").stdout == b"2 idle\n", "nodes of Slurm")
        self.collector = self.start_collector()

    def slurm(self, *command, **extra):
        return self.run_on_node(command, env=self.job_env(SLURM_CONF=self.conf, CUDA_INJECTION64_PATH=None, **extra))

    def tearDown(self):
        self.end(self.collector, *self.daemons)
        super().tearDown()

    def test_jobs_that_ask_for_it_are_recorded_and_no_other(self):
        """Two tasks on two nodes, which share this host's collector, are one job of two ranks."""
        task = ["srun", "--nodes=2", "--ntasks=2", self.path("vector_add")]
        for extra in ({}, {"GPUPROBE": "0"}, {"GPUPROBE": "1", "CUDA_INJECTION64_PATH": "/somebody/elses.so"}):
            self.assertEqual(self.run_on_node(task, env=self.job_env(SLURM_CONF=self.conf, **extra)).returncode, 0)
        self.assertEqual(self.runs(), [])
        done = self.slurm(*task, GPUPROBE="1")
        self.assertEqual(done.returncode, 0, str(done))
        self.assert_recorded(ranks=2)
        for consent, reached in (("1", True), ("0", False)):
            checks = json.loads(self.slurm("srun", "-n", "1", "/usr/bin/gpuprobe", "doctor", "--json", GPUPROBE=consent).stdout)["checks"]
            said, = (check["fact"] for check in checks if check["subject"] == "collector")
            self.assertIn(f"listens on {SOCKET}, for all users", said)
            self.assertEqual("load the probe (CUDA_INJECTION64_PATH)" in said, reached, said)

    def test_a_partition_can_have_it_on_and_a_job_refuses_it(self):
        task = ["srun", "-p", "recorded", "-n", "1", self.path("vector_add")]
        self.assertEqual(self.slurm(*task, GPUPROBE="0").returncode, 0)
        self.assertEqual(self.runs(), [])
        self.assertEqual(self.slurm(*task).returncode, 0)
        self.assert_recorded()

    def test_a_job_is_the_same_without_the_library_or_a_collector(self):
        command = f"env | grep -c CUDA_INJECTION64_PATH; {self.path('vector_add')} > /dev/null; exit 7"
        ran = [self.slurm("srun", "-n", "1", "sh", "-c", command, GPUPROBE="1")]
        self.run_on_node(["mv", INSTALLED, "/opt"])
        ran.append(self.slurm("srun", "-n", "1", "sh", "-c", command, GPUPROBE="1"))
        # Nor without a collector: ending it switches everything off.
        self.run_on_node(["mv", "/opt/libgpuprobe.so", INSTALLED])
        self.end(self.collector)
        ran.append(self.slurm("srun", "-n", "1", "sh", "-c", command, GPUPROBE="1"))
        self.assertEqual([(each.returncode, each.stdout) for each in ran], [(7, b"1\n"), (7, b"0\n"), (7, b"0\n")])
        # The next job on a node that was drained, by an epilog that failed, would wait for ever.
        harness.wait_until(lambda: self.slurm("sinfo", "-h", "-o", "%t", "-p", "plain").stdout.split() == [b"idle"], "idle nodes")

    def test_the_epilog_removes_what_killed_programs_leave_and_nothing_else(self):
        """Of a user who has no process left; links that the user made lead nowhere."""
        self.put("/opt/precious", "")
        leave = (f"mkdir /tmp/gpuprobe-{ALICE} /dev/shm/gpuprobe-{ALICE}; touch /tmp/gpuprobe-{ALICE}/collector.sock; ln -s /opt /tmp/gpuprobe-{ALICE}/opt;"
                 f"touch /dev/shm/gpuprobe-{ALICE}/new; touch -d '2 days ago' /dev/shm/gpuprobe-{ALICE}/old")
        epilog = ["env", f"SLURM_JOB_UID={ALICE}", os.path.join(self.cluster, "epilog.sh")]
        as_alice = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "--"]
        self.assertEqual(self.run_on_node([*as_alice, "sh", "-c", leave]).returncode, 0)
        running = self.on_node([*as_alice, "sleep", "1000"])
        wait_until(lambda: harness.read_proc(running.pid, "cmdline").startswith(b"sleep\0"), "program of the user")  # not setpriv, which becomes it
        self.assertEqual(self.run_on_node(epilog).returncode, 0)
        self.assertEqual(self.run_on_node(["ls", f"/tmp/gpuprobe-{ALICE}/collector.sock"]).returncode, 0, "the user has a program")
        running.kill()
        self.assertEqual(self.run_on_node(epilog).returncode, 0)
        self.assertNotEqual(self.run_on_node(["ls", f"/tmp/gpuprobe-{ALICE}"]).returncode, 0)
        self.assertEqual(self.run_on_node(["ls", f"/dev/shm/gpuprobe-{ALICE}"]).stdout, b"new\n")
        self.assertEqual(self.run_on_node(["ls", "/opt/precious"]).returncode, 0)
        for odd in ("", "0; rm -rf /opt", "99999999999"):
            self.assertEqual(self.run_on_node(["env", f"SLURM_JOB_UID={odd}", os.path.join(self.cluster, "epilog.sh")]).returncode, 0)


class Containers(Node):
    """What a container is given, read from the samples, and a program that is started with just that."""

    def run_inside(self, mounts, variables):
        """Mounts and variables as the runtime would give them: [(source, target)]."""
        binds = " && ".join(f"mkdir -p {os.path.dirname(target)} && {{ [ -d {source} ] && mkdir -p {target} || touch {target}; }} && mount --bind -o ro {source} {target}" for source, target in mounts)
        return self.run_on_node(["unshare", "--mount", "sh", "-c", f"{binds} && rm -rf /usr/lib/gpuprobe && exec {self.path('vector_add')}"], env=self.job_env(**variables))

    def run_hook(self, environment, **env):
        """The lines that the hook adds to the container's mounts and environment, as enroot hands them to it."""
        paths = [self.path("enroot-environ"), self.path("enroot-mounts")]
        for path, content in zip(paths, (environment, "")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        done = self.run_on_node(["bash", os.path.join(DEPLOY, "slurm", "enroot-hook.sh")], env={"ENROOT_ENVIRON": paths[0], "ENROOT_MOUNTS": paths[1], **env})
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        added = [harness.read_file(path).decode() for path in paths]
        return added[0].removeprefix(environment), added[1]

    def test_enroots_hook(self):
        self.assertEqual(self.run_hook("A=1\n", GPUPROBE="1"), ("", ""), "there is no collector")
        collector = self.start_collector()
        for environment, job in (("A=1\n", None), ("A=1\n", "0"), ("GPUPROBE=0\n", "1"), ("CUDA_INJECTION64_PATH=/tool.so\n", "1")):
            self.assertEqual(self.run_hook(environment, GPUPROBE=job), ("", ""), (environment, job))
        self.assertEqual(self.run_hook("GPUPROBE=1\n"), self.run_hook("A=1\n", GPUPROBE="1"))
        environment, mounts = self.run_hook("A=1\n", GPUPROBE="1")
        fields = [line.split() for line in mounts.splitlines()]
        for _, _, kind, options in fields:
            self.assertEqual((kind, {"bind", "ro"} <= set(options.split(","))), ("none", True))
        done = self.run_inside([(source, target) for source, target, _, _ in fields], dict(line.split("=", 1) for line in environment.splitlines()))
        self.assertEqual(done.returncode, 0, str(done))
        self.assert_recorded()
        self.end(collector)

    @unittest.skipUnless(tool("podman"), "no podman: apt-get install podman crun")
    def test_cdi_as_podman_applies_it(self):
        """podman asks a runtime to make the container: here one that keeps what it was asked for."""
        runtime = self.path("crun")
        with open(runtime, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = --bundle ] && cp "$2/config.json" {self.path("config.json")}; shift; done\nexit 1\n')
        os.chmod(runtime, 0o755)
        collector = self.start_collector()
        self.put("/etc/cdi/gpuprobe.json", text_of("cdi", "gpuprobe.json"))
        os.mkdir(self.path("rootfs"))
        podman = ["podman", "--root", self.path("podman"), "--runroot", "/run/podman", "--tmpdir", "/run/podman-tmp", "--cgroup-manager=cgroupfs", "--events-backend=file", "--runtime", runtime]
        made = self.run_on_node([*podman, "run", "--rm", "--net=host", "--cgroups=disabled", "--device", "gpuprobe.dev/inject=on", "--rootfs", self.path("rootfs"), "/bin/true"])
        self.assertTrue(os.path.exists(self.path("config.json")), str(made))
        asked = json.loads(harness.read_file(self.path("config.json")))
        mounts = [(mount["source"], mount["destination"]) for mount in asked["mounts"] if "gpuprobe" in mount["source"] and not mount["source"].startswith(self.folder)]
        variables = dict(line.split("=", 1) for line in asked["process"]["env"] if line.startswith(("GPUPROBE", "CUDA")))
        self.assertEqual((len(mounts), len(variables)), (2, 3))
        done = self.run_inside(mounts, variables)
        self.assertEqual(done.returncode, 0, str(done))
        self.assert_recorded()
        self.end(collector)


@unittest.skipUnless(os.path.exists(os.path.join(ENV, "bin", "python")), "no kubernetes-validate: run scripts/deploy-env.sh")
class Kubernetes(Containers):

    def manifests(self, name):
        code = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
        return json.loads(subprocess.run([os.path.join(ENV, "bin", "python"), "-c", code, os.path.join(DEPLOY, "kubernetes", name)], capture_output=True, check=True).stdout)

    def container(self, name, kind):
        manifest, = (each for each in self.manifests(name) if each["kind"] == kind)
        pod = manifest["spec"].get("template", manifest)["spec"]
        return pod, pod["containers"][0]

    def test_manifests_are_what_the_schemas_allow(self):
        for version in ("1.25.0", "1.31.0", "1.37.0"):
            for name in ("node.yaml", "pod.yaml", "hub.yaml"):
                done = subprocess.run([os.path.join(ENV, "bin", "kubernetes-validate"), "--strict", "-k", version, os.path.join(DEPLOY, "kubernetes", name)], capture_output=True, check=False, timeout=harness.LIMIT_S)
                self.assertEqual(done.returncode, 0, (done.stdout + done.stderr).decode())
        broken = self.path("broken.yaml")
        with open(broken, "w", encoding="utf-8") as file:
            file.write(text_of("kubernetes", "node.yaml").replace("hostPID", "hostPid"))
        self.assertNotEqual(subprocess.run([os.path.join(ENV, "bin", "kubernetes-validate"), "--strict", broken], capture_output=True, check=False).returncode, 0, "the schemas are strict")

    def test_what_manifests_name_is_there(self):
        """Options of the program, files of the package, and each other's volumes, ports and secrets."""
        for name, kind in (("node.yaml", "DaemonSet"), ("hub.yaml", "Deployment")):
            pod, container = self.container(name, kind)
            help_text = self.run_well([GPUPROBE, container["command"][1], "--help"]).stdout.decode()
            for word in container["command"][2:]:
                if word.startswith("--"):
                    self.assertRegex(help_text, rf"(?m)^  {word} ", name)
            self.assertEqual(self.run_on_node(["ls", container["command"][0]]).returncode, 0)
            volumes = {volume["name"] for volume in pod["volumes"]}
            self.assertLessEqual({mount["name"] for each in [container, *pod.get("initContainers", [])] for mount in each["volumeMounts"]}, volumes)
        self.assertIn(INSTALLED, " ".join(self.container("node.yaml", "DaemonSet")[0]["initContainers"][0]["command"]))
        service, = (each for each in self.manifests("hub.yaml") if each["kind"] == "Service")
        _, hub = self.container("hub.yaml", "Deployment")
        ports = {port["name"]: port["containerPort"] for port in hub["ports"]}
        self.assertEqual({port["targetPort"]: port["port"] for port in service["spec"]["ports"]}, ports)
        for name, option in (("http", "--http"), ("posts", "--listen")):
            self.assertEqual(hub["command"][hub["command"].index(option) + 1], f"0.0.0.0:{ports[name]}")
        _, node = self.container("node.yaml", "DaemonSet")
        self.assertEqual(node["command"][node["command"].index("--hub") + 1], f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{ports['posts']}")

    def start_container(self, name, kind, user=None, **env):
        """The command of the manifest, with its user and capabilities."""
        _, container = self.container(name, kind)
        capabilities = "".join(f",+{each.lower()}" for each in container["securityContext"]["capabilities"].get("add", ()))
        own = ["--inh-caps=-all", "--no-new-privs", *([f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else [])]
        return self.on_node(["setpriv", f"--bounding-set=-all{capabilities}", *own, "--", *container["command"]], env={"XDG_RUNTIME_DIR": None, **env})

    def test_a_pod_is_recorded_by_its_node_and_shown_by_the_hub(self):
        """All with the commands, users, capabilities, folders of the host and variables that the manifests have."""
        pod, _ = self.container("node.yaml", "DaemonSet")
        self.put("/opt/gpuprobe/.made", "")
        copied = self.run_on_node(["sh", "-c", pod["initContainers"][0]["command"][2].replace("/host-library", "/opt/gpuprobe")])
        self.assertEqual(copied.returncode, 0, str(copied))
        # As kubelet mounts a secret.
        self.put("/root/.config/gpuprobe/..data/hub-token", TOKEN)
        self.run_on_node(["sh", "-c", "chmod 400 /root/.config/gpuprobe/..data/hub-token && ln -s ..data/hub-token /root/.config/gpuprobe/hub-token && mkdir /var/lib/gpuprobe && chown 64000 /var/lib/gpuprobe"
                          " && echo 127.0.0.1 gpuprobe-hub.gpuprobe.svc >> /etc/hosts"])
        hub = self.await_said(self.start_container("hub.yaml", "Deployment", user=64000, GPUPROBE_HUB_TOKEN=TOKEN, GPUPROBE_HTTP_TOKEN=TOKEN, HOME="/var/lib/gpuprobe"), "gpuprobe: jobs: http://")
        collector = self.await_said(self.start_container("node.yaml", "DaemonSet", HOME="/root"), "collecting for all users")
        pod, train = self.container("pod.yaml", "Pod")
        paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
        mounts = [(paths[mount["name"]], mount["mountPath"]) for mount in train["volumeMounts"]]
        done = self.run_inside(mounts, {variable["name"]: variable["value"] for variable in train["env"]})
        self.assertEqual(done.returncode, 0, str(done))
        self.assert_recorded()
        wait_until(lambda: re.search(rb"root: 1 rank, \S+; \S+ has it, too", collector.so_far()), "the job at the hub")
        get = "import sys, urllib.request as r; print(r.urlopen(r.Request('http://127.0.0.1:9460' + sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]}), timeout=20).read().decode())"
        self.assertEqual(self.run_on_node(["/usr/bin/python3", "-c", get, "/healthz", "none"]).stdout, b"ok\n\n")
        self.assertNotEqual(self.run_on_node(["/usr/bin/python3", "-c", get, "/metrics", "none"]).returncode, 0)
        self.assertIn(b'gpuprobe_hub_jobs{state="open"} 1', self.run_on_node(["/usr/bin/python3", "-c", get, "/metrics", TOKEN]).stdout)
        for ended in self.end(collector, hub):
            self.assertEqual(ended.returncode, 0, str(ended))


# Their tests run once.
for inherited in ("test_enroots_hook", "test_cdi_as_podman_applies_it"):
    setattr(Kubernetes, inherited, None)

if __name__ == "__main__":
    harness.main()
