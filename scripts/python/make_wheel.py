"""Packs an installed tree as a Python wheel, so that `pip install` puts `gpuprobe` on PATH.

make_wheel.py TREE VERSION GLIBC OUT      SOURCE_DATE_EPOCH: the time of every file in it
"""
import base64
import hashlib
import os
import stat
import sys
import time
import zipfile

LAUNCHER = '''"""gpuprobe, packed as a wheel: the program is in tree/bin beside this file."""
import os
import sys


def main():
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tree", "bin", "gpuprobe")
    os.execv(program, ["gpuprobe", *sys.argv[1:]])
'''
SHARED = ("share/man/", "share/bash-completion/", "share/zsh/")


def main():
    tree, version, glibc, out = sys.argv[1:]
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]  # zip knows no time before 1980
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_x86_64"
    info = f"gpuprobe-{version}.dist-info"
    path = os.path.join(out, f"gpuprobe-{version}-{tag}.whl")
    records = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:

        def add(name, content, mode=0o644):
            entry = zipfile.ZipInfo(name, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(content)}")

        add("gpuprobe/__init__.py", LAUNCHER.encode())
        for folder, folders, names in os.walk(tree):
            folders.sort()
            for name in sorted(names):
                source = os.path.join(folder, name)
                # A wheel holds no links: a library is stored under the name that it is looked up by.
                if os.path.islink(source) and os.readlink(source) in names and name.endswith(".so"):
                    continue
                target = os.path.realpath(source)
                if not os.path.islink(source) and any(os.path.islink(os.path.join(folder, other)) and os.path.realpath(os.path.join(folder, other)) == target
                                                      for other in names):
                    continue  # stored under its link's name
                place = os.path.relpath(source, tree)
                # Manual pages and completions go where an environment keeps them.
                shared = place.startswith(SHARED)
                with open(target, "rb") as file:
                    add(os.path.join(f"gpuprobe-{version}.data/data" if shared else "gpuprobe/tree", place), file.read(), stat.S_IMODE(os.stat(target).st_mode))
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md"), encoding="utf-8") as file:
            description = file.read().split("\n![")[0]  # what follows leads to files that are not there
        add(f"{info}/METADATA", "\n".join((
            "Metadata-Version: 2.1", "Name: gpuprobe", f"Version: {version}", "Summary: Profiles distributed GPU training without changing the program",
            "Author: The gpuprobe authors", "License: Apache-2.0", "Requires-Python: >=3.7", "Description-Content-Type: text/markdown", "", description)).encode())
        add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: gpuprobe\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
        add(f"{info}/entry_points.txt", b"[console_scripts]\ngpuprobe = gpuprobe:main\n")
        record = f"{info}/RECORD"
        entry = zipfile.ZipInfo(record, when)
        entry.external_attr = (stat.S_IFREG | 0o644) << 16
        wheel.writestr(entry, "\n".join([*records, f"{record},,", ""]))


main()
