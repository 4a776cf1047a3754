"""The documents say what the program says."""
import collections
import os
import re
import shutil
import sys

import demo_figures
import documented
import finding_pages
import harness
import hazards
from harness import GPUPROBE, SOURCE

sys.path.append(os.path.join(SOURCE, "tests", "sim", "cupti"))
import behaviours


DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", *documented.pages()]
# Every page of the tree.
EVERY_PAGE = [*DOCUMENTS, *(page for folder in ("injector", "collector", "tests", "samples", "scripts") for page in documented.pages(folder))]
PICTURE_LIMIT_BYTES = 60_000
PICTURES_LIMIT_BYTES = 2_500_000


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
        for topic in ("metrics", "hub-metrics"):
            table = self.run_well([GPUPROBE, "help", topic]).stdout.decode()
            self.assertIn(table, text_of("docs/metrics.md"), f"replace the table in docs/metrics.md with the output of: gpuprobe help {topic}")

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
        self.assertIn(demo_figures.markdown(), text_of("docs/internals/demo-figures.md"), "replace the table with what demo_figures.markdown() returns")

    def test_every_situation_has_its_tests(self):
        known = set()
        for folder, _, names in os.walk(os.path.join(SOURCE, "tests")):
            for name in names:
                if not re.search(r"_test\.cc$|^test_\w+\.py$", name):
                    continue
                text = text_of(os.path.relpath(os.path.join(folder, name), SOURCE))
                known |= {".".join(test) for test in re.findall(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", text, re.MULTILINE)}
                for body in re.split(r"^(?=class )", text, flags=re.MULTILINE):
                    known |= {f"{body[6:].partition('(')[0]}.{test}" for test in re.findall(r"^    def (test_\w+)", body, re.MULTILINE)}
        rows = re.findall(r"^\| (?!kind \||---)(.*) \|$", text_of("tests/README.md"), re.MULTILINE)
        self.assertGreater(len(rows), 15)
        for row in rows:
            kind, *cells = row.split(" | ")
            tests = [re.findall(r"`([^`]+)`", cell) for cell in cells]
            with self.subTest(kind):
                self.assertEqual({test for cell in tests for test in cell} - known, set(), "there is no such test")
                situation, variants, near_misses = tests
                self.assertTrue(situation and len(variants) >= 2 and near_misses, "a situation, two variants and a near miss")

    def test_files_that_documents_name_exist(self):
        for document in EVERY_PAGE:
            for path in re.findall(r"`((?:injector|collector|proto|stacks|tests|samples|scripts)/[\w/.]+)`", text_of(document)):
                if re.search(r"NAME|/[xy][/_.]", path):
                    continue  # stands for any name
                with self.subTest(document=document, path=path):
                    matching = [path] + [path + suffix for suffix in (".h", ".cc", ".py", ".sh")]
                    self.assertTrue(any(os.path.exists(os.path.join(SOURCE, name)) for name in matching))

    def test_links_between_documents_lead_somewhere(self):
        for document in EVERY_PAGE:
            folder = os.path.dirname(document)
            for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", text_of(document), flags=re.DOTALL)):
                if target.startswith("https:"):
                    continue
                path, _, anchor = target.partition("#")
                page = os.path.normpath(os.path.join(folder, path)) if path else document
                with self.subTest(document=document, target=target):
                    self.assertTrue(os.path.exists(os.path.join(SOURCE, page)))
                    if anchor and page.endswith(".md"):
                        self.assertIn(anchor, anchors_of(text_of(page)))

    def test_every_page_is_in_the_table_of_contents(self):
        contents = text_of("docs/README.md")
        for page in documented.pages():
            if os.path.dirname(page) == "docs" and page != "docs/README.md":
                self.assertIn(f"]({os.path.basename(page)})", contents, page)
        self.assertIn("(findings/README.md)", contents)

    def test_pictures_are_small_and_shown(self):
        folder = os.path.join(SOURCE, "docs", "pictures")
        shown = {os.path.basename(name) for page in DOCUMENTS for name in re.findall(r"\]\(([^)]*pictures/[^)]+)\)", text_of(page))}
        self.assertEqual(shown, set(os.listdir(folder)), "scripts/pictures.sh makes them")
        sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in shown}
        sizes["report.png"] = os.path.getsize(os.path.join(SOURCE, "samples", "report.png"))
        self.assertLess(max(sizes.values()), PICTURE_LIMIT_BYTES, sizes)
        self.assertLess(sum(sizes.values()), PICTURES_LIMIT_BYTES)


class FindingPages(harness.EndToEndTest):

    def test_each_finding_has_a_page_that_says_when_it_is_reported(self):
        conditions, holds_up = finding_pages.conditions()
        pages = {name[:-len(".md")] for name in os.listdir(finding_pages.FOLDER) if name != "README.md"}
        self.assertEqual(pages, set(conditions))
        for finding, condition in conditions.items():
            with self.subTest(finding=finding):
                page = finding_pages.text_of(finding)
                self.assertEqual(finding_pages.condition_on(page), condition, "renew it: python3 tests/e2e/finding_pages.py --write")
                self.assertRegex(page, r"\A# .+\n")
                self.assertLessEqual(len(page.splitlines()), 60)
                for heading in ("## What it means", "## Evidence, and what it was distinguished from", "## Easily confused with"):
                    self.assertIn(f"\n{heading}\n", page)
                    self.assertGreater(len(page.partition(f"\n{heading}\n")[2].partition("\n## ")[0].split()), 8, f"{heading} says little")
                self.assertRegex(page, r"\n## (Likely causes, and what|What) to do\n")
        self.assertIn(f"> {holds_up}\n", text_of("docs/findings/README.md"))

    def test_the_index_lists_each_finding_once(self):
        self.assertEqual(text_of("docs/findings/README.md"), finding_pages.index(), "renew it: python3 tests/e2e/finding_pages.py --write")

    def test_only_its_entry_names_a_finding(self):
        named = collections.Counter()
        for folder, _, names in os.walk(os.path.join(SOURCE, "collector")):
            # Scenarios say what they expect, and their own names are alike.
            if "simulate" not in folder:
                for name in names:
                    named.update(re.findall(r"""["']([a-z-]+)["']""", text_of(os.path.join(folder, name))))
        for finding in finding_pages.conditions()[0]:
            with self.subTest(finding=finding):
                self.assertEqual(named[finding], 1, "only its entry contains its id (analysis/finding_rules.h)")

    def test_screens_are_what_their_commands_print(self):
        for finding in finding_pages.conditions()[0]:
            page = finding_pages.text_of(finding)
            commands, shown = finding_pages.screen_on(page)
            with self.subTest(finding=finding):
                self.assertTrue(commands or finding_pages.keeps_screen(page), "its page says why it has no screen")
                if not commands:
                    continue
                self.assertEqual(finding_pages.lines_about(finding, "\n\n" + shown), shown)
                if finding_pages.keeps_screen(page):
                    continue
                cwd = self.path(finding)
                os.mkdir(cwd)
                printed = finding_pages.run_screen(finding_pages.text_of(finding), cwd)
                self.assertEqual(finding_pages.lines_about(finding, printed), shown, "renew it: python3 tests/e2e/finding_pages.py --write")
                shutil.rmtree(cwd)


if __name__ == "__main__":
    harness.main()
