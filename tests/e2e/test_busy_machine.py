"""What a busy machine explains is tried again, and nothing else: the harness's own rules (undisturbed, assert_no_loss)."""
import contextlib
import io
import unittest

import harness


def report_of(waits, *findings, lost=0):
    return {"ranks": [{"host_load": {"waits_for_cpu": waits}}, {"host_load": None}], "findings": [{"id": finding} for finding in findings],
            "trust": {"lost": {"event_ring_full": lost}}}


def outcome_of(test, report, fails):
    """How a test ends that fails so many times, how often it ran, and in how many workspaces; None: it is skipped."""
    ran = []

    class Tried(harness.EndToEndTest):

        def test_it(self):
            ran.append(self.folder)
            test(self, report, len(ran) <= fails)

    result = unittest.TestResult()
    with contextlib.redirect_stderr(io.StringIO()):
        Tried("test_it").run(result)
    return None if result.skipped else result.wasSuccessful(), len(ran), len(set(ran))


def checks_time(test, report, fails):
    with test.undisturbed(report):
        test.assertFalse(fails)


def checks_time_in_parts(test, report, fails):
    with test.subTest("part"):
        checks_time(test, report, fails)


def checks_more(test, report, fails):
    with test.undisturbed(report):
        pass
    test.assertFalse(fails)


def loses(test, _, fails):
    test.assert_no_loss(report_of(0.2, lost=7 if fails else 0))


class BusyMachine(unittest.TestCase):

    def setUp(self):
        self.addCleanup(setattr, harness, "await_idle_processors", harness.await_idle_processors)
        harness.await_idle_processors = lambda: None

    def test_what_it_explains_is_tried_again_in_a_new_workspace(self):
        for test in (checks_time, checks_time_in_parts, loses):
            self.assertEqual(outcome_of(test, report_of(0.2), 2), (True, 3, 3), test.__name__)

    def test_what_always_fails_fails(self):
        for test in (checks_time, checks_time_in_parts, loses):
            self.assertEqual(outcome_of(test, report_of(0.2), 99)[:2], (False, harness.TRIES_ON_A_BUSY_MACHINE), test.__name__)

    def test_where_the_machine_gives_no_processor_in_any_try_it_is_skipped(self):
        for report in (report_of(0.2, "cpu-starved"), report_of(0.6)):
            self.assertEqual(outcome_of(checks_time, report, 99)[:2], (None, harness.TRIES_ON_A_BUSY_MACHINE))

    def test_a_wait_that_may_have_been_in_a_few_short_steps_is_tried_again(self):
        """The kernel's count is of the whole run: 2 % of 10 s may be a fifth of the steps' second. Whether it was is not known, so nothing is skipped for it."""
        for steps_s, tries in ((1, harness.TRIES_ON_A_BUSY_MACHINE), (9, 1)):
            report = report_of(0.02)
            report["ranks"][0]["host_load"]["observed_s"] = 10
            report["steps"] = {"time_ns": {"total": steps_s * 1e9}}
            self.assertEqual(outcome_of(checks_time, report, 99)[:2], (False, tries))

    def test_nothing_else_is_tried_again(self):
        self.assertEqual(outcome_of(checks_more, report_of(0.2), 1)[:2], (False, 1), "it does not depend on processors")
        stolen = harness.ProcessorTime.share_since
        self.addCleanup(setattr, harness.ProcessorTime, "share_since", stolen)
        harness.ProcessorTime.share_since = lambda *_: 0
        self.assertEqual(outcome_of(checks_time, report_of(0.04), 1)[:2], (False, 1), "they had processors")
        harness.ProcessorTime.share_since = lambda *_: 0.06
        self.assertEqual(outcome_of(checks_time, report_of(0.04), 1)[:2], (True, 2), "the host of this machine took them")


if __name__ == "__main__":
    harness.main()
