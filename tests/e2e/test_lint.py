"""scripts/lint.sh fails if clang-tidy does, and only then, whatever changed. In a repository of its own, with stand-ins for the clang tools."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import SOURCE

PRODUCT, TEST = "injector/product.cc", "tests/test.cc"
# Writes its last argument, the source, and the settings, and finds fault with sources that say so.
CLANG_TIDY = """#!/bin/sh
for argument; do
  case "$argument" in --config-file=*) settings=with ;; *.cc) echo "${argument#$PWD/} ${settings:-without}" >>tidied; ! grep -q WRONG "$argument" || status=1 ;; esac
done
exit ${status:-0}
"""


class Lint(unittest.TestCase):

    def setUp(self):
        self.tree = os.path.realpath(tempfile.mkdtemp(prefix="gpe2e-lint-"))
        self.addCleanup(shutil.rmtree, self.tree)
        shutil.copytree(os.path.join(SOURCE, "scripts"), self.path("scripts"), ignore=shutil.ignore_patterns("__pycache__"))
        for folder in ("injector", "collector", "proto", "stacks", "tests", "samples", "build/release"):
            os.makedirs(self.path(folder))
        for name, script in (("clang-tidy-14", CLANG_TIDY), ("clang-format-14", "#!/bin/sh\n")):
            self.write(f"bin/{name}", script)
            os.chmod(self.path(f"bin/{name}"), 0o755)
        for name in (PRODUCT, TEST):
            self.write(name, "int before;\n")
        commands = [{"directory": self.tree, "file": self.path(name), "command": f"c++ -c {self.path(name)}"} for name in (PRODUCT, TEST)]
        self.write("build/release/compile_commands.json", json.dumps(commands))
        self.write(".gitignore", "build\ntidied\n")
        self.git("init", "-q", "-b", "main")
        self.commit()

    def path(self, name):
        return os.path.join(self.tree, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments], cwd=self.tree, check=True, stdout=subprocess.DEVNULL, timeout=30)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "A change")

    def lint(self, *arguments):
        """Whether it passed, and what clang-tidy was given: each source, with or without the settings of tests/."""
        environment = dict(os.environ, PATH=self.path("bin") + os.pathsep + os.environ["PATH"])
        environment.pop("BUILD_DIR", None)
        done = subprocess.run([self.path("scripts/lint.sh"), *arguments], cwd=self.tree, env=environment, stdout=subprocess.DEVNULL, check=False, timeout=30)
        tidied = self.path("tidied")
        if not os.path.exists(tidied):
            return done.returncode == 0, set()
        with open(tidied, encoding="utf-8") as file:
            seen = set(file.read().splitlines())
        os.remove(tidied)
        return done.returncode == 0, seen

    def test_what_changed_is_checked_wherever_it_is(self):
        for changed in ([PRODUCT], [TEST], [PRODUCT, TEST]):
            for right in (True, False):
                with self.subTest(changed=changed, right=right):
                    for name in changed:
                        self.write(name, f"int {'right' if right else 'WRONG'}_{len(changed)};\n")
                    self.commit()
                    settings = {PRODUCT: "without", TEST: "with"}
                    self.assertEqual(self.lint("--changed"), (right, {f"{name} {settings[name]}" for name in changed}))

    def test_nothing_to_check_is_well(self):
        self.write("README.md", "Words.\n")
        self.commit()
        self.assertEqual(self.lint("--changed"), (True, set()))

    def test_everything_is_checked_without_an_option(self):
        self.assertEqual(self.lint(), (True, {f"{PRODUCT} without", f"{TEST} with"}))


if __name__ == "__main__":
    unittest.main()
