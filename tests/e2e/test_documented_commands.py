"""Every command that a page of docs/ shows is executed, or is listed here with the reason why not."""
import os
import re
import shlex
import shutil
import subprocess

import documented
import finding_pages
import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, SMALL_TRAINING, SOURCE

# What a command begins with, after its settings, and why it is not run.
NOT_RUN = {
    "nvidia-smi": "needs a GPU", "ibstat": "needs an InfiniBand adapter", "torchrun": "needs PyTorch and a GPU", "python3 -c \"import torch": "needs PyTorch",
    "srun": "needs Slurm; e2e.run_ranks has it", "mpirun": "e2e.run_ranks has it", "kill": "needs a process that is stopped",
    "dmesg": "needs root", "chronyc": "needs chronyd", "journalctl": "needs systemd", "top -H": "the host's own tool", "cat /sys/fs/cgroup": "the host's own file",
    "xdg-open": "needs a desktop", "pip install": "e2e.packages installs it", "apt install": "e2e.packages installs it", "scripts/install-deps.sh": "installs packages", "scripts/package.sh": "e2e.packages runs what it makes",
    "cmake": "e2e.install installs the build; the rest made it", "export": "sets a variable for the reader's shell",
    "gpuprobe doctor": "its exit status is what it says of the machine: e2e.doctor",
    "gpuprobe autopsy": "needs a process that was killed: e2e.recorder", "gpuprobe attach": "needs a program that runs: e2e.attach", "gpuprobe detach": "as attach",
    "gpuprobe capture": "needs a job that runs at level idle: e2e.capture",
    "gpuprobe look": "needs programs that use a GPU: e2e.look", "gpuprobe stacks": "shows a job that runs: e2e.stacks, e2e.native_stacks", "gpuprobe query http": "reads a served run: e2e.served_runs", "gpuprobe trace http": "as query", "gpuprobe diff http": "as query",
    "gpuprobe top": "shows a job that runs: e2e.live, e2e.frozen", "gpuprobe collect": "runs until it is stopped: e2e.node_collector",
    "gpuprobe hub": "runs until it is stopped: e2e.hub_program", "gpuprobe jobs": "asks a hub: e2e.hub_page",
    "gpuprobe report pretrain": "asks a hub: e2e.hub_jobs", "gpuprobe diff pretrain": "as report", "gpuprobe query pretrain": "as report",
}
SETTINGS = r"(?:[A-Z][A-Z0-9_]*=(?:\$\([^)]*\)|\S+) )*"


def reason_not_to_run(command):
    plain = re.sub(f"^{SETTINGS}", "", command)
    return next((reason for beginning, reason in NOT_RUN.items() if plain.startswith(beginning)), None)


def runnable(command):
    """What is profiled is replaced by a small training job: torchrun and train.py are the reader's."""
    options, dashes, _ = command.partition(" -- ")
    return f"{options} -- {shlex.join([LAUNCH_RANKS, '2', DDP_TRAIN, *SMALL_TRAINING])}" if dashes else command


class DocumentedCommands(harness.EndToEndTest):

    def prepare(self, page):
        """A folder with the run that its commands read: `my-run`, or named after the page's finding; that of the page's own screen, or a small one."""
        cwd = self.path(re.sub(r"\W", "-", page))
        os.mkdir(cwd)
        finding = os.path.basename(page)[:-len(".md")]
        run = "my-run"
        if os.path.dirname(page) == os.path.join("docs", "findings") and finding != "README":
            text, run = finding_pages.text_of(finding), finding
            if not finding_pages.keeps_screen(text):
                finding_pages.run_screen(text, cwd)
        if not os.path.exists(os.path.join(cwd, run)) and not any(f"--out {run}" in command for command in documented.shown_commands(page)):
            self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--nvtx", "--out", os.path.join(cwd, run)])
        return cwd

    def test_each_runs(self):
        ran = 0
        for page in documented.pages():
            commands = [command for command in documented.shown_commands(page) if reason_not_to_run(command) is None]
            if not commands:
                continue
            cwd = self.prepare(page)
            env = self.env({"PATH": f"{os.path.dirname(GPUPROBE)}:{os.environ['PATH']}"}, devices=2)
            for command in commands:
                with self.subTest(page=page, command=command):
                    finished = subprocess.run(["bash", "-euc", runnable(command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=harness.LIMIT_S)
                    self.assertEqual(finished.returncode, 0, finished.stderr)
                    ran += 1
            shutil.rmtree(cwd)
        self.assertGreater(ran, 50)

    def test_reasons_are_needed(self):
        """A reason that no command has is out of date."""
        shown = [re.sub(f"^{SETTINGS}", "", command) for page in documented.pages() for command in documented.shown_commands(page)]
        for beginning in NOT_RUN:
            self.assertTrue(any(command.startswith(beginning) for command in shown), beginning)

    def test_settings_of_the_environment_exist(self):
        known = self.run_well([GPUPROBE, "help", "environment"]).stdout.decode()
        of_collectors = re.findall(r"\bGPUPROBE_[A-Z_]+", self.run_well([GPUPROBE, "collect", "--help"]).stdout.decode())
        for page in documented.pages():
            for name in re.findall(r"\bGPUPROBE_[A-Z][A-Z_]+", open(os.path.join(SOURCE, page), encoding="utf-8").read()):
                with self.subTest(page=page, name=name):
                    self.assertTrue(f"  {name} " in known or name in of_collectors or name.startswith(("GPUPROBE_TEST_", "GPUPROBE_CUDA_")), name)


if __name__ == "__main__":
    harness.main()
