"""The packages on a new machine: in a clean Debian 12 and in a clean Ubuntu 22.04, whose C library is older (debootstrap), each records the demo's program on the
simulated node. The .deb is installed by dpkg, and removed without a trace.

The trees are made by scripts/debian-tree.sh and copied for the test, which enters them as root with a view of the mounts of its own. Without root or a tree this is skipped.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import zipfile

import harness
from harness import BUILD, DDP_TRAIN, LAUNCH_RANKS, SIM_LIB, SMALL_TRAINING, SOURCE

SKIPPED = 77
# What dpkg and the C library themselves write whatever is installed.
BOOKKEEPING = ("var/lib/dpkg/", "var/log/", "var/cache/ldconfig/", "etc/ld.so.cache", "var/lib/systemd/")


def files_under(tree):
    return {os.path.relpath(os.path.join(parent, name), tree) for parent, folders, names in os.walk(tree) for name in folders + names}


def needed_libraries(program, folder):
    """Paths of what the program is linked with, but the C library: the tree has its own."""
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": folder}).stdout
    paths = [line.split("=>")[1].split()[0] for line in listing.splitlines() if "=> /" in line]
    with_c = subprocess.run(["dpkg", "-L", "libc6"], capture_output=True, text=True).stdout.split()
    own = {os.path.basename(path) for path in with_c}
    return [path for path in paths if os.path.basename(path) not in own]


class CleanDebian(harness.EndToEndTest):

    def inside(self, command, **variables):
        """Runs it in the tree, with /proc, /dev and /dev/shm, which are gone afterwards."""
        script = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && tree=$0 && exec chroot "$tree" "$@"'
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "E2E_MARK": self.mark, **variables}
        done = subprocess.run(["unshare", "--mount", "bash", "-c", script, self.tree, *command], env=environment, capture_output=True, text=True, timeout=harness.LIMIT_S)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def bring_node(self):
        """The simulated node and the demo's program, in a folder of the tree."""
        node = os.path.join(self.tree, "node")
        shutil.copytree(SIM_LIB, os.path.join(node, "lib"))
        for program in (DDP_TRAIN, LAUNCH_RANKS):
            shutil.copy(program, node)
        for library in needed_libraries(DDP_TRAIN, SIM_LIB):
            # This machine's C++ library may need a newer C library than the tree has; the package's own does not.
            if not os.path.exists(os.path.join(node, "lib", os.path.basename(library))) and not os.path.basename(library).startswith("libstdc++"):
                shutil.copy(library, os.path.join(node, "lib"))

    def records_with(self, gpuprobe, own_libraries):
        """Records the demo's program. Its C++ library is the package's: the tree has none."""
        self.inside([gpuprobe, "run", "--quiet", "--out", "/node/run", "--", "/node/launch_ranks.sh", "2", "/node/ddp_train", *SMALL_TRAINING],
                    LD_LIBRARY_PATH=f"/node/lib:{own_libraries}", GPUSIM_DEVICES="2", TMPDIR="/tmp")
        with open(os.path.join(self.tree, "node", "run", "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(len(report["ranks"]), 2)
        self.assert_no_loss(report)
        self.assertGreater(report["steps"]["count"], 0)
        shutil.rmtree(os.path.join(self.tree, "node", "run"))

    def test_each_records_and_the_deb_leaves_nothing(self):
        subprocess.run([os.path.join(SOURCE, "scripts", "package.sh"), "--build", BUILD, "--out", self.path("packages")], check=True, stdout=subprocess.DEVNULL)
        deb, tarball, wheel = (glob.glob(self.path("packages", pattern))[0] for pattern in ("*.deb", "*.tar.gz", "*.whl"))
        for tree in TREES:
            with self.subTest(tree):
                self.tree = self.path(os.path.basename(tree))
                subprocess.run(["cp", "-a", "--reflink=auto", tree, self.tree], check=True)
                self.bring_node()
                self.assertEqual(self.inside(["bash", "-c", "command -v gcc cmake python3 || true"]), "", "there are no build tools")
                self.install_and_remove(deb)
                subprocess.run(["tar", "-C", os.path.join(self.tree, "node"), "-xf", tarball], check=True)
                self.records_with("/node/gpuprobe/bin/gpuprobe", "/node/gpuprobe/lib")
                # The tree has no Python: the files are laid out as pip does, and the program is started without the wheel's entry point.
                with zipfile.ZipFile(wheel) as archive:
                    for entry in archive.infolist():
                        os.chmod(archive.extract(entry, os.path.join(self.tree, "node", "wheel")), entry.external_attr >> 16)
                self.records_with("/node/wheel/gpuprobe/tree/bin/gpuprobe", "/node/wheel/gpuprobe/tree/lib")

    def install_and_remove(self, package):
        shutil.copy(package, os.path.join(self.tree, "node"))
        before = files_under(self.tree)

        self.inside(["dpkg", "--install", "/node/" + os.path.basename(package)])
        self.assertIn("gpuprobe", self.inside(["gpuprobe", "version"]))
        own_libraries = os.path.dirname(self.inside(["bash", "-c", "dpkg -L gpuprobe | grep -m1 libstdc++.so.6"]).strip())
        self.records_with("gpuprobe", own_libraries)

        self.inside(["dpkg", "--purge", "gpuprobe"])
        self.assertEqual(sorted(name for name in files_under(self.tree) - before if not name.startswith(BOOKKEEPING)), [])
        self.assertEqual(self.inside(["bash", "-c", "command -v gpuprobe || true"]), "")


if __name__ == "__main__":
    script = os.path.join(SOURCE, "scripts", "debian-tree.sh")
    found = [subprocess.run([script, "--check", suite], capture_output=True, text=True) for suite in ("bookworm", "jammy")]
    TREES = sorted({each.stdout.strip() for each in found if each.returncode == 0})
    if not TREES or os.geteuid() != 0:
        print("skipped:", found[0].stderr.strip() or "only root may enter another tree")
        sys.exit(SKIPPED)
    harness.main()
