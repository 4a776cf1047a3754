"""What clang-tidy can check, one a line: the sources that the build compiles, without generated ones and CUDA files.

translation_units.py COMPILE_COMMANDS ROOT OUT [together]

Also writes OUT/compile_commands.json, the same commands without precompiled headers, since clang cannot read GCC's. Where the build compiles several
sources as one, each has its own line and command, so that a source is found out that does not include what it uses. With `together` they stay one, and
the headers that they share are checked once: a third as many units over the whole tree.
"""
import json
import os
import re
import sys

commands, root, out = sys.argv[1], sys.argv[2] + os.sep, sys.argv[3]
together = sys.argv[4:] == ["together"]
UNITY = re.compile(r"/Unity/unity_\d+_\w+\.c(xx)?$")
with open(commands, encoding="utf-8") as file:
    entries = json.load(file)


def apart(entry):
    """The commands of the sources that one command compiles together, which is a file of includes that CMake writes; else the command itself."""
    if together or not UNITY.search(entry["file"]):
        return [entry]
    with open(entry["file"], encoding="utf-8") as unity:
        sources = re.findall(r'^#include "(.*)"$', unity.read(), re.MULTILINE)
    return [dict(entry, file=source, command=entry["command"].replace(entry["file"], source)) for source in sources]


def is_checked(name):
    return UNITY.search(name) or name.startswith(root) and not name.startswith(root + "build") and name.endswith((".cc", ".c"))


entries = [one for entry in entries for one in apart(entry)]
for entry in entries:
    entry["command"] = re.sub(r" -(Winvalid-pch|fpch-preprocess|-param \S+|include \S*cmake_pch\.hxx)(?= )", "", entry["command"])
os.makedirs(out, exist_ok=True)
with open(os.path.join(out, "compile_commands.json"), "w", encoding="utf-8") as file:
    json.dump(entries, file)
names = {os.path.normpath(os.path.join(entry["directory"], entry["file"])) for entry in entries}
print("\n".join(sorted(name for name in names if is_checked(name))))
