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


PAGES = sorted(name for name in os.listdir(os.path.join(SOURCE, "docs")) if name.endswith(".md"))
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/report-json.md", *(f"docs/{name}" for name in PAGES)]


def text_of(document):
    with open(os.path.join(SOURCE, document), encoding="utf-8") as file:
        return file.read()


def anchors_of(text):
    """The anchors that GitHub gives headings: lower case, no punctuation, dashes for spaces."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


class Documentation(harness.EndToEndTest):

    def test_environment_table_is_the_programs(self):
        table = self.run_well([GPUPROBE, "help", "environment", "--markdown"]).stdout.decode()
        self.assertIn(table, text_of("docs/settings.md"), "replace the table in docs/settings.md with the output of: gpuprobe help environment --markdown")

    def test_limits_of_the_node_collector_are_the_programs(self):
        table = self.run_well([GPUPROBE, "help", "limits"]).stdout.decode()
        self.assertIn(table, text_of("docs/security.md"), "replace the table in docs/security.md with the output of: gpuprobe help limits")

    def test_metrics_are_the_programs(self):
        table = self.run_well([GPUPROBE, "help", "metrics"]).stdout.decode()
        self.assertIn(table, text_of("docs/metrics.md"), "replace the table in docs/metrics.md with the output of: gpuprobe help metrics")

    def test_subcommands_in_documents_exist(self):
        text = self.run_well([GPUPROBE, "--help"]).stdout.decode()
        known = set(re.findall(r"^  ([a-z]+) {2,}", text, re.MULTILINE))
        for document in DOCUMENTS:
            for commands in re.findall(r"^```\n(.*?)^```", text_of(document), re.MULTILINE | re.DOTALL):
                for name in re.findall(r"^(?:\$ )?gpuprobe ([a-z]+)", commands, re.MULTILINE):
                    with self.subTest(document=document, name=name):
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
        self.assertIn(demo_figures.markdown(), text_of("docs/demo-figures.md"), "replace the table with what demo_figures.markdown() returns")

    def test_files_that_documents_name_exist(self):
        for document in DOCUMENTS:
            for path in re.findall(r"`((?:injector|collector|proto|tests|samples|scripts)/[\w/.]+)`", text_of(document)):
                if re.search(r"NAME|/[xy][/_.]", path):
                    continue  # stands for any name
                with self.subTest(document=document, path=path):
                    matching = [path] + [path + suffix for suffix in (".h", ".cc", ".py", ".sh")]
                    self.assertTrue(any(os.path.exists(os.path.join(SOURCE, name)) for name in matching))

    def test_links_between_documents_lead_somewhere(self):
        for document in DOCUMENTS:
            folder = os.path.dirname(document)
            for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)):
                if target.startswith("https:"):
                    continue
                path, _, anchor = target.partition("#")
                page = os.path.normpath(os.path.join(folder, path)) if path else document
                with self.subTest(document=document, target=target):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, page)))
                    if anchor:
                        self.assertIn(anchor, anchors_of(text_of(page)))


if __name__ == "__main__":
    harness.main()
