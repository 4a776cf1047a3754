#!/usr/bin/env python3
"""A kind of record is described once: by hand, few places besides its own producer and consumer name it. The example is CUPTI's overhead records."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The row's types and functions, the field of a batch, and the kind of its line in the export.
NAMES = re.compile(r'\bOverhead(s|Row|Record|Kind)\b|\boverheads\b|"overhead[":]|\b(Log|Decode)?Overhead\(')
PRODUCER = ("injector/capture/cupti/", "injector/rows/batch_builder.h", "tests/sim/cupti/", "tests/sim/core/cupti_seam.h")
CONSUMER = ("collector/model/process/", "collector/model/facts/", "collector/records/row_clock", "collector/analysis/trust/own_cost", "collector/report/trust", "collector/render/table")
# The names of all of CUPTI's activities, recorded or not; a finding of that name.
OTHERS = ("collector/analysis/names.", "collector/analysis/trust/findings_capture")
# In the order of CONTRIBUTING.md, "A record kind".
PLACES = {
    "proto/gpuprobe/v1/wire.proto",  # two edits: the message, and the field of a batch
    "tests/proto/wire_v1.txt",
    "collector/tables/record_lines",
    "tests/sim/core/truth",
    "tests/e2e/truth.py",
    "tests/collector/testing/batch_builder",
}


def is_a_test(path):
    return path.stem.endswith("_test") or path.name.startswith("test_")


class RecordKind(unittest.TestCase):
    def test_only_the_places_of_the_recipe_name_it(self):
        found = set()
        for room in ("proto", "injector", "collector", "tests", "samples"):
            for path in (ROOT / room).rglob("*"):
                name = path.relative_to(ROOT).as_posix()
                if not path.is_file() or path == pathlib.Path(__file__).resolve() or is_a_test(path) or name.startswith(PRODUCER + CONSUMER + OTHERS):
                    continue
                if path.suffix in (".cc", ".h", ".inc", ".proto", ".py", ".txt") and NAMES.search(path.read_text(encoding="utf-8")):
                    found.add(name.removesuffix(".cc").removesuffix(".h"))
        self.assertEqual(found, PLACES)


if __name__ == "__main__":
    unittest.main()
