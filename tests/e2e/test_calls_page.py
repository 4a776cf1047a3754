"""The page of a run at level calls, in Chromium: who is late over the whole run, and no number where nothing was recorded."""
import json
import os

import browser
import harness
import test_calls


class CallsPage(browser.WithChromium, test_calls.CallsTest):

    def test_says_who_is_late_and_what_was_captured(self):
        report = self.run_job(1200, ranks=8, env={**test_calls.SLOW, **test_calls.TIMED})
        page, troubles = self.chromium.page(self, "file:")
        page.goto("file://" + os.path.join(self.out, "report.html"))
        page.wait_for_selector("html[data-ready=true]")
        trace = report["call_trace"]
        self.assertEqual((trace["late_rank"], len(trace["raises"])), (1, 1))
        self.assertEqual(page.locator("#calls p:not(.hint)").first.inner_text(), trace["statement"])
        self.assertIn(trace["raises"][0]["outcome"], page.locator("#calls li").inner_text())
        self.assertEqual(page.locator("#calls tr.marked th").inner_text(), "rank 1")
        self.assertEqual(page.locator("#calls tbody tr").count(), 8)
        # Numbers are the report's.
        shown = {path: words for path, _, words in page.evaluate(browser.SHOWN_NUMBERS) if path.startswith("call_trace")}
        self.assertEqual(shown["call_trace.ranks.1.compared_calls"], f"{trace['ranks'][1]['compared_calls']:,}")
        self.assertEqual(shown["call_trace.ranks.1.late_ns"], browser.duration(trace["ranks"][1]["late_ns"]))
        # Ranks that were not captured.
        captured = set(trace["raises"][0]["ranks"])
        for rank in range(8):
            cells = page.locator("#ranks tbody tr").nth(rank).locator("th, td").all_inner_texts()
            self.assertEqual(cells[0], f"rank {rank}")
            self.assertEqual(cells[1].split(", ")[1], f"GPU {rank}", json.dumps(cells))
            self.assertEqual("-" in cells[-2], rank not in captured, json.dumps(cells))
        self.assertEqual(browser.Axe().run(page).response["violations"], [])
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0, "the page scrolls sideways")
        self.assertEqual(troubles, [])


if __name__ == "__main__":
    harness.main()
