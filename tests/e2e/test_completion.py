"""Completions and manual pages: what a shell offers for a beginning, and what man(1) shows, is what the program takes."""
import os
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

import harness
from harness import GPUPROBE

COMMANDS = ("run", "doctor", "attach", "detach", "capture", "collect", "hub", "jobs", "runs", "report", "autopsy", "diff", "top", "look", "stacks", "trace", "export", "query", "simulate", "help", "version")


class Completion(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.script = self.path("gpuprobe.bash")
        with open(self.script, "wb") as file:
            file.write(self.run_well([GPUPROBE, "help", "completion-bash"]).stdout)

    def bash(self, *words):
        """What bash offers for the last word. "=" is a word of its own, as bash breaks it."""
        asks = f"""source {self.script}
                   COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
                   _gpuprobe 2>&1
                   printf '%s\\n' "${{COMPREPLY[@]}}" """
        shown = self.run_well(["bash", "--norc", "-c", asks, "bash", "gpuprobe", *words])
        self.assertEqual(shown.stderr, b"")
        return shown.stdout.decode().split()

    def test_bash_offers_subcommands(self):
        self.assertEqual(sorted(self.bash("")), sorted(COMMANDS))
        self.assertEqual(self.bash("re"), ["report"])
        self.assertEqual(self.bash("t"), ["top", "trace"])

    def test_bash_offers_every_option_that_help_names(self):
        for command in COMMANDS:
            with self.subTest(command):
                shown = self.run_well([GPUPROBE, command, "--help"]).stdout.decode()
                options = re.findall(r"^  (?:-\w,)?(--[\w-]+)", shown, re.MULTILINE)
                self.assertIn("--help", options)
                self.assertEqual(sorted(set(options)), sorted(word for word in self.bash(command, "--")))

    def test_bash_offers_values(self):
        self.assertEqual(self.bash("report", "DIR", "--flops-type", "fp"), ["fp16", "fp32", "fp8"])
        self.assertEqual(self.bash("trace", "DIR", "--format", "=", "c"), ["chrome"])
        self.assertEqual(self.bash("trace", "DIR", "--format", "="), ["perfetto", "chrome"])
        self.assertEqual(self.bash("help", "fi"), ["findings"])
        self.assertEqual(self.bash("help", "sync"), ["sync-in-loop"])
        self.assertEqual(self.bash("simulate", "--scenario", "straggler-l"), ["straggler-launches", "straggler-late"])
        self.assertEqual(self.bash("trace", "DIR", "--around", "memory-l"), ["memory-leak"])
        # A number is for the user to know: files would be a wrong answer.
        os.mkdir(os.path.join(self.cwd, "10-runs"))
        self.assertEqual(self.bash("run", "--hang-after", "1"), [])
        self.assertEqual(self.bash("report", "1"), ["10-runs"])
        self.assertEqual(self.bash("run", "--out", "1"), ["10-runs"])

    def test_bash_leaves_the_command_alone(self):
        self.assertIn("bash", self.bash("run", "--", "bas"))
        os.mkdir(os.path.join(self.cwd, "--flops"))
        self.assertEqual(self.bash("run", "--", "bash", "--flops"), ["--flops"])

    @unittest.skipUnless(shutil.which("zsh"), "no zsh (scripts/install-deps.sh installs it)")
    def test_zsh_offers_the_same(self):
        functions = self.path("functions")
        os.mkdir(functions)
        with open(os.path.join(functions, "_gpuprobe"), "wb") as file:
            file.write(self.run_well([GPUPROBE, "help", "completion-zsh"]).stdout)
        os.symlink(GPUPROBE, os.path.join(functions, "gpuprobe"))
        env = self.env({"TERM": "dumb", "PS1": "", "ZDOTDIR": self.path("home"), "PATH": f"{functions}:{os.environ['PATH']}"})
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(self.cwd)
            os.execve(shutil.which("zsh"), ["zsh", "-f", "-i"], env)
        self.addCleanup(os.close, master)

        def shown(keys, until):
            os.write(master, keys.encode())
            seen, deadline = "", time.monotonic() + harness.LIMIT_S
            while not re.search(until, seen):
                ready, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
                self.assertTrue(ready, f"no {until!r} in {seen!r}")
                seen += os.read(master, 65536).decode(errors="replace")
            return re.sub(".\x08", "", seen)  # what it wrote over

        shown(f"fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -d {self.path('dump')}; echo rea''dy\n", "ready\r\n")
        self.assertRegex(shown("gpuprobe rep\t; echo don''e\n", r"done\r\n"), "gpuprobe report")
        self.assertRegex(shown("gpuprobe trace . --format=chr\t; echo don''e\n", r"done\r\n"), "--format=chrome")
        self.assertRegex(shown("gpuprobe report . --flops-t\tbf\t; echo don''e\n", r"done\r\n"), "--flops-type=bf16")
        os.write(master, b"\x15")
        shown("exit\n", "")
        os.waitpid(pid, 0)

    @unittest.skipUnless(shutil.which("groff"), "no groff (scripts/install-deps.sh installs groff-base)")
    def test_manual_pages(self):
        for command in ("", *COMMANDS):
            with self.subTest(command):
                page = self.run_well([GPUPROBE, "help", *filter(None, [command]), "--man"]).stdout
                shown = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-P-cbou"], input=page, capture_output=True, check=True, timeout=harness.LIMIT_S)
                self.assertEqual(shown.stderr, b"", "groff warns")
                text = shown.stdout.decode()
                self.assertIn("gpuprobe" + (f"-{command}" if command else ""), text.lower())
                if command:
                    said = self.run_well([GPUPROBE, command, "--help"]).stdout.decode()
                    for option in re.findall(r"^  (?:-\w,)?(--[\w-]+)", said, re.MULTILINE):
                        self.assertRegex(text, rf"(?m)^ +(-\w, )?{option}( |$)")
        refused = self.run_program([GPUPROBE, "help", "findings", "--man"])
        self.assertEqual((refused.returncode, refused.stderr.count(b"\n")), (2, 1))

    def test_none_of_it_depends_on_who_made_it(self):
        for topic in (["completion-bash"], ["completion-zsh"], ["collect", "--man"], ["--man"]):
            first = self.run_well([GPUPROBE, "help", *topic]).stdout
            other = self.run_well([GPUPROBE, "help", *topic], env={"GPUPROBE_SOCKET": "/elsewhere", "XDG_RUNTIME_DIR": None, "HOME": "/"}).stdout
            self.assertEqual(first, other)


if __name__ == "__main__":
    harness.main()
