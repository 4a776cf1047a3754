"""The documents say what the program says."""
import os
import re
import sys

import demo_figures
import harness
import hazards
from harness import GPUPROBE, SOURCE

sys.path.append(os.path.join(SOURCE, "tests", "sim", "cupti"))
import behaviours


class Documentation(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            self.readme = file.read()

    def test_environment_table_is_the_programs(self):
        table = self.run_well([GPUPROBE, "help", "environment", "--markdown"]).stdout.decode()
        self.assertIn(table, self.readme, "replace the README's table with the output of: gpuprobe help environment --markdown")

    def test_limits_of_the_node_collector_are_the_programs(self):
        table = self.run_well([GPUPROBE, "help", "limits"]).stdout.decode()
        with open(os.path.join(SOURCE, "docs", "security.md"), encoding="utf-8") as file:
            self.assertIn(table, file.read(), "replace the table in docs/security.md with the output of: gpuprobe help limits")

    def test_subcommands_of_the_readme_exist(self):
        text = self.run_well([GPUPROBE, "--help"]).stdout.decode()
        known = set(re.findall(r"^  ([a-z]+) {2,}", text, re.MULTILINE))
        for commands in re.findall(r"^```\n(.*?)^```", self.readme, re.MULTILINE | re.DOTALL):
            for name in re.findall(r"^(?:\$ )?gpuprobe ([a-z]+)", commands, re.MULTILINE):
                self.assertIn(name, known)

    def test_host_safety_is_what_the_tests_describe(self):
        with open(hazards.DOCUMENT, encoding="utf-8") as file:
            self.assertEqual(file.read(), hazards.markdown(), "renew docs/host-safety.md: python3 tests/e2e/hazards.py --write")
        self.assertGreaterEqual(len(hazards.rows()), 60)

    def test_the_simulated_cupti_is_what_its_source_says(self):
        found = behaviours.behaviours()
        for path, text in ((behaviours.DOCUMENT, behaviours.markdown(found)), (behaviours.ASSUMPTIONS, behaviours.assumptions(found))):
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text, f"renew {os.path.relpath(path, SOURCE)}: python3 tests/sim/cupti/behaviours.py --write")

    def test_figures_of_the_demo_are_those_that_are_recomputed(self):
        with open(os.path.join(SOURCE, "docs", "demo-figures.md"), encoding="utf-8") as file:
            self.assertIn(demo_figures.markdown(), file.read(), "replace the table with what demo_figures.markdown() returns")

    def test_files_that_documents_name_exist(self):
        for document in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", os.path.join("docs", "security.md"), os.path.join("docs", "demo-figures.md")):
            with open(os.path.join(SOURCE, document), encoding="utf-8") as file:
                text = file.read()
            for path in re.findall(r"`((?:injector|collector|proto|tests|samples|scripts)/[\w/.]+)`", text):
                if re.search(r"NAME|/[xy][/_.]", path):
                    continue  # stands for any name
                with self.subTest(document=document, path=path):
                    matching = [path] + [path + suffix for suffix in (".h", ".cc", ".py", ".sh")]
                    self.assertTrue(any(os.path.exists(os.path.join(SOURCE, name)) for name in matching))


if __name__ == "__main__":
    harness.main()
