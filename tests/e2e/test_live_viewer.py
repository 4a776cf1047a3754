"""Somebody watches a running job in Chromium: the page follows it, its numbers are the report's, and what the viewer did to the page stays.

It needs Chromium and the environment of scripts/browser-env.sh, and is skipped without them.
"""
import json
import re

import browser
import harness
from harness import GPUPROBE, wait_until

UPDATES = 6
FOLLOWS_S = 10  # measured: docs/performance.md; a slow machine must not fail the test

# What the viewer can change, as it is seen on the page.
VIEW = """() => {
  const box = id => document.querySelector(`${id} select`)?.value ?? null;
  return {
    theme: [document.documentElement.dataset.theme, document.querySelector('#theme').textContent],
    steps: [...document.querySelectorAll('#steps input')].map(e => e.value), stepsShown: box('#steps'), axis: [...document.querySelectorAll('#steps svg text')].map(e => e.textContent).filter(words => words.startsWith('step ')),
    late: document.querySelector('#steps .mark-line') === null, colour: box('#ranks-by-steps'), timeline: document.querySelector('#timeline select').selectedOptions[0].textContent.split(',')[0].split(' (')[0],
    details: document.querySelector('#timeline details').open, sort: [...document.querySelectorAll('#kernel-table [aria-sort]')].map(e => e.getAttribute('aria-sort')),
    class: box('#kernels'), search: document.querySelector('#kernels input').value, focus: document.activeElement === document.querySelector('#kernels input'),
    caret: document.querySelector('#kernels input').selectionStart, sideways: document.querySelector('#collective-table').parentElement.scrollLeft,
    names: [...document.querySelectorAll('#kernel-table tbody th')].map(e => e.textContent), chosen: document.querySelector('header .chosen span').textContent,
    pressed: document.querySelectorAll('.finding [aria-pressed=true]').length, memory: box('#memory')};
}"""
# Everything that a viewer can do to the page, but for typing.
ACTIONS = """() => {
  const all = selector => [...document.querySelectorAll(selector)];
  const press = (selector, words) => all(selector).find(button => button.textContent === words || button.title === words).click();
  const choose = (selector, index) => {
    const box = document.querySelector(selector);
    box.selectedIndex = index;
    box.dispatchEvent(new Event('change'));
  };
  for (let i = 0; i < 2; ++i) document.querySelector('#theme').click();
  choose('#steps select', 3);
  const [from, to] = all('#steps input');
  [from.value, to.value] = [3, 9];
  to.dispatchEvent(new Event('change'));
  press('#steps button', 'Zoom in');
  choose('#ranks-by-steps select', 1);
  choose('#timeline select', 1);
  for (let i = 0; i < 3; ++i) press('#timeline button', 'Zoom in');
  document.querySelector('#timeline summary').click();
  for (let i = 0; i < 2; ++i) press('#kernel-table thead button', 'mean');
  all('#rank-table tbody button')[2].click();
  document.querySelector('#collective-table').parentElement.scrollLeft = 77;
}"""
# How far a zoomed timeline is from the whole step: the d3-zoom transform of its canvas.
ZOOM = "() => { const {k, x} = document.querySelector('#timeline canvas').__zoom; return [k, Math.round(x)]; }"
# Once the page shows the newest version: the report, the page's numbers, and how far behind the clock the report's last record is.
SAME_VERSION = """async () => {
  for (;;) {
    const answer = await fetch('/api/report');
    const report = await answer.json();
    const shown = %s;
    if (answer.headers.get('ETag') === document.documentElement.dataset.version) return [report, shown];
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}""" % browser.SHOWN_NUMBERS
# For each version as it appears: how long ago the last thing in it happened.
WATCH = """() => {
  window.behind = [];
  new MutationObserver(async () => {
    const at = Date.now();
    const version = document.documentElement.dataset.version;
    const answer = await fetch('/api/report');
    const report = await answer.json();
    if (answer.headers.get('ETag') === version) window.behind.push(at / 1e3 - (report.conditions.start_ns + report.conditions.duration_ns) / 1e9);
  }).observe(document.documentElement, {attributeFilter: ['data-version']});
}"""


class LiveViewer(browser.WithChromium, harness.EndToEndTest):

    def watched(self, width=1360):
        """A collector, a job of 8 ranks that runs as slowly as a real one, and the page that follows it."""
        collector = harness.Collector(self, arguments=["--http", "127.0.0.1:0"])
        address = wait_until(lambda: re.search(rb"http://127\.0\.0\.1:\d+", collector.program.so_far()), "address")[0].decode()
        job = self.start([GPUPROBE, "simulate", "--scenario", "straggler-late", "--slow-from", "0.00002", "--ranks", "8", "--layers", "32", "--steps", "100000", "--real-time",
                          "--nvtx", "--socket", collector.socket])
        page, self.troubles = self.chromium.page(self, address, width=width, height=900)
        page.goto(address)
        page.wait_for_selector("html[data-ready=true]")
        self.await_true(page, "document.querySelector('#kernel-table') && document.querySelector('#steps svg') && document.querySelector('#timeline') && Number(document.querySelectorAll('#steps input')[1].value) > 12", "steps in the charts")
        return collector, job, page

    def await_true(self, page, expression, what):
        """Playwright's own way of waiting evaluates strings in the page, which the page's policy forbids."""
        wait_until(lambda: page.evaluate(expression), what)

    def await_updates(self, page, number):
        for _ in range(number):
            before = page.evaluate("document.documentElement.dataset.version")
            self.await_true(page, f"document.documentElement.dataset.version !== {json.dumps(before)}", "newer documents")

    def end(self, collector, job):
        job.signal(15)
        job.wait()
        collector.program.signal(15)
        self.assertEqual(collector.program.wait().returncode, 0)

    def test_any_step_can_be_looked_at(self):
        collector, job, page = self.watched()
        shown = "document.querySelector('#timeline select').selectedOptions[0].textContent"
        page.evaluate("""() => { const box = document.querySelector('#timeline input[type=number]'); box.value = 7; box.dispatchEvent(new Event('change')); }""")
        self.await_true(page, f"{shown}.startsWith('step 7')", "the timeline of step 7")
        self.await_updates(page, 2)
        self.assertRegex(page.evaluate(shown), "^step 7\\b", "it stays while the run goes on")
        page.evaluate("location.hash = '#x'")
        page.evaluate("""() => { const [from, to] = document.querySelectorAll('#steps input'); from.value = to.value = 9; to.dispatchEvent(new Event('change')); }""")
        self.await_true(page, f"{shown}.startsWith('step 9')", "a step that was selected")
        self.end(collector, job)
        self.assertEqual(self.troubles, [])

    def test_what_the_viewer_did_stays(self):
        collector, job, page = self.watched(width=900)
        # All at once: Playwright's own clicks wait for elements that do not change, and these are replaced twice a second.
        page.evaluate(ACTIONS)
        page.evaluate("document.querySelector('#kernels input').focus()")
        page.keyboard.type("flash")
        page.keyboard.press("ArrowLeft")
        page.evaluate("document.querySelector('#kernels').scrollIntoView({behavior: 'instant'})")
        self.await_updates(page, 1)
        before, zoom, top = page.evaluate(VIEW), page.evaluate(ZOOM), page.evaluate("document.querySelector('#kernels').getBoundingClientRect().top")
        self.assertEqual((before["theme"], before["steps"], before["search"], before["focus"], before["caret"], before["sideways"], before["details"]),
                         (["dark", "Theme: dark"], ["3", "9"], "flash", True, 4, 77, True))
        self.assertIn("ascending", before["sort"])
        self.assertTrue(before["names"] and all("flash" in name for name in before["names"]), before)
        self.assertGreater(zoom[0], 4)
        steps = page.evaluate("document.querySelector('#pace').textContent")
        self.await_updates(page, UPDATES)
        self.assertNotEqual(page.evaluate("document.querySelector('#pace').textContent"), steps, "the page shows newer steps")
        self.assertEqual(page.evaluate(VIEW), before)
        self.assertEqual(page.evaluate(ZOOM), zoom)
        self.assertLess(abs(page.evaluate("document.querySelector('#kernels').getBoundingClientRect().top") - top), 2)
        self.assertEqual(self.troubles, [])
        self.end(collector, job)

    def test_a_drag_is_not_interrupted(self):
        collector, job, page = self.watched()
        self.await_true(page, "document.querySelector('#live').textContent.startsWith('Live: ')", "live line")
        # None: an update replaced the chart in that instant.
        box = harness.wait_until(lambda: page.locator("#steps svg").bounding_box(), "chart of steps")
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 80)
        page.mouse.down()
        page.evaluate("document.querySelector('#steps svg').dataset.mine = 'true'")
        version = page.evaluate("document.documentElement.dataset.version")
        # Nothing that is waited for may replace the chart: let newer documents be made meanwhile.
        page.evaluate("""async version => {
          while ((await fetch('/api/report', {method: 'HEAD'})).headers.get('ETag') === version) await new Promise(resolve => setTimeout(resolve, 50));
        }""", version)
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 80, steps=4)
        self.assertEqual(page.locator("#steps svg[data-mine]").count(), 1)
        page.mouse.up()
        self.assertRegex(page.locator("header .chosen").inner_text(), r"steps \d+ to \d+")
        self.await_updates(page, 2)
        self.assertRegex(page.locator("header .chosen").inner_text(), r"steps \d+ to \d+")
        self.assertEqual(self.troubles, [])
        self.end(collector, job)

    def test_follows_the_job_and_says_what_the_report_says(self):
        collector, job, page = self.watched()
        page.evaluate(WATCH)
        self.await_updates(page, UPDATES)
        report, shown = page.evaluate(SAME_VERSION)
        self.assertGreater(browser.compare_numbers(self, shown, report), 60)
        behind = sorted(page.evaluate("window.behind"))
        print(f"the last event on the page happened {behind[0]:.2f} s to {behind[-1]:.2f} s before it was shown, median {behind[len(behind) // 2]:.2f} s")
        self.assertLess(behind[len(behind) // 2], FOLLOWS_S)
        self.assertEqual(self.troubles, [])
        self.end(collector, job)
        self.await_true(page, "document.querySelector('#live').textContent === 'The run is over'", "end")
        final = harness.read_report(collector.out)
        self.assertGreater(browser.compare_numbers(self, page.evaluate(browser.SHOWN_NUMBERS), final), 60)
        # The server goes while the page may be asking it.
        self.assertEqual([trouble for trouble in self.troubles if not re.search(r"net::ERR_CONNECTION_|Failed to fetch", trouble)], [])


if __name__ == "__main__":
    harness.main()
