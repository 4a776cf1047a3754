"""Every tag in the simulated CUPTI's source can be read, and one that nobody could look up is refused."""
import unittest

import behaviours
from behaviours import Malformed, of_file


class Tags(unittest.TestCase):

    def test_the_source_has_tags_of_every_way(self):
        found = behaviours.behaviours()
        count = {way: sum(behaviour.way == way for behaviour in found) for way in behaviours.WAYS}
        print(", ".join(f"{number} {way}" for way, number in count.items()))
        for way in behaviours.WAYS:
            self.assertGreater(count[way], 5)
        self.assertEqual(len({behaviour.text for behaviour in found}), len(found), "one place for each")

    def test_a_block_may_hold_several_over_several_lines(self):
        first, second, third = of_file("x.cc", [
            "  // [documented] cupti_activity.h, cuptiFoo: it does\n", "  // one thing.\n", "  // [observed] H100, CUPTI 13.0.1: it does another.\n", "int x;\n",
            "// [assumed] It does a third. Probe: all of it.\n", "// Fallback: none. Settled by: gpu-check step \"conditions\".\n"])
        self.assertEqual((first.way, first.source, first.text), ("documented", "cupti_activity.h, cuptiFoo", "it does one thing."))
        self.assertEqual((second.way, second.source, second.text), ("observed", "H100, CUPTI 13.0.1", "it does another."))
        self.assertEqual((third.way, third.text, third.probe, third.fallback, third.settled_by),
                         ("assumed", "It does a third.", "all of it.", "none.", 'gpu-check step "conditions"'))

    def test_what_cannot_be_looked_up_is_refused(self):
        for line in ("// [observed] It does this.", "// [observed] H100: it does this.", "// [documented] somewhere: it does this.",
                     "// [documented] cupti_activity.h says so.", "// [assumed] It does this.", "// [assumed] It does this. Probe: all of it.",
                     "// [guessed] It does this."):
            with self.subTest(line=line), self.assertRaises(Malformed):
                of_file("x.cc", [line])

    def test_steps_of_gpu_check_that_settle_one_exist(self):
        with open(behaviours.os.path.join(behaviours.SOURCE, "samples", "gpu_check", "check.py"), encoding="utf-8") as file:
            check = file.read()
        for behaviour in behaviours.behaviours():
            if behaviour.settled_by:
                with self.subTest(behaviour=behaviour.text):
                    step = behaviours.re.fullmatch(r'gpu-check step "(.+)"', behaviour.settled_by)
                    self.assertIsNotNone(step, behaviour.settled_by)
                    self.assertIn(f'"{step.group(1).split(",")[0]}', check)


if __name__ == "__main__":
    unittest.main()
