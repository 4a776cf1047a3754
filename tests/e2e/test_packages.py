"""The packages that people install: each runs the demo's program on the simulated node where it was installed, and is removed without a trace."""
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import BUILD, DDP_TRAIN, LAUNCH_RANKS, SMALL_TRAINING, SOURCE

SIZE_LIMIT_BYTES = 15 << 20


def pack(folder):
    subprocess.run([os.path.join(SOURCE, "scripts", "package.sh"), "--build", BUILD, "--out", folder], check=True, stdout=subprocess.DEVNULL)


def files_under(folder):
    return sorted(os.path.relpath(os.path.join(parent, name), folder) for parent, _, names in os.walk(folder) for name in names)


class Packages(harness.EndToEndTest):

    @classmethod
    def setUpClass(cls):
        cls.packed = tempfile.mkdtemp(prefix="gpe2e-packages-")
        cls.addClassCleanup(shutil.rmtree, cls.packed)
        pack(cls.packed)

    def package(self, pattern):
        path, = glob.glob(os.path.join(self.packed, pattern))
        return path

    def records_with(self, gpuprobe):
        out = self.path("out")
        self.run_well([gpuprobe, "run", "--quiet", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2)
        report = self.report(out)
        self.assertEqual(len(report["ranks"]), 2)
        self.assert_no_loss(report)

    def test_each_is_small(self):
        for pattern in ("*.deb", "*.tar.gz", "*.whl"):
            self.assertLess(os.path.getsize(self.package(pattern)), SIZE_LIMIT_BYTES, pattern)

    def test_the_same_tree_gives_the_same_bytes(self):
        again = self.path("again")
        pack(again)
        digests = [{name: hashlib.sha256(harness.read_file(os.path.join(folder, name))).hexdigest() for name in os.listdir(folder)} for folder in (self.packed, again)]
        self.assertEqual(len(digests[0]), 3)
        self.assertEqual(digests[0], digests[1])

    def test_each_has_the_licences_of_what_it_bundles(self):
        listing = subprocess.run(["tar", "-tf", self.package("*.tar.gz")], check=True, capture_output=True, text=True).stdout.splitlines()
        self.assertIn("gpuprobe/LICENSE", listing)
        for library, of in (("libprotobuf.so", "libprotobuf"), ("libzstd.so", "libzstd1"), ("libabsl_base.so", "libabsl")):
            self.assertTrue(any(library in name for name in listing), library)
            self.assertTrue(any(name.startswith("gpuprobe/licenses/" + of) for name in listing), of)

    def test_tarball(self):
        subprocess.run(["tar", "-C", self.folder, "-xf", self.package("*.tar.gz")], check=True)
        self.records_with(self.path("gpuprobe", "bin", "gpuprobe"))

    @unittest.skipUnless(shutil.which("dpkg"), "no dpkg")
    def test_deb(self):
        root = self.path("root")
        os.makedirs(os.path.join(root, "var", "lib", "dpkg", "updates"))
        for name in ("status", "available"):
            with open(os.path.join(root, "var", "lib", "dpkg", name), "w", encoding="utf-8"):
                pass
        # The tree has no other package, so the one that it depends on (the C library) is missing.
        dpkg = ["dpkg", "--root", root, "--force-not-root,depends", "--log", self.path("dpkg.log")]
        before = files_under(root)
        subprocess.run([*dpkg, "--install", self.package("*.deb")], check=True, capture_output=True)
        self.records_with(os.path.join(root, "usr", "bin", "gpuprobe"))
        subprocess.run([*dpkg, "--purge", "gpuprobe"], check=True, capture_output=True)
        left = [name for name in files_under(root) if name not in before and not name.startswith("var/lib/dpkg/")]
        self.assertEqual(left, [])

    def test_wheel(self):
        environment = self.path("venv")
        made = subprocess.run([sys.executable, "-m", "venv", environment], capture_output=True, text=True)
        if made.returncode != 0:
            self.skipTest(f"no virtual environment can be made: {made.stdout}")
        before = files_under(environment)
        pip = [os.path.join(environment, "bin", "pip"), "--disable-pip-version-check", "--no-cache-dir"]
        subprocess.run([*pip, "install", "--no-index", "--no-deps", "--no-compile", self.package("*.whl")], check=True, capture_output=True)
        self.records_with(os.path.join(environment, "bin", "gpuprobe"))
        subprocess.run([*pip, "uninstall", "-y", "gpuprobe"], check=True, capture_output=True)
        left = [name for name in files_under(environment) if name not in before and "__pycache__" not in name]
        self.assertEqual(left, [])


if __name__ == "__main__":
    harness.main()
