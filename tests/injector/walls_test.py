#!/usr/bin/env python3
"""The injector's layers: what includes against their order does not compile. walls_test.py BUILD_DIR"""
import json
import pathlib
import shlex
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "build/release"

# Lowest first. A layer may include those before it, but capture's NCCL, NVTX and memory know nothing of each other.
LAYERS = ["base", "core", "send", "rows", "ledgers", "sampling", "capture/loader", "capture/cupti", "capture/nccl", "capture/nvtx", "capture/memory", "capture/sandbox", "probe"]
PARTS = {"capture/nccl", "capture/nvtx", "capture/memory", "capture/sandbox"}


def commands():
    """How each layer's headers are compiled, without input and output."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        if file.parent.name == "layers" and file.name.endswith("_headers.cc"):
            words = shlex.split(entry["command"])
            words = [w for w in words if not w.endswith("ccache")]
            found[file.name.removesuffix("_headers.cc")] = (words[: words.index("-o")], entry["directory"])
    return found


class Walls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands()

    def compile_in(self, layer, header):
        words, directory = self.commands[layer.replace("/", "_")]
        return subprocess.run(
            [*words, "-fsyntax-only", "-x", "c++", "-"], input=f'#include "{header}"\n', cwd=directory, text=True, capture_output=True, timeout=60
        )

    def a_header_of(self, layer):
        return sorted((ROOT / "injector" / layer).glob("*.h"))[0].relative_to(ROOT).as_posix()

    def test_the_layers_are_the_folders(self):
        folders = {p.parent.relative_to(ROOT / "injector").as_posix() for p in (ROOT / "injector").rglob("*.h")}
        self.assertEqual(folders, set(LAYERS))
        self.assertEqual(set(self.commands), {layer.replace("/", "_") for layer in LAYERS})

    def test_a_layer_can_include_its_own_headers(self):
        for layer in LAYERS:
            with self.subTest(layer=layer):
                done = self.compile_in(layer, self.a_header_of(layer))
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_above_a_layer_cannot_be_included(self):
        for place, layer in enumerate(LAYERS):
            for above in LAYERS[place + 1 :]:
                with self.subTest(layer=layer, above=above):
                    self.refused(layer, self.a_header_of(above))

    def test_capture_parts_cannot_include_each_other(self):
        for part in PARTS:
            for other in PARTS - {part}:
                with self.subTest(part=part, other=other):
                    self.refused(part, self.a_header_of(other))

    def test_the_collector_and_the_tests_are_out_of_reach(self):
        for layer in LAYERS:
            with self.subTest(layer=layer):
                self.refused(layer, "collector/model/process/process_model.h")
                self.refused(layer, "tests/injector/support/frames.h")

    def refused(self, layer, header):
        self.assertTrue((ROOT / header).exists(), header)
        done = self.compile_in(layer, header)
        self.assertNotEqual(done.returncode, 0, f"{layer} can include {header}")
        self.assertIn(f"{header}: No such file or directory", done.stderr)


if __name__ == "__main__":
    unittest.main()
