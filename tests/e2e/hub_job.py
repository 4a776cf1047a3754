"""A job on hosts that share nothing but a network, each with `gpuprobe run`."""
import contextlib
import glob
import json
import os
import signal

import harness
import hosts
from harness import BUILD, GPUPROBE

DDP_TRAIN = os.path.join(BUILD, "samples", "ddp_train")
TOKEN = "a-token-that-both-hosts-have"
PORT = 9461


class HubJob(hosts.Hosts, harness.EndToEndTest):

    RANKS_PER_HOST = 2

    def start_host(self, name, options=(), arguments=("--steps", "400"), program=DDP_TRAIN, cwd=None, **extra):
        """`gpuprobe run` there, over a launcher that starts the host's ranks."""
        return self.start_on(name, [GPUPROBE, "run", *options, "--", "bash", "-c", self.script_of(name, program, arguments)], env={**self.launched_on(name), **extra},
                             devices=self.RANKS_PER_HOST * self.COUNT, cwd=cwd or self.home(name))

    def script_of(self, name, program, arguments):
        """Starts the host's ranks, and fails if one does."""
        first = self.RANKS_PER_HOST * (int(name[1:]) - 1)
        ranks = range(first, first + self.RANKS_PER_HOST)
        script = " ".join(f"RANK={rank} LOCAL_RANK={rank} {program} {' '.join(arguments)} & p{rank}=$!;" for rank in ranks)
        return script + "".join(f" wait $p{rank} || exit;" for rank in ranks)

    def launched_on(self, name):
        """The variables of a launcher."""
        return {"WORLD_SIZE": str(self.RANKS_PER_HOST * self.COUNT), "LOCAL_WORLD_SIZE": str(self.RANKS_PER_HOST), "MASTER_ADDR": "n1", "MASTER_PORT": "29500",
                "DDP_ID_FILE": self.path("id"), "GPUPROBE_HUB_TOKEN": TOKEN, "HOME": self.home(name)}

    def home(self, name):
        os.makedirs(self.path("homes", name), 0o700, exist_ok=True)
        return self.path("homes", name)

    def run_of(self, name):
        run, = glob.glob(os.path.join(self.home(name), "gpuprobe-runs", "*"))
        return run

    def ranks_in_top(self, run):
        shown = self.run_program([GPUPROBE, "top", "--once", "--json", run])
        return len(json.loads(shown.stdout)["ranks"]) if shown.returncode == 0 else 0

    def record(self, **options):
        programs = {name: self.start_host(name, **options) for name in self.holders}
        finished = {name: program.wait(harness.LIMIT_S) for name, program in programs.items()}
        for name, program in finished.items():
            self.assertEqual(program.returncode, 0, f"{name}: {program}")
        return {name: program.stderr.decode() for name, program in finished.items()}

    def end(self, programs, ranks=()):
        for rank in ranks:
            os.kill(rank["pid"], signal.SIGKILL)

        def have_ended():
            """Ranks may only be starting."""
            for program in [] if ranks else programs.values():
                for pid in harness.processes_of_session(program.pid):
                    if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
            return not any(program.alive() for program in programs.values())
        harness.wait_until(have_ended, "end of the job")
        for program in programs.values():
            program.wait(harness.LIMIT_S)

    def mirrored(self, name="n2", log="rank-2.gpr"):
        """Bytes of a log at the hub and where it was recorded."""
        runs = [glob.glob(os.path.join(self.home(host), "gpuprobe-runs", "*", *folder, log)) for host, folder in (("n1", [name]), (name, []))]
        return [os.path.getsize(paths[0]) if paths else 0 for paths in runs]

    def collector_of(self, program, name):
        """The process that records there."""
        folder = self.run_of(name)
        collector, = (pid for pid in harness.processes_of_session(program.pid)
                      if any(os.path.exists(link) and os.readlink(link).startswith(folder) for link in glob.glob(f"/proc/{pid}/fd/*")))
        return collector
