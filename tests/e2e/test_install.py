"""`cmake --install` makes a self-contained tree: it works from another place, with nothing of the build tree or of this machine's packages."""
import os
import re
import shutil
import subprocess
import zlib

import harness
from harness import BUILD, PATIENT, SIM_LIB, SMALL_TRAINING

SIZE_LIMIT_BYTES = 60 << 20
# What every machine has: the C library, and the unwinder that the C library loads itself.
OF_THE_SYSTEM = ("linux-vdso", "/lib64/ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libresolv.so", "libgcc_s.so")


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

    def test_the_library_is_stripped_and_small(self):
        """Each process of a job maps it: a large object that does not start as zeros belongs elsewhere."""
        library = os.path.join(self.tree, "lib", "libgpuprobe.so")
        listing = subprocess.run(["nm", "-C", "-S", "--size-sort", harness.LIBRARY], check=True, capture_output=True, text=True).stdout.splitlines()
        largest = [line for line in listing if line.split()[2] not in "bB"][-5:]
        self.assertLess(os.path.getsize(library), 1 << 20, largest)
        for name in (library, os.path.join(self.tree, "bin", "gpuprobe"), os.path.join(self.tree, "libexec", "gpuprobe-simulate")):
            self.assertEqual(subprocess.run(["nm", name], capture_output=True, text=True).stdout, "", name)

    def test_debug_information_is_a_component_of_its_own(self):
        subprocess.run(["cmake", "--install", BUILD, "--prefix", self.tree, "--component", "debug"], check=True, stdout=subprocess.DEVNULL)
        for folder, name in (("bin", "gpuprobe"), ("libexec", "gpuprobe-simulate"), ("lib", "libgpuprobe.so")):
            debug = os.path.join(self.tree, folder, ".debug", name + ".debug")
            with open(debug, "rb") as file:
                checksum = zlib.crc32(file.read())
            linked = subprocess.run(["objcopy", "--dump-section", ".gnu_debuglink=/dev/stdout", os.path.join(self.tree, folder, name), "/dev/null"], check=True,
                                    capture_output=True).stdout
            self.assertTrue(linked.startswith(name.encode() + b".debug\0"), linked)
            self.assertEqual(int.from_bytes(linked[-4:], "little"), checksum)
            sections = subprocess.run(["readelf", "-S", "-W", debug], check=True, capture_output=True, text=True).stdout
            self.assertIn(".debug_info", sections)

    def test_every_page_is_there(self):
        pages = [os.path.join(folder, name) for folder, _, names in os.walk(self.tree) for name in names if name.endswith(".md")]
        self.assertGreater(len(pages), 10)
        for page in pages:
            with open(page, encoding="utf-8") as file:
                for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", file.read()):
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(page), target)), f"{page}: {target}")

    def test_needs_only_what_every_machine_has(self):
        own = os.path.realpath(self.tree)
        for program in (os.path.join(self.tree, "bin", "gpuprobe"), os.path.join(self.tree, "libexec", "gpuprobe-simulate")):
            listing = subprocess.run(["ldd", "-r", program], check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
            self.assertEqual(listing.stderr, "", "every symbol is there")
            self.assertNotIn("not found", listing.stdout)
            for line in listing.stdout.splitlines():
                name = line.split()[0]
                if name.startswith(OF_THE_SYSTEM):
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

    def test_simulates(self):
        gpuprobe = os.path.join(self.tree, "bin", "gpuprobe")
        self.run_well([gpuprobe, "simulate", "--scenario", "healthy", "--ranks", "2", "--steps", "10", "--out", self.path("simulated")])
        self.assertEqual(len(self.report(self.path("simulated"))["ranks"]), 2)
        os.remove(os.path.join(self.tree, "libexec", "gpuprobe-simulate"))
        refused = subprocess.run([gpuprobe, "simulate", "--scenario", "healthy"], capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("gpuprobe: simulate: gpuprobe-simulate not found; looked in " + os.path.join(self.tree, "bin"), refused.stderr)

    def test_literal_command(self):
        env = {"CUDA_INJECTION64_PATH": "libgpuprobe.so", "LD_LIBRARY_PATH": SIM_LIB + ":" + os.path.join(self.tree, "lib"), **PATIENT}
        self.run_well([os.path.join(self.tree, "samples", "vector_add")], env=env)
        self.assert_nothing_runs()
        self.assertEqual(len(self.report(self.only_run_directory())["ranks"]), 1)


if __name__ == "__main__":
    harness.main()
