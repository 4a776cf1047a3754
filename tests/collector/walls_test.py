#!/usr/bin/env python3
"""The collector's rooms and the folders of model: what includes against the arrows does not compile. walls_test.py BUILD_DIR"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build/release"

# What each room may include besides itself, as ARCHITECTURE.md has it.
ROOMS = {
    "framing": set(),
    "text": set(),
    "log": {"text"},
    "observe": {"records"},
    "records": set(),
    "model": {"records"},
    "simulate": {"records"},
    "ingest": {"framing", "log", "text"},
    "report": {"model", "records"},
    "analysis": {"report", "model", "records"},
    "store": {"framing", "model", "records"},
    "render": {"analysis", "report", "model", "records", "text"},
    "timeline": {"analysis", "report", "model", "records", "text"},
    "tables": {"analysis", "report", "model", "records", "render", "text"},
    "page": {"framing", "analysis", "report", "model", "records", "store", "render", "text"},
    "http": {"framing", "log", "analysis", "report", "model", "records", "store", "render", "page", "text"},
    "hub": {"framing", "log", "analysis", "report", "model", "records", "store", "render", "page", "http", "text"},
    "clickhouse": {"framing", "log", "analysis", "report", "model", "records", "store", "render", "page", "http", "text"},
    "recording": {"hub", "clickhouse", "framing", "log", "observe", "model", "records", "ingest", "analysis", "report", "store", "render", "page", "http", "text"},
    "cli": {"recording", "hub", "clickhouse", "framing", "log", "observe", "model", "records", "simulate", "ingest", "analysis", "report", "store", "render", "timeline", "tables", "page", "http", "text"},
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


class ModelFolders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = (BUILD / "collector/model_folders.cmake").read_text()
        cls.uses = {name: set(uses.split(";")) - {""} for name, uses in re.findall(r"set\(uses_(\w+) (.*)\)", cls.table)}

    def check(self, change=lambda folder: None):
        """What the build's check says of a copy of model with a change."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "model"
            shutil.copytree(ROOT / "collector/model", copy)
            change(copy)
            script = ROOT / "scripts/cmake/CheckFolders.cmake"
            table = BUILD / "collector/model_folders.cmake"
            done = subprocess.run(["cmake", "-D", f"TABLE={table}", "-D", f"ROOT={copy}", "-P", script], text=True, capture_output=True, timeout=60)
            self.assertEqual(done.returncode != 0, "CMake Error" in done.stderr, done.stderr)
            return " ".join(done.stderr.split())

    def header_of(self, folder):
        return next(iter(sorted((ROOT / "collector/model" / folder).glob("*.h")))).relative_to(ROOT).as_posix()

    def test_the_folders_are_those_on_disk_and_no_two_use_each_other(self):
        on_disk = {path.name for path in (ROOT / "collector/model").iterdir() if path.is_dir()}
        self.assertEqual(on_disk, set(self.uses))
        below = set()
        for folder, uses in self.uses.items():
            self.assertLessEqual(uses, below, folder)
            below.add(folder)

    def test_the_tree_passes_and_the_build_checks_it(self):
        self.assertEqual(self.check(), "")
        steps = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "gpuprobe_model"], text=True, capture_output=True, timeout=60).stdout
        self.assertIn("CheckFolders.cmake", steps)

    def test_an_include_of_a_folder_that_is_not_used_is_refused(self):
        forbidden = [(a, b) for a in self.uses for b in self.uses if a != b and b not in self.uses[a]]
        self.assertGreater(len(forbidden), 50)

        def probe(model):
            for a, b in forbidden:
                with (model / a / "probe.cc").open("a") as file:
                    file.write(f'#include "{self.header_of(b)}"\n')

        said = self.check(probe)
        for a, b in forbidden:
            with self.subTest(folder=a, other=b):
                header = self.header_of(b).removeprefix("collector/model/")
                self.assertIn(f"model/{a}/probe.cc includes {header}: {a} does not use {b}", said)

    def test_other_ways_round_are_refused(self):
        top = self.header_of("job")
        for include in (f"<{top}>", '"../job/job_model.h"', '"job_model.h"'):
            with self.subTest(include=include):
                said = self.check(lambda model, include=include: (model / "state/probe.h").write_text(f"  # include {include}\n"))
                self.assertIn("model/state/probe.h includes", said)
        said = self.check(lambda model: (model / "attic").mkdir() or (model / "attic/probe.h").write_text('#include "collector/records/rows.h"\n'))
        self.assertIn("declares no folder attic", said)


if __name__ == "__main__":
    unittest.main()
