"""The distribution's Chromium for tests of pages, and what their numbers must be.

Importing this starts the test again in the environment of scripts/browser-env.sh; without that, or without Chromium, the test is skipped.
"""
import os
import shutil
import subprocess
import sys

SKIPPED = 77
SOURCE = os.environ.get("GPUPROBE_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

try:
    from axe_playwright_python.sync_playwright import Axe  # pylint: disable=unused-import
    from playwright.sync_api import sync_playwright
except ImportError:
    if os.environ.get("GPUPROBE_IN_BROWSER_ENV"):
        sys.exit("the browser environment lacks Playwright")
    found = subprocess.run([os.path.join(SOURCE, "scripts", "browser-env.sh"), "--check"], capture_output=True, text=True)
    if found.returncode != 0:
        print("skipped:", found.stderr.strip())
        sys.exit(SKIPPED)
    os.environ["GPUPROBE_IN_BROWSER_ENV"] = "1"
    os.execv(found.stdout.strip(), [found.stdout.strip(), "-B", *sys.argv])

PROGRAM = shutil.which("chromium")
if PROGRAM is None:
    print("skipped: no chromium: run scripts/install-deps.sh")
    sys.exit(SKIPPED)

# (path in report.json, unit, words) of each number that the page says where it has it from.
SHOWN_NUMBERS = "[...document.querySelectorAll('[data-path]')].map(e => [e.dataset.path, e.dataset.unit, e.textContent])"


class Chromium:
    def __init__(self):
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", "--disable-gpu"])

    def page(self, test, own, width=1360, height=1000, scheme="light"):
        """A page, and the list of its troubles: what it complains about, and requests to anywhere whose address does not begin with `own`."""
        context = self._browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        test.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(20_000)
        troubles = []
        page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append("request: " + request.url) if not request.url.startswith(own) else None)
        return page, troubles

    def close(self):
        self._browser.close()
        self._playwright.stop()


class WithChromium:
    """For a test's class, before its other bases: one browser for all of its tests."""

    @classmethod
    def setUpClass(cls):
        cls.chromium = Chromium()
        cls.addClassCleanup(cls.chromium.close)


def duration(ns):
    """As collector/analysis/units.cc writes it."""
    for unit, size in (("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9)):
        if ns < 0.9995 * size * 1000 or unit == "s":
            value = ns / size
            return f"{value:.0f} ns" if unit == "ns" else f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}" if value >= 10 else f"{value:.2f} {unit}"
    raise AssertionError


def at_path(document, path):
    for part in path.split("."):
        document = document[int(part)] if isinstance(document, list) else document[part]
    return document


def compare_numbers(test, shown, report):
    """Fails where a number differs from report.json's; returns how many times there were."""
    times = 0
    for path, unit, words in shown:
        value = at_path(report, path)
        if value is None:
            test.assertEqual(words, "-", path)
        elif unit == "ns":
            test.assertEqual(words, duration(value), path)
            times += 1
        elif unit == "count":
            test.assertEqual(words, f"{value:,}", path)
    return times
