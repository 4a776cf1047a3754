"""The sources that clang-tidy can check, one a line: what the build compiles, without generated sources and CUDA files.

translation_units.py COMPILE_COMMANDS ROOT
"""
import json
import os
import sys

commands, root = sys.argv[1], sys.argv[2] + os.sep
with open(commands, encoding="utf-8") as file:
    names = {os.path.normpath(os.path.join(entry["directory"], entry["file"])) for entry in json.load(file)}
print("\n".join(sorted(name for name in names if name.startswith(root) and not name.startswith(root + "build") and name.endswith((".cc", ".c")))))
