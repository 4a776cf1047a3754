"""report.html in the distribution's Chromium: every control, keyboard, themes, a narrow screen, accessibility, and its numbers against report.json.

It needs Chromium and the environment of scripts/browser-env.sh, and is skipped without them.
"""
import csv
import json
import os
import re
import subprocess
import tempfile
import time
import unittest
from xml.etree import ElementTree

import browser

GPUPROBE = os.path.join(os.environ["GPUPROBE_BUILD_DIR"], "collector", "gpuprobe")


# Pairs of words in one chart that lie on each other.
OVERLAPS = """() => [...document.querySelectorAll('section svg')].flatMap(svg => {
  const all = [...svg.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]).filter(([words, box]) => words !== '' && box.width > 0);
  return all.flatMap(([words, a], i) => all.slice(i + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
    .map(([other]) => `${svg.closest('section').id}: ${words} / ${other}`));
})"""
# What is cut off at the edge of a chart.
CUT = """() => [...document.querySelectorAll('section svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1);
  }).map(e => `${svg.closest('section').id}: ${e.textContent}`);
})"""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="gpuprobe-page-")
        cls.chromium = browser.Chromium()
        cls.late = cls.record("straggler-late", "--ranks", "8", "--steps", "120", "--slow-from", "0.3", "--nvtx")

    @classmethod
    def tearDownClass(cls):
        cls.chromium.close()
        cls.folder.cleanup()

    @classmethod
    def record(cls, scenario, *options):
        out = os.path.join(cls.folder.name, f"{scenario}{len(os.listdir(cls.folder.name))}")
        subprocess.run([GPUPROBE, "simulate", "--scenario", scenario, "--out", out, *options], check=True, capture_output=True, timeout=120)
        return out

    def open(self, run, width=1360, height=1000, scheme="light"):
        page, self.troubles = self.chromium.page(self, "file:", width, height, scheme)
        page.goto("file://" + os.path.join(run, "report.html"))
        page.wait_for_selector("html[data-ready=true]")
        return page

    def check(self, page):
        self.assertEqual(self.troubles, [], "the page complains, or asks somebody for something")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.assertLessEqual(wide, 0, "the page scrolls sideways")

    def accessible(self, page):
        found = browser.Axe().run(page).response["violations"]
        self.assertEqual([(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found], [])

    def test_says_what_is_wrong_and_selects_the_proof(self):
        page = self.open(self.late)
        with open(os.path.join(self.late, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        first = report["findings"][0]
        self.assertEqual(page.locator(".finding .choose").first.inner_text(), first["statement"])
        self.assertEqual(page.locator(".finding .picture svg .late").count() > 0, True, "the picture shows who is late")
        page.locator(".finding .choose").first.click()
        chosen = page.locator("header .chosen").inner_text()
        self.assertIn(f"rank {first['about']['ranks'][0]}", chosen)
        self.assertIn(f"steps {first['about']['first_step']} to", chosen)
        self.assertIn("finding 1", page.evaluate("document.querySelector('#timeline select').selectedOptions[0].textContent"))
        page.get_by_role("button", name="Clear the selection").click()
        self.assertTrue(page.locator("header .chosen").is_hidden())
        self.check(page)

    def test_a_link_shows_what_its_sender_saw(self):
        page = self.open(self.late)
        page.locator(".finding .choose").first.click()
        page.locator("#theme").click()
        page.locator("#theme").click()
        chosen, address = page.locator("header .chosen").inner_text(), page.evaluate("location.hash")
        self.assertRegex(address, r"^#steps=\d+-119&ranks=\d&finding=straggler-slow-gpu&timeline=\d+&theme=dark$")
        page.reload()
        page.wait_for_selector("html[data-ready=true]")
        self.assertEqual(page.locator("header .chosen").inner_text(), chosen)
        self.assertEqual(page.locator(".finding .choose").first.get_attribute("aria-pressed"), "true")
        self.assertEqual(page.evaluate("document.documentElement.dataset.theme"), "dark")
        self.assertIn("finding 1", page.evaluate("document.querySelector('#timeline select').selectedOptions[0].textContent"))
        page.get_by_role("button", name="Clear the selection").click()
        self.assertNotIn("steps=", page.evaluate("location.hash"))
        page.evaluate("location.hash = '#steps=10-19&ranks=3,7,nobody&finding=none&timeline=x'")
        self.assertIn("ranks 3, 7, steps 10 to 19", page.locator("header .chosen").inner_text())
        page.evaluate("location.hash = '#conditions'")
        self.assertIn("steps 10 to 19", page.locator("header .chosen").inner_text(), "a place on the page is no selection")
        self.check(page)

    def test_what_is_selected_is_followed(self):
        """The table of where a step goes has the selection's means, and the timeline shows one of its steps or says that it has none."""
        page = self.open(self.late)
        self.assertTrue(page.locator("#step-statistics th.selected").is_hidden())
        steps = self.ask("SELECT rank, step, total_ns, compute_ns, exposed_comm_ns, copy_ns, idle_ns FROM step WHERE NOT warmup")
        for address, ranks, first, last, words in (("steps=40-59&ranks=1", (1,), 40, 59, "rank 1, steps 40 to 59"), ("ranks=0,2", (0, 2), 1, 119, "ranks 0, 2"),
                                                   ("steps=0-9", range(8), 1, 9, "steps 0 to 9")):
            page.evaluate(f"location.hash = '#steps=0-119&ranks=7'; document.querySelector('header .chosen button').click(); location.hash = '#{address}'")
            page.wait_for_function(f"document.querySelector('#step-statistics th.selected').textContent === '{words}'")
            shown = [self.ns(text) for text in page.locator("#step-statistics td.selected").all_inner_texts()]
            chosen = [step for step in steps if step["rank"] in ranks and first <= step["step"] <= last]
            for value, key in zip(shown, ("total_ns", "compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns"), strict=True):
                self.assertAlmostEqual(value, sum(step[key] for step in chosen) / len(chosen), delta=max(0.006 * value, 8000), msg=(words, key))
        in_page = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).timelines.map(t => t.step)")
        for step in (in_page[0], in_page[-1]):
            page.evaluate(f"location.hash = '#steps={step}-{step}'")
            page.wait_for_function(f"document.querySelector('#timeline select').selectedOptions[0].textContent.startsWith('step {step} ')")
        missing = next(step for step in range(120) if step not in in_page)
        page.evaluate(f"location.hash = '#steps={missing}-{missing}'")
        page.get_by_text("The page has none of the selected steps").wait_for()
        self.check(page)

    def ask(self, sql):
        run = subprocess.run([GPUPROBE, "query", self.late, sql, "--format", "jsonl"], check=True, capture_output=True, timeout=60)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def ns(self, words):
        number, unit = words.split()
        return float(number.replace(",", "")) * {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]

    def rows(self, page, table):
        """The numbers of a table by its first column, as its CSV has them."""
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save {table} as CSV, all rows").click()
        with open(download.value.path(), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_every_table_follows_the_selection(self):
        """Kernels, collectives, bandwidth, ranks and memory of the selected ranks and steps, against the records."""
        page = self.open(self.late)
        warmup = sum(step["warmup"] for step in self.ask("SELECT warmup FROM step WHERE rank = 0"))
        for address, ranks, first, last, words in (("steps=40-59&ranks=1", (1,), 40, 59, "rank 1, steps 40 to 59"), ("ranks=0,2", (0, 2), 0, 119, "ranks 0, 2"),
                                                   ("steps=70-70", range(8), 70, 70, "step 70")):
            with self.subTest(words):
                page.evaluate(f"document.querySelector('header .chosen button')?.click(); location.hash = '#{address}'")
                page.wait_for_function(f"document.querySelector('#kernels .note').textContent.startsWith('Of {words}: ')")
                where = f"rank IN ({', '.join(map(str, ranks))}) AND step BETWEEN {max(first, warmup)} AND {last}"
                kernels = {row["name"]: row for row in self.ask(f"SELECT name, count(*) AS calls, sum(end_ns - start_ns) AS ns FROM kernel WHERE {where} GROUP BY name")}
                shown = self.rows(page, "Kernels")
                self.assertGreater(len(shown), 8)
                for row in shown:
                    self.assertEqual(int(float(row["calls"])), kernels[row["kernel"]]["calls"], row)
                    self.assertAlmostEqual(float(row["total (ns)"]) / kernels[row["kernel"]]["ns"], 1, delta=0.001, msg=row)
                    self.assertAlmostEqual(float(row["a step"]), kernels[row["kernel"]]["calls"] / len(ranks) / (last - max(first, warmup) + 1), delta=1e-6)
                self.assertAlmostEqual(sum(float(row["share"]) for row in shown), 1 - sum(row["ns"] for name, row in kernels.items() if name.startswith("nccl")) /
                                       sum(row["ns"] for row in kernels.values()), delta=0.002)
                calls = {(row["op"], row["bytes"]): row for row in self.ask(
                    f"SELECT op, bytes, count(*) AS calls, avg(end_ns - start_ns) AS ns, avg(end_ns - start_ns - waited_ns) AS transfer FROM collective_waits WHERE {where} GROUP BY op, bytes")}
                shown = self.rows(page, "Collectives")
                self.assertEqual(len(shown), len(calls))
                for row in shown:
                    of = calls[row["operation"], int(float(row["size (bytes)"]))]
                    self.assertEqual(int(float(row["calls (count)"])), of["calls"], row)
                    self.assertAlmostEqual(float(row["time mean (ns)"]) / of["ns"], 1, delta=0.001, msg=row)
                    self.assertAlmostEqual(float(row["transfer (ns)"]) / of["transfer"], 1, delta=0.03, msg=row)
                page.get_by_text("Fit and limit are of the run.").wait_for()
                steps = self.ask(f"SELECT rank, avg(total_ns) AS total, avg(compute_ns) AS compute FROM step WHERE step BETWEEN {max(first, warmup)} AND {last} GROUP BY rank ORDER BY rank")
                for row, of in zip(self.rows(page, "Ranks"), steps, strict=True):
                    self.assertAlmostEqual(float(row["total (ns)"]) / of["total"], 1, delta=0.002, msg=row)
                    self.assertAlmostEqual(float(row["compute (ns)"]) / of["compute"], 1, delta=0.002, msg=row)
                if first > 0:
                    band = page.locator("#memory svg .selected-steps").bounding_box()
                    frame = page.locator("#memory svg").bounding_box()
                    self.assertAlmostEqual((band["x"] - frame["x"] - 66) / (frame["width"] - 70), first / 120, delta=0.08)
                    self.assertIn(f"In {words.rpartition(', ')[2]}, highest level", page.locator("#memory .note").first.inner_text())
        self.check(page)

    def test_a_kernel_can_be_looked_into(self):
        """Over the steps, by rank and by phase: the slow rank's kernels take longer from the step on that the finding names."""
        page = self.open(self.late)
        with open(os.path.join(self.late, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        about = report["findings"][0]["about"]
        row = next(place for place, kernel in enumerate(report["top_kernels"]) if kernel["class"] == "gemm")
        name = report["top_kernels"][row]["name"]
        page.locator("#kernel-table tbody tr", has=page.locator(f"th button[title='{name}']")).locator("th button").click()
        detail = page.locator("#kernel-detail")
        self.assertEqual(detail.locator("h3").inner_text(), name)
        self.assertIn(f"slowest rank {about['ranks'][0]}, ", detail.inner_text())
        factor = float(re.search(r"slowest rank \d+, ([\d.]+)x", detail.inner_text())[1])
        self.assertGreater(factor, 1.1)
        page.evaluate(f"location.hash = '#steps={about['first_step'] + 2}-119'")
        page.wait_for_function("document.querySelector('#kernel-detail .selected-steps') !== null")
        since = float(re.search(r"slowest rank \d+, ([\d.]+)x", detail.inner_text())[1])
        self.assertAlmostEqual(since, 1.3, delta=0.03, msg="by so much is the rank slow")
        self.assertEqual(detail.locator("svg .late").count(), 1)
        run = subprocess.run([GPUPROBE, "query", self.late, "--format", "jsonl",
                              f"SELECT phase, count(*) AS calls FROM kernel WHERE name = '{name}' AND step >= 0 GROUP BY phase ORDER BY sum(end_ns - start_ns) DESC"], check=True, capture_output=True, timeout=60)
        for phase in map(json.loads, run.stdout.splitlines()):
            self.assertRegex(detail.inner_text(), rf"{phase['phase']} [\d.]+ % \({phase['calls']:,} calls\)")
        page.mouse.move(*[detail.locator("svg").first.bounding_box()[side] + 100 for side in ("x", "y")])
        self.assertIn("slowest rank", page.locator(".tooltip").inner_text())
        page.mouse.move(0, 0)
        self.accessible(page)
        page.get_by_role("button", name="Close the chosen kernel").click()
        self.assertEqual(detail.count(), 0)
        page.keyboard.press("Escape")
        page.locator("#kernel-table tbody tr", has_text="ncclDevKernel").first.locator("th button").click()
        page.get_by_text("What communicates is counted by what it carries").wait_for()
        for row in page.locator("#phases .icicle .row").all():
            parts = row.locator("> .part")
            self.assertLessEqual(sum(part.bounding_box()["width"] for part in parts.all()), row.bounding_box()["width"] + 1, "parts are within the whole")
        self.check(page)

    def test_kernel_classes_are_drawn_over_the_steps(self):
        page = self.open(self.late)
        chart = page.locator("#class-chart svg")
        steps = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).work.columns")

        def shown(step):
            box = chart.bounding_box()
            page.mouse.move(box["x"] + 58 + (step + 0.5) / steps * (box["width"] - 62), box["y"] + 60)
            first, total, *rows = page.locator(".tooltip").inner_text().splitlines()
            self.assertEqual(first, f"step {step}")
            return self.ns(total.partition(" of ")[0]), {row.split()[0]: self.ns(" ".join(row.split()[1:3]).rstrip(",")) for row in rows}
        chart.scroll_into_view_if_needed()
        for step, rank in ((60, None), (60, 1), (100, 1), (5, None)):
            page.evaluate("document.querySelector('header .chosen button')?.click()" if rank is None else f"location.hash = '#ranks={rank}'")
            ranks = 8 if rank is None else 1
            truth = {row["class"]: row["ns"] / ranks for row in self.ask(
                f"SELECT class, sum(end_ns - start_ns) AS ns FROM kernel WHERE step = {step}{'' if rank is None else f' AND rank = {rank}'} GROUP BY class")}
            total, classes = shown(step)
            self.assertEqual(set(classes), set(truth))
            for name, ns in classes.items():
                self.assertAlmostEqual(ns / truth[name], 1, delta=0.006, msg=(step, rank, name))
            self.assertAlmostEqual(total / sum(truth.values()), 1, delta=0.006)
        self.check(page)

    def test_two_runs_on_one_page(self):
        """The steps of both in one chart, and the tables of `gpuprobe diff --json`."""
        runs = [self.record(scenario, "--ranks", "8", "--steps", "80") for scenario in ("healthy", "straggler-kernels")]
        path = os.path.join(self.folder.name, "change.html")
        with open(path, "wb") as file:
            subprocess.run([GPUPROBE, "diff", *runs, "--html"], check=True, stdout=file, timeout=60)
        compared = json.loads(subprocess.run([GPUPROBE, "diff", *runs, "--json"], check=True, capture_output=True, timeout=60).stdout)
        self.assertGreater(len(compared["changes"]), 0)
        for width, scheme in ((1400, "light"), (390, "dark"), (1920, "light")):
            page, self.troubles = self.chromium.page(self, "file:", width, 1000, scheme)
            page.goto("file://" + path)
            page.wait_for_selector("html[data-ready=true]")
            self.assertEqual(page.locator("#changes-title").inner_text(), compared["verdict"])
            self.assertEqual(page.locator(".finding h3").all_inner_texts(), [change["statement"] for change in compared["changes"]])
            self.assertEqual([len(page.locator(f"#steps svg .{css}").get_attribute("points").split()) for css in ("run-a", "run-b")], [80, 80])
            for table, key in (("Parts of a step", "steps"), ("Ranks that changed", "ranks")):
                rows = self.rows(page, table)
                self.assertEqual([(float(row["A (ns)"]), float(row["B (ns)"])) for row in rows], [(row["a"]["mean_ns"], row["b"]["mean_ns"]) for row in compared[key]])
            kernels = {row["name"]: row for row in compared["kernels"]}
            for row in self.rows(page, "Kernels"):
                self.assertEqual(float(row["change a step (ns)"]), kernels[row["kernel"]]["change_ns_per_step"])
            page.locator("#steps svg").scroll_into_view_if_needed()
            box = page.locator("#steps svg").bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
            self.assertRegex(page.locator(".tooltip").inner_text(), r"step \d+\nA [\d.]+ ms\nB [\d.]+ ms")
            page.mouse.move(0, 0)
            self.accessible(page)
            self.check(page)

    def test_charts_can_be_saved(self):
        page = self.open(self.late)
        for name, kind in (("steps", "svg"), ("bandwidth", "svg"), ("memory", "svg"), ("timeline", "png"), ("ranks-by-steps", "png")):
            with page.expect_download() as download:
                page.get_by_role("button", name=f"Save the picture of {name}", exact=True).click()
            self.assertEqual(download.value.suggested_filename, f"{name}.{kind}")
            with open(download.value.path(), "rb") as file:
                picture = file.read()
            if kind == "png":
                self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
                continue
            drawing = ElementTree.fromstring(picture)
            self.assertEqual(drawing.tag, "{http://www.w3.org/2000/svg}svg")
            fills = {element.get("fill") for element in drawing.iter()}
            self.assertTrue(any(fill and fill.startswith("rgb") for fill in fills), "it needs no style sheet")
            self.assertFalse(any(fill and "var(" in fill for fill in fills))
        self.check(page)

    def test_arrows_lead_from_the_late_rank_to_those_that_wait(self):
        red = """() => { const canvas = document.querySelector('#timeline canvas'); const {data} = canvas.getContext('2d').getImageData(70, 0, canvas.width - 70, canvas.height);
          let n = 0; for (let i = 0; i < data.length; i += 4) n += data[i] > 170 && data[i + 1] < 90 && data[i + 2] < 90 ? 1 : 0; return n; }"""
        words = "from the last rank in a call to those that waited for it"
        for run, waits in ((self.late, True), (self.record("healthy"), False)):
            page = self.open(run)
            self.assertEqual(words in page.locator("#timeline .legend").inner_text(), waits)
            pixels = page.evaluate(red)
            self.assertTrue(pixels > 50 if waits else pixels == 0, pixels)
            self.check(page)

    def test_what_was_done_can_be_undone_at_once(self):
        """Escape clears the selection wherever the focus is, a double click shows the whole again, and the page does not move for it."""
        page = self.open(self.late)
        top = page.locator("#steps").bounding_box()["y"]
        page.locator("#rank-table tbody button").nth(2).click()
        self.assertIn("rank 2", page.locator("header .chosen").inner_text())
        page.evaluate("scrollTo(0, 0)")
        self.assertEqual(page.locator("#steps").bounding_box()["y"], top)
        page.keyboard.press("Escape")
        self.assertTrue(page.locator("header .chosen").is_hidden())
        zoom = "document.querySelector('#timeline canvas').__zoom.k"
        page.get_by_role("button", name="Zoom in", exact=True).click()
        self.assertGreater(page.evaluate(zoom), 1)
        page.locator("#timeline canvas").dblclick()
        self.assertEqual(page.evaluate(zoom), 1)
        labels = "[...document.querySelectorAll('#steps svg text')].map(e => e.textContent).filter(words => /^(step [0-9]+|[1-9][0-9]*)$/.test(words))"
        page.evaluate("location.hash = '#steps=10-19'")
        page.get_by_role("button", name="Show only the selected steps").click()
        self.assertEqual(page.evaluate(labels)[0], "step 10")
        self.assertLessEqual(int(page.evaluate(labels)[-1].split()[-1]), 19)
        page.locator("#steps svg").dblclick(position={"x": 400, "y": 60})
        self.assertEqual(page.evaluate(labels)[0], "step 0")
        self.assertLessEqual(int(page.evaluate(labels)[-1]), 119, "a step that there is")
        for chart, words in (("#memory", r"after the start\n"), ("#bandwidth", r"GB/s with waiting\n[\d.]+ GB/s without waiting\nthe fitted line says")):
            svg = page.locator(f"{chart} svg")
            svg.scroll_into_view_if_needed()
            place = page.locator(f"{chart} circle").first.bounding_box()
            page.mouse.move(place["x"] + 3, place["y"] + 3)
            self.assertRegex(page.locator(".tooltip").inner_text(), words)
        self.check(page)

    def test_a_wide_screen_is_used(self):
        page = self.open(self.late, width=1920)
        self.assertGreater(page.evaluate("document.querySelector('main').getBoundingClientRect().width"), 1800)
        self.assertGreater(page.locator("#steps svg").bounding_box()["width"], 1700)
        self.accessible(page)
        self.check(page)

    def test_findings_explain_themselves(self):
        for scenario in ("straggler-late", "hang-missing-rank", "memory-leak", "pipeline"):
            page = self.open(self.record(scenario))
            for card in page.locator(".finding").all():
                with self.subTest(finding=card.get_attribute("data-id")):
                    card.locator(".document summary").click()
                    card.locator(".document h4").first.wait_for()
                    with open(os.path.join(os.environ["GPUPROBE_SOURCE_DIR"], "docs", "findings", card.get_attribute("data-id") + ".md"), encoding="utf-8") as file:
                        text = file.read()
                    self.assertEqual(card.locator(".document h4").all_inner_texts(), re.findall(r"^## (.*)$", text, re.MULTILINE))
                    shown = card.locator(".document").inner_text()
                    for mark in ("](", "**", "```", "`"):
                        self.assertNotIn(mark, shown)
                    bold = re.findall(r"^\d\. \*\*([^*]+?)\*\*", text.partition("\n## ")[2], re.MULTILINE)
                    self.assertLessEqual({words.replace("`", "") for words in bold}, set(card.locator(".document li strong").all_inner_texts()))
            self.check(page)
            self.accessible(page)

    def test_tables_can_be_taken_away(self):
        page = self.open(self.late)
        with open(os.path.join(self.late, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        rows = self.rows(page, "Kernels")
        self.assertEqual([(row["kernel"], int(row["calls"]), int(row["total (ns)"])) for row in rows],
                         [(kernel["name"], kernel["time_ns"]["count"], kernel["time_ns"]["total"]) for kernel in report["top_kernels"]])
        page.evaluate("document.addEventListener('copy', event => { window.copied = event.target.value; })")
        page.get_by_role("button", name="Copy Ranks as Markdown, the rows shown").click()
        lines = page.evaluate("window.copied").splitlines()
        self.assertEqual(len(lines), 2 + 8)
        self.assertTrue(all(line.startswith("| ") and line.endswith(" |") and line.count("|") == lines[0].count("|") for line in lines), lines)
        self.check(page)

    def test_red_is_for_ranks_that_a_finding_names(self):
        red = """() => { const canvas = document.querySelector('#ranks-by-steps canvas'); const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          let n = 0; for (let i = 0; i < data.length; i += 4) n += data[i] > data[i + 1] + 40 && data[i] > data[i + 2] + 40 ? 1 : 0; return n; }"""
        for run, is_blamed in ((self.late, True), (self.record("healthy"), False), (self.record("memory-leak"), False)):
            page = self.open(run)
            pixels = page.evaluate(red)
            self.assertTrue(pixels > 100 if is_blamed else pixels == 0, pixels)
            self.assertEqual(page.evaluate("[...document.querySelectorAll('#steps svg path.late')].some(path => path.getAttribute('d') !== '')"), is_blamed)
            self.assertEqual("a rank that a finding names" in page.locator("#steps .legend").inner_text(), is_blamed)
            self.check(page)

    def test_its_numbers_are_those_of_report_json(self):
        page = self.open(self.late)
        with open(os.path.join(self.late, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertGreater(browser.compare_numbers(self, page.evaluate(browser.SHOWN_NUMBERS), report), 60)
        # The chart's cells are the steps that report.json counts.
        grid = page.evaluate("""() => {
          const raw = JSON.parse(document.getElementById('page-data').textContent).steps;
          return [raw.columns * raw.steps_per_column, raw.rows];
        }""")
        self.assertEqual(grid, [120, 8])

    def test_where_the_host_was_is_as_wide_as_its_share(self):
        run = self.record("host-pause", "--ranks", "2", "--steps", "40")
        page = self.open(run)
        with open(os.path.join(run, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        pause, = [time for time in report["host_time"] if time["cause"] == "pause"]
        icicle = page.locator(".finding[data-id=host-pause] .icicle")
        self.assertEqual(icicle.locator(".bar.root").inner_text(), f"{browser.duration(pause['ns_per_step'])} a step: {'long steps included, ' if report['long_steps'] else ''}idle in pauses of the host")
        room = icicle.bounding_box()["width"]
        shown = [(part.locator("> .bar").inner_text(), part.locator(".bar.call").all_inner_texts(), part.bounding_box()["width"] / room)
                 for part in icicle.locator("> .row > .part").all()]
        self.assertTrue(shown)
        for (words, calls, width), place in zip(shown, pause["places"]):
            own = place["python"][-1]
            share = place["ns_per_step"] / pause["ns_per_step"]
            self.assertRegex(words, rf"^{own['function']} \(\S*{own['file'].split('/')[-1]}:{own['line']}\) +{100 * share:.1f} %$")
            self.assertEqual([call.split("  ")[0] for call in calls], [place["call"]] if place["call"] else [])
            self.assertAlmostEqual(width, share, delta=0.01)
        self.assertAlmostEqual(sum(width for _, _, width in shown), 1, delta=0.03)
        self.check(page)
        self.accessible(page)

    def test_a_gap_of_the_timeline_shows_the_hosts_stack(self):
        run = self.record("checkpoint", "--ranks", "2")
        page = self.open(run)
        page.locator(".finding .choose").first.click()
        page.locator("#timeline").scroll_into_view_if_needed()
        # The middle of the longest stretch that was sampled in the step that is shown, and the words for it.
        at, name, details = page.evaluate("""() => {
          const data = JSON.parse(document.getElementById('page-data').textContent);
          const step = data.timelines[Number(document.querySelector('#timeline select').value)];
          const {host} = step.ranks.reduce((a, b) => Math.max(0, ...b.host.length_ns) > Math.max(0, ...a.host.length_ns) ? b : a);
          const i = host.length_ns.indexOf(Math.max(...host.length_ns));
          const margin = step.length_ns / 50;
          return [(host.start_ns[i] + host.length_ns[i] / 2 + margin) / (step.length_ns + 2 * margin), data.names[host.name[i]], data.names[host.details[i]].split('\\n')];
        }""")
        self.assertEqual((name, details[0]), ("_save", "write of /checkpoints/step.pt"))
        self.assertIn("save_checkpoint (train.py:88)", details)
        canvas = page.locator("#timeline canvas")
        box = canvas.bounding_box()
        shown = []
        for y in range(2, int(box["height"]), 4):
            canvas.hover(position={"x": 64 + at * (box["width"] - 64), "y": y})
            if page.locator(".tooltip").is_visible() and "host: " in (words := page.locator(".tooltip").inner_text()):
                shown.append(words)
        self.assertTrue(shown)
        for words in shown:
            self.assertRegex(words, r"host: _save, [\d.]+ m?s, \d+ samples of ")
            for line in details:
                self.assertIn(line.replace("/usr/lib/python3/dist-packages/", ""), words)
        self.assertIn("what the host was in", page.locator("#timeline .legend").inner_text())
        self.check(page)

    def test_every_control_works(self):
        page = self.open(self.late)
        for count in (2, 1):
            for box in page.locator("select:visible").all():
                for value in box.locator("option").evaluate_all("options => options.map(o => o.value)")[:4 * count]:
                    box.select_option(value)
        for i in range(page.locator("button:visible").count()):
            button = page.locator("button:visible").nth(i)
            if button.count() == 1:
                button.click()
        for summary in page.locator("summary").all():
            summary.click()
        page.wait_for_selector("#longest tbody tr:nth-child(6)")
        page.evaluate("document.querySelector('header .chosen button')?.click()")
        page.locator("#kernels select").select_option("all")
        page.locator("#kernels input[type=search]").fill("flash")
        names = page.locator("#kernel-table tbody th").all_inner_texts()
        self.assertTrue(names and all("flash" in name for name in names), names)
        page.locator("#kernels input[type=search]").fill("")
        page.locator("#kernel-table thead button", has_text="calls").click()
        calls = [int(words.replace(",", "")) for words in page.locator("#kernel-table tbody td:nth-child(5)").all_inner_texts()]
        self.assertEqual(calls, sorted(calls, reverse=True))
        page.locator("#steps").evaluate("element => element.scrollIntoView({behavior: 'instant'})")
        box = page.locator("#steps svg").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 80)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80, steps=4)
        page.mouse.up()
        self.assertIn("steps ", page.locator("header .chosen").inner_text())
        page.locator("#ranks-by-steps").evaluate("element => element.scrollIntoView({behavior: 'instant'})")
        heat = page.locator("#ranks-by-steps canvas").bounding_box()
        page.mouse.click(heat["x"] + heat["width"] * 0.5, heat["y"] + 20)
        self.assertIn("rank ", page.locator("header .chosen").inner_text())
        page.locator("#timeline canvas").hover()
        self.check(page)

    def test_the_keyboard_is_enough(self):
        page = self.open(self.late)
        page.locator(".finding .choose").first.focus()
        page.keyboard.press("Enter")
        self.assertEqual(page.locator(".finding .choose").first.get_attribute("aria-pressed"), "true")
        for section, keys, said in (("#steps", ["ArrowRight", "ArrowRight", "Enter", "Escape"], "step"),
                                    ("#ranks-by-steps", ["ArrowDown", "ArrowRight", "Enter"], "rank 1"),
                                    ("#timeline", ["+", "ArrowRight", "-", "0", "ArrowDown"], "rank 0")):
            page.locator(f"{section} .plot").focus()
            for key in keys:
                page.keyboard.press(key)
            self.assertIn(said, page.locator("[role=status]").inner_text())
        reached = set()
        page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
        for _ in range(160):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.closest('section, header')?.id || document.activeElement.closest('header')?.tagName || ''"))
        self.assertLessEqual({"HEADER", "findings", "steps", "ranks-by-steps", "timeline", "kernels", "ranks"}, reached)
        self.check(page)

    def test_the_legend_of_the_steps_is_of_what_is_shown(self):
        page = self.open(self.late)
        steps = self.ask("SELECT rank, step, total_ns, compute_ns, exposed_comm_ns, copy_ns, idle_ns FROM step WHERE NOT warmup")

        def shown():
            return [self.ns(words) for words in page.locator("#steps .legend b").all_inner_texts()]

        def truth(rank, first, last):
            chosen = [step for step in steps if rank in (None, step["rank"]) and first <= step["step"] <= last]
            return [sum(step[key] for step in chosen) / len(chosen) for key in ("compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns")]
        for rank, first, last, words in ((None, 0, 119, None), (1, 0, 119, "rank 1"), (1, 80, 99, "rank 1, steps 80 to 99"), (None, 80, 99, "mean of all ranks, steps 80 to 99")):
            page.locator("#steps select").select_option("all" if rank is None else str(rank))
            page.evaluate("document.querySelector('header .chosen button').click()" if first == 0 else f"location.hash = '#steps={first}-{last}'")
            if words is not None:
                page.locator("#steps .legend").get_by_text(words, exact=True).wait_for()
            for value, of in zip(shown(), truth(rank, first, last), strict=True):
                self.assertAlmostEqual(value, of, delta=max(0.006 * of, 8000), msg=words)
        self.check(page)

    def test_a_finding_about_all_ranks_leads_to_the_part_that_shows_it(self):
        for scenario, section in (("memory-leak", "memory"), ("slow-network", "bandwidth"), ("pipeline", "steps")):
            with self.subTest(scenario=scenario):
                page = self.open(self.record(scenario))
                page.emulate_media(reduced_motion="reduce")
                page.locator(".finding .choose").first.click()
                self.assertRegex(page.locator("header .chosen").inner_text(), "^Selected: (finding 1, about all ranks and steps|rank)")
                self.assertEqual(page.locator("section.of-finding").get_attribute("id"), section)
                page.wait_for_function(f"() => {{ const box = document.getElementById('{section}').getBoundingClientRect(); return box.top < innerHeight && box.bottom > 0; }}")
                page.locator("header .chosen button").click()
                self.assertEqual(page.locator("section.of-finding").count(), 0)
                self.check(page)

    def test_names_of_the_timeline_can_be_searched(self):
        page = self.open(self.late)
        slices = page.evaluate("(() => { const d = JSON.parse(document.getElementById('page-data').textContent);"
                               "const step = Number(/^step (\\d+)/.exec(document.querySelector('#timeline select').selectedOptions[0].textContent)[1]);"
                               "return d.timelines.find(t => t.step === step).ranks.flatMap(r => r.slices.name.map((n, i) => [d.names[n], r.slices.length_ns[i]])); })()")
        box = page.get_by_role("searchbox", name="Search the names of the timeline")
        box.fill("FLASH_BWD")
        found = [ns for name, ns in slices if "flash_bwd" in name.lower()]
        self.assertGreater(len(found), 8)
        said = page.locator("#timeline-found")
        match = re.fullmatch(r"([\d,]+) matches on all ranks, (.+) together\. Enter shows the next\.", said.inner_text())
        self.assertEqual(int(match[1].replace(",", "")), len(found))
        self.assertAlmostEqual(self.ns(match[2]) / sum(found), 1, delta=0.006)
        before = page.locator("#timeline canvas").screenshot()
        for i in (1, 2):
            box.press("Enter")
            self.assertRegex(said.inner_text(), rf"^{i} of {len(found)}: rank \d, .*flash_bwd.*, [\d.]+ [um]s$")
        canvas = page.locator("#timeline canvas").bounding_box()
        self.assertNotEqual(page.locator("#timeline canvas").screenshot(), before, "it is zoomed to it")
        rank = int(re.match(r"2 of \d+: rank (\d)", said.inner_text())[1])
        texts = []
        for y in range(int(canvas["height"]) - 20):
            page.mouse.move(canvas["x"] + (canvas["width"] + 64) / 2, canvas["y"] + y)
            texts.append(page.locator(".tooltip").inner_text() if page.locator(".tooltip").is_visible() else "")
        self.assertTrue(any("flash_bwd" in words and f"rank {rank}," in words for words in texts), "it is in the middle")
        box.fill("no such kernel")
        self.assertEqual(said.inner_text(), "Nothing in this step has such a name.")
        box.fill("")
        self.assertEqual(said.inner_text(), "")
        self.check(page)

    def test_is_accessible_and_fits_in_both_themes_and_on_a_phone(self):
        for width, scheme in ((1400, "light"), (1400, "dark"), (360, "light"), (390, "dark"), (768, "light"), (768, "dark"), (1920, "dark")):
            with self.subTest(width=width, scheme=scheme):
                page = self.open(self.late, width=width, scheme=scheme)
                self.assertTrue(page.locator("#trust").is_visible())
                self.accessible(page)
                self.check(page)

    def test_other_runs_show_their_findings(self):
        for scenario in ("memory-leak", "hang-missing-rank", "out-of-memory", "partial-overlap", "records-lost", "evaluation", "healthy"):
            with self.subTest(scenario=scenario):
                page = self.open(self.record(scenario))
                self.assertGreater(page.locator(".finding").count(), 0)
                for choose in page.locator(".finding .choose").all():
                    choose.click()
                self.check(page)

    def test_a_hang_is_drawn_after_the_last_step(self):
        page = self.open(self.record("hang-missing-rank"))
        with open(os.path.join(self.folder.name, sorted(os.listdir(self.folder.name), key=lambda name: os.path.getmtime(os.path.join(self.folder.name, name)))[-1], "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        hang, = report["hangs"]
        stuck = page.locator("#steps svg .stuck")
        title = stuck.locator("title").text_content()
        self.assertAlmostEqual(self.ns(title.removeprefix("no further step: hangs for ")) / hang["waiting_ns"], 1, delta=0.006)
        bars, box = page.locator("#steps svg path.compute").bounding_box(), stuck.bounding_box()
        self.assertGreaterEqual(box["x"], bars["x"] + bars["width"] - 1, "after the steps")
        chosen = page.evaluate("document.querySelector('#timeline select').selectedOptions[0].textContent")
        last = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).steps.columns") - 1
        self.assertRegex(chosen, rf"^step {last} \(.*finding 1")
        page.locator("#steps").evaluate("element => element.scrollIntoView({behavior: 'instant'})")
        box = stuck.bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
        self.assertIn(f"step {last}", page.locator("header .chosen").inner_text())
        self.assertEqual(self.open(self.late).locator("#steps svg .stuck").count(), 0)
        self.check(page)

    def test_words_in_charts_can_be_read(self):
        for scenario in ("memory-leak", "hang-missing-rank", "pipeline", "straggler-kernels"):
            run = self.record(scenario, "--nvtx")
            for width in (360, 720, 1360):
                with self.subTest(scenario=scenario, width=width):
                    page = self.open(run, width=width)
                    self.assertEqual(page.evaluate(OVERLAPS), [])
                    self.assertEqual(page.evaluate(CUT), [])

    def test_it_can_be_printed(self):
        page = self.open(self.late, width=800, scheme="dark")
        page.emulate_media(media="print")
        self.assertEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        self.assertFalse(page.locator("#steps .controls").is_visible(), "nothing can be pressed on paper")
        devices = page.locator("#conditions summary")
        self.assertTrue(devices.is_visible())
        self.assertIn("H100", devices.inner_text())
        broken = page.evaluate("""() => [...document.querySelectorAll('td.number, td:not([class])')].filter(e => e.getClientRects().length > 0 && /^[\\d.,]+ \\w+$/.test(e.textContent))
          .filter(e => { const range = document.createRange(); range.selectNodeContents(e); return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1; })
          .map(e => e.textContent)""")
        self.assertEqual(broken, [], "a number stays with its unit")
        wide = page.evaluate("[...document.querySelectorAll('table')].filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.id)")
        self.assertEqual(wide, [], "tables fit on the paper")
        self.assertGreater(len(page.pdf(format="A4")), 10_000)

    def test_kernels_of_collectives_say_nothing_of_calls_a_step(self):
        """They are counted by what they carry: a zero here would be wrong."""
        with open(os.path.join(self.late, "report.json"), encoding="utf-8") as file:
            kernels = json.load(file)["top_kernels"]
        collectives = [kernel for kernel in kernels if kernel["class"] == "collective"]
        self.assertTrue(collectives)
        self.assertEqual([kernel["steady"] for kernel in collectives], [None] * len(collectives))
        self.assertTrue(all(kernel["steady"]["calls_per_step"] > 0 for kernel in kernels if kernel["class"] == "gemm"))
        page = self.open(self.late)
        row = page.locator("#kernel-table tbody tr", has_text="AllReduce")
        self.assertEqual(row.locator("td").nth(4).inner_text(), "-")

    def test_opens_soon(self):
        for ranks, steps in ((8, 1000), (64, 250)):
            run = self.record("straggler-late", "--ranks", str(ranks), "--steps", str(steps))
            size = os.path.getsize(os.path.join(run, "report.html"))
            began = time.monotonic()
            page = self.open(run)
            print(f"{ranks} ranks x {steps} steps: {size / 1e6:.1f} MB, opened in {time.monotonic() - began:.2f} s")
            self.assertLess(size, 5e6)
            self.check(page)


if __name__ == "__main__":
    unittest.main()
