#!/usr/bin/env python3
"""The collector's rooms: what includes against the arrows does not compile. walls_test.py BUILD_DIR"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build/release"

# What each room may include besides itself, as ARCHITECTURE.md has it.
ROOMS = {
    "framing": set(),
    "text": set(),
    "log": {"text"},
    "observe": set(),
    "model": set(),
    "simulate": {"framing"},
    "ingest": {"framing", "log", "text"},
    "analysis": {"model"},
    "store": {"framing", "model"},
    "render": {"analysis", "model", "text"},
    "timeline": {"analysis", "model", "text"},
    "tables": {"analysis", "model", "render", "text"},
    "page": {"framing", "analysis", "model", "store", "render", "text"},
    "http": {"framing", "log", "analysis", "model", "store", "render", "page", "text"},
    "cli": {"framing", "log", "observe", "model", "simulate", "ingest", "analysis", "store", "render", "timeline", "tables", "page", "http", "text"},
}


def commands():
    """How a source of each room is compiled, without precompiled headers, input and output."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.parent.name == "Unity":  # sources that are compiled together, all of one room
            file = pathlib.Path(re.search(r'^#include "(.*)"$', file.read_text(), re.MULTILINE)[1])
        if ROOT / "collector" not in file.parents or file.name == "main.cc":
            continue
        words = shlex.split(entry["command"])
        words = words[: words.index("-o")]
        if "-include" in words:
            at = words.index("-include")
            words = words[:at] + words[at + 2 :]
        found.setdefault(file.relative_to(ROOT / "collector").parts[0], (words, entry["directory"]))
    return found


class Walls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands()

    def compile_in(self, room, other):
        words, directory = self.commands[room]
        header = sorted((ROOT / "collector" / other).rglob("*.h"))[0].relative_to(ROOT).as_posix()
        done = subprocess.run([*words, "-E", "-x", "c++", "-"], input=f'#include "{header}"\n', cwd=directory, text=True, capture_output=True, timeout=60)
        return header, done

    def test_the_rooms_are_the_folders(self):
        self.assertEqual({path.name for path in (ROOT / "collector").iterdir() if path.is_dir()}, set(ROOMS))
        self.assertEqual(set(self.commands), set(ROOMS))

    def test_a_room_includes_what_the_arrows_allow_and_nothing_else(self):
        for room, allowed in ROOMS.items():
            for other in ROOMS:
                with self.subTest(room=room, other=other):
                    header, done = self.compile_in(room, other)
                    if other == room or other in allowed:
                        self.assertEqual(done.returncode, 0, done.stderr)
                    else:
                        self.assertNotEqual(done.returncode, 0, f"{room} can include {header}")
                        self.assertIn("No such file or directory", done.stderr)

    def test_no_room_includes_the_injector(self):
        for room in ROOMS:
            words, directory = self.commands[room]
            done = subprocess.run([*words, "-E", "-x", "c++", "-"], input='#include "injector/core/guard.h"\n', cwd=directory, text=True, capture_output=True, timeout=60)
            self.assertIn("No such file or directory", done.stderr, room)


if __name__ == "__main__":
    unittest.main()
