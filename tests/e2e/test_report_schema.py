"""docs/report.schema.json: what the program prints, what reports look like, and what docs/report-json.md explains."""
import glob
import json
import os
import re
import shutil
import unittest

import harness
from harness import GPUPROBE, SOURCE

SCHEMA = os.path.join(SOURCE, "docs", "report.schema.json")
PAGE = os.path.join(SOURCE, "docs", "report-json.md")
REAL = os.path.join(SOURCE, "tests", "data", "real")
TYPES = {"null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str, "array": list, "object": dict}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def violations(value, schema, path=""):
    """Where a value differs from the schema; fields that it does not know are violations here, although readers must accept them."""
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name != "boolean") for name in types):
        return [f"{path}: {value!r} is none of {types}"]
    found = []
    if isinstance(value, list):
        if value and "items" not in schema:
            return [f"{path}: what is in it is not described"]
        for i, item in enumerate(value):
            found += violations(item, schema["items"], f"{path}[{i}]")
    if isinstance(value, dict):
        found += [f"{path}.{key} is missing" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            found += violations(item, inner, f"{path}.{key}") if inner else [f"{path}.{key} is not in the schema"]
    return found


def names(schema):
    """All fields that a schema names."""
    found = set(schema.get("properties", {}))
    for inner in [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]:
        if inner:
            found |= names(inner)
    return found


class ReportSchema(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.schema = json.loads(read(SCHEMA))

    def assert_valid(self, run):
        for arguments in (["--json"], ["--json", "--ranks"], ["--json", "--steps"]):
            report = json.loads(self.run_well([GPUPROBE, "report", run, *arguments]).stdout)
            self.assertEqual(violations(report, self.schema)[:10], [], " ".join(arguments))

    def test_is_what_the_program_prints(self):
        printed = self.run_well([GPUPROBE, "help", "report-schema"]).stdout.decode()
        self.assertEqual(printed, read(SCHEMA), "renew docs/report.schema.json: gpuprobe help report-schema > docs/report.schema.json")

    def test_every_field_is_explained(self):
        words = set(re.findall(r"\w+", read(PAGE)))
        self.assertEqual(sorted(names(self.schema) - words), [], "explain these in docs/report-json.md")

    def test_reports_of_scenarios(self):
        for scenario in ("healthy-nvtx", "straggler-kernels", "communication-bound", "pipeline", "out-of-memory", "hang-missing-rank", "hang-graph",
                         "hang-mismatch", "clock-stepped", "records-lost", "memory-leak", "slow-network", "straggler-intermittent", "input-bound", "low-mfu"):
            with self.subTest(scenario=scenario):
                run = self.path(scenario)
                self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--out", run])
                self.assert_valid(run)

    def test_reports_of_real_recordings(self):
        for recording in sorted(glob.glob(os.path.join(REAL, "*", ""))):
            with self.subTest(recording=recording):
                run = self.path(os.path.basename(os.path.dirname(recording)))
                shutil.copytree(recording, run)
                self.assert_valid(run)

    def test_a_report_of_many_ranks(self):
        run = self.path("many")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--ranks", "96", "--steps", "6", "--out", run])
        report = json.loads(self.run_well([GPUPROBE, "report", run, "--json"]).stdout)
        self.assertEqual(report["ranks_in"], "ranks.json")
        self.assert_valid(run)


class TheCheckItself(unittest.TestCase):

    def test_finds_what_is_wrong(self):
        schema = {"type": "object", "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]}
        self.assertEqual(violations({"a": None, "b": ["x"]}, schema), [])
        for wrong in ({}, {"a": 1.5}, {"a": True}, {"a": "1"}, {"a": 1, "b": [1]}, {"a": 1, "c": 1}, []):
            self.assertTrue(violations(wrong, schema), wrong)


if __name__ == "__main__":
    harness.main()
