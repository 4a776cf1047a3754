"""What is made of the report's declared fields: its schema, the page's types, the tables of docs/report-json.md. A report that is read is written the same."""
import glob
import json
import os
import shutil
import unittest

import harness
import report_fields
from harness import GPUPROBE, SOURCE

SCHEMA = report_fields.FILES["report-schema"]
REWRITE = os.path.join(harness.BUILD, "tests", "collector", "gpuprobe_rewrite_report")
REAL = os.path.join(SOURCE, "tests", "data", "real")
TYPES = {"null": type(None), "boolean": bool, "integer": int, "number": (int, float), "string": str, "array": list, "object": dict}


def violations(value, schema, path="", root=None):
    """Where a value differs from the schema; fields that it does not know are violations here, although readers must accept them."""
    root = root or schema
    if "anyOf" in schema:
        each = [violations(value, one, path, root) for one in schema["anyOf"]]
        return min(each, key=len)
    if "$ref" in schema:
        return violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], path, root)
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    if not any(isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name != "boolean") for name in types):
        return [f"{path}: {value!r} is none of {types}"]
    found = []
    if isinstance(value, list):
        if value and "items" not in schema:
            return [f"{path}: what is in it is not described"]
        for i, item in enumerate(value):
            found += violations(item, schema["items"], f"{path}[{i}]", root)
    if isinstance(value, dict):
        found += [f"{path}.{key} is missing" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            found += violations(item, inner, f"{path}.{key}", root) if inner else [f"{path}.{key} is not in the schema"]
    return found


class ReportSchema(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.schema = json.loads(report_fields.read(SCHEMA))

    def assert_valid(self, run):
        for arguments in (["--json"], ["--json", "--ranks"], ["--json", "--steps"]):
            report = json.loads(self.run_well([GPUPROBE, "report", run, *arguments]).stdout)
            self.assertEqual(violations(report, self.schema)[:10], [], " ".join(arguments))
        with open(self.path("whole.json"), "w+b") as file:
            file.write(self.run_well([GPUPROBE, "report", run, "--json", "--steps"]).stdout)
            file.seek(0)
            again = self.run_well([REWRITE], stdin=file).stdout
            file.seek(0)
            self.assertEqual(again, file.read(), "the report, read and written again")

    def test_generated_files_are_what_the_program_prints(self):
        for topic, path in report_fields.FILES.items():
            self.assertEqual(report_fields.printed(topic), report_fields.read(path), f"renew {path}: {report_fields.__doc__}")

    def test_the_page_has_the_tables_of_all_fields(self):
        page = report_fields.read(report_fields.PAGE)
        self.assertEqual(report_fields.tables(page), report_fields.tables(report_fields.printed("report-fields")), f"renew them: {report_fields.__doc__}")

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
