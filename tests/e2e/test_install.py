"""`cmake --install` makes a self-contained tree: it works from another place, with nothing of the build tree or of this machine's packages."""
import os
import shutil
import subprocess

import harness
from harness import BUILD, PATIENT, SIM_LIB, SMALL_TRAINING

SIZE_LIMIT_BYTES = 60 << 20
# What a machine with an equal or newer libc has.
OF_THE_LIBC = ("linux-vdso", "/lib64/ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so")


class Install(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        built = self.path("built")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", built], check=True, stdout=subprocess.DEVNULL)
        # To another place, and away from where it was made.
        self.tree = self.path("elsewhere", "gpuprobe")
        shutil.copytree(built, self.tree, symlinks=True)
        shutil.rmtree(built)

    def test_is_small(self):
        size = sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(self.tree) for name in names)
        self.assertLess(size, SIZE_LIMIT_BYTES)

    def test_needs_only_the_libc(self):
        program = os.path.join(self.tree, "bin", "gpuprobe")
        listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}).stdout
        self.assertNotIn("not found", listing)
        own = os.path.realpath(self.tree)
        for line in listing.splitlines():
            name = line.split()[0]
            if name.startswith(OF_THE_LIBC):
                continue
            self.assertIn("=> ", line)
            self.assertTrue(os.path.realpath(line.split("=> ")[1].split(" (")[0]).startswith(own), line)
        for name in os.listdir(os.path.join(self.tree, "lib")):
            dynamic = subprocess.run(["readelf", "-d", os.path.join(self.tree, "lib", name)], check=True, capture_output=True, text=True).stdout
            self.assertNotIn(BUILD, dynamic, name)

    def test_records_and_reports(self):
        out = self.path("out")
        samples = os.path.join(self.tree, "samples")
        gpuprobe = os.path.join(self.tree, "bin", "gpuprobe")
        self.run_well([gpuprobe, "run", "--out", out, "--", os.path.join(samples, "launch_ranks.sh"), "2", os.path.join(samples, "ddp_train"), *SMALL_TRAINING],
                      devices=2, env=PATIENT)
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.assert_nothing_runs()

    def test_literal_command(self):
        env = {"CUDA_INJECTION64_PATH": "libgpuprobe.so", "LD_LIBRARY_PATH": SIM_LIB + ":" + os.path.join(self.tree, "lib"), **PATIENT}
        self.run_well([os.path.join(self.tree, "samples", "vector_add")], env=env)
        self.assert_nothing_runs()
        self.assertEqual(len(self.report(self.only_run_directory())["ranks"]), 1)


if __name__ == "__main__":
    harness.main()
