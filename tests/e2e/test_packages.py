"""The packages that people install: each runs the demo's program on the simulated node where it was installed, and is removed without a trace."""
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import BUILD, DDP_TRAIN, LAUNCH_RANKS, SMALL_TRAINING, SOURCE

SIZE_LIMIT_BYTES = 15 << 20
OLDEST_GLIBC = (2, 34)  # Ubuntu 22.04 has 2.35, Red Hat 9 2.34


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
        for library, of in (("libprotobuf.so", "libprotobuf"), ("libzstd.so", "libzstd1"), ("libabsl_base.so", "libabsl"), ("libdw.so", "libdw1"), ("libelf.so", "libelf1")):
            self.assertTrue(any(library in name for name in listing), library)
            self.assertTrue(any(name.startswith("gpuprobe/licenses/" + of) for name in listing), of)

    def test_each_runs_on_older_c_libraries(self):
        subprocess.run(["tar", "-C", self.folder, "-xf", self.package("*.tar.gz")], check=True)
        binaries = [self.path("gpuprobe", folder, name) for folder in ("bin", "lib", "libexec", "samples") for name in os.listdir(self.path("gpuprobe", folder))]
        binaries = [path for path in binaries if os.path.isfile(path) and harness.read_file(path).startswith(b"\x7fELF")]
        self.assertGreater(len(binaries), 20)
        for path in binaries:
            symbols = subprocess.run(["objdump", "-T", path], check=True, capture_output=True, text=True).stdout
            newer = [symbol for version, symbol in re.findall(r"GLIBC_([0-9.]+)\)?\s+(\S+)", symbols) if tuple(map(int, version.split("."))) > OLDEST_GLIBC]
            self.assertEqual(newer, [], path)
            # The system's libgcc_s may be as old as its C library.
            self.assertEqual([version for version in re.findall(r"GCC_([0-9.]+)", symbols) if int(version.split(".")[0]) > 11], [], path)
        self.assertTrue(self.package("*.whl").endswith("-py3-none-manylinux_2_34_x86_64.whl"))
        self.assertIn("libc6 (>= 2.34)", subprocess.run(["dpkg-deb", "--field", self.package("*.deb"), "Depends"], check=True, capture_output=True, text=True).stdout)

    def test_its_own_libstdcxx_works(self):
        subprocess.run(["tar", "-C", self.folder, "-xf", self.package("*.tar.gz")], check=True)
        lib = self.path("gpuprobe", "lib")
        self.run_well([os.path.join(BUILD, "tests", "e2e", "bundled_libstdcxx"), lib], env={"LD_LIBRARY_PATH": lib})

    def test_a_file_that_needs_a_newer_c_library_is_refused(self):
        newer = self.path("newer.c")
        with open(newer, "w", encoding="utf-8") as file:
            file.write("#include <math.h>\n#include <stdlib.h>\nint main(int n, char** words) { return (int)hypot(n, atof(words[0])); }\n")
        tree = self.path("tree", "bin")
        os.makedirs(tree)
        subprocess.run(["cc", "-O2", newer, "-lm", "-o", os.path.join(tree, "newer")], check=True)
        found = subprocess.run([os.path.join(SOURCE, "scripts", "package.sh"), "--check", self.path("tree")], capture_output=True, text=True)
        self.assertEqual(found.returncode, 1, found)
        self.assertIn("newer hypot GLIBC_2.35", found.stderr)

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
