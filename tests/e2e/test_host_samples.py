"""What the probe notes of the host in gaps is what the program did: function, line, call, file, and for how long."""
import ast
import collections
import os
import time

import harness
from harness import CUDA_SCRIPT, LIBRARY
from hazards import hazard
from host_stream import Listener

PROGRAM = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "host_samples.py")
CHURN = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "python_churn.py")
PYTHON = "/usr/bin/python3"
READ, NANOSLEEP = 0, (35, 230)
# Who calls whom when the program churns.
CALLERS = {"climb": {"descend", "stumble", "work"}, "descend": {"climb"}, "stumble": {"descend"}, "work": {"Thread.run", "run"}, "launch": {"work"}, "churn": {"<module>"}, "churn.<locals>.<listcomp>": {"churn"},
           "<module>": {None}}


def lines(path):
    """{function: the lines that it has} of a program."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    return {node.name: range(node.lineno, node.end_lineno + 1) for node in tree.body if isinstance(node, ast.FunctionDef)}


LINES = {path: lines(path) for path in (PROGRAM, CHURN)}


class HostSamples(harness.EndToEndTest):

    def record(self, command, meanwhile=None, **settings):
        """What each process said, and how the command ended."""
        listener = Listener(self)
        program = self.start(command, env={**listener.env(), "CUDA_INJECTION64_PATH": LIBRARY, **settings})
        if meanwhile is not None:
            meanwhile(program)
        finished = program.wait()
        self.assertEqual(finished.returncode, 0, str(finished))
        return listener.stop(), finished

    def record_one(self, *command, meanwhile=None, **settings):
        processes, finished = self.record(command, meanwhile, **settings)
        self.assertEqual(len(processes), 1, str(finished))
        return processes[0].samples, finished

    def assert_known(self, frames):
        """Each frame of the program is at a line of its function."""
        for frame in frames:
            if frame.line != 0 and frame.function in LINES.get(frame.file, {}):
                self.assertIn(frame.line, LINES[frame.file][frame.function], frame)

    def test_gaps_are_in_the_functions_that_the_program_was_in(self):
        samples, finished = self.record_one(PYTHON, "-B", PROGRAM, "steps", "20")
        spent = ast.literal_eval(finished.stdout.decode())
        total = collections.Counter()
        for sample in samples:
            self.assertTrue(sample.main)
            self.assert_known(sample.frames)
            if sample.in_gap and sample.stack == "whole":
                total[sample.frames[0].function] += sample.stands_for_ns / 1e9
                if sample.frames[0].function in spent:
                    self.assertEqual([frame.function for frame in sample.frames[1:]], ["step", "steps", "<module>"])
        self.assertGreater(sum(total[name] for name in spent), 0.9 * sum(total.values()), total)
        for name, seconds in spent.items():
            self.assertAlmostEqual(total[name], seconds, delta=0.25 * sum(spent.values()), msg=total)
        waiting = [sample for sample in samples if sample.frames and sample.frames[0].function == "wait" and sample.state == "sleeping"]
        self.assertGreater(sum(sample.system_call in NANOSLEEP for sample in waiting), 0.8 * len(waiting))
        # It stands for no more than there was.
        self.assertLess(sum(sample.stands_for_ns for sample in samples) / 1e9, 1.2 * sum(spent.values()) + 1)
        for before, after in zip(samples, samples[1:]):
            self.assertGreaterEqual(after.time_ns - after.stands_for_ns, before.time_ns)

    def test_a_file_that_a_thread_waits_for_is_named(self):
        pipe = self.path("pipe")
        os.mkfifo(pipe)

        def write(_):
            with open(pipe, "wb", buffering=0) as file:
                time.sleep(0.7)
                file.write(b"x")

        samples, _ = self.record_one(PYTHON, "-B", PROGRAM, "read", pipe, meanwhile=write)
        reading = [sample for sample in samples if sample.system_call == READ and sample.file == pipe]
        self.assertGreater(len(reading), 5, samples)
        for sample in reading:
            self.assertEqual((sample.state, sample.frames[0].function if sample.frames else "read"), ("sleeping", "read"))

    def test_the_thread_that_has_pythons_lock_is_seen(self):
        samples, _ = self.record_one(PYTHON, "-B", PROGRAM, "contend")
        waits = [sample for sample in samples if sample.call == "take_gil" and sample.main]
        self.assertGreater(len(waits), 5, samples)
        for sample in waits:
            self.assertIn(sample.frames[0].function if sample.frames else "compute", ("compute", "contend", "launch"))
            others = [other for other in samples if other.time_ns == sample.time_ns and not other.main]
            self.assertLessEqual({other.frames[0].function for other in others if other.frames}, {"hog"})
        self.assertGreater(sum(bool(sample.frames) and sample.frames[0].function == "hog" for sample in samples), 5)

    def test_a_program_without_python_has_calls(self):
        """It waits for three kernels of 300 ms."""
        samples, _ = self.record_one(CUDA_SCRIPT, "kernels:3", "kernels:1", GPUSIM_KERNELS=".*=300ms")
        self.assertEqual({sample.stack for sample in samples}, {"no python"})
        waits = [sample for sample in samples if sample.call.startswith("cuCtxSynchronize")]
        self.assertGreater(len(waits), 0.7 * len(samples))
        self.assertGreater(len(waits), 10)
        begins = {round((sample.time_ns - sample.call_ns) / 1e6) for sample in waits}
        self.assertLessEqual(len(begins), 4, "two calls, and where they are rounded")

    @hazard("threads start, end, raise and recurse while the probe reads their Python stacks", sees="no difference",
            counted="each stack is one that the program had, or is marked as torn")
    def test_threads_that_come_and_go(self):
        samples, _ = self.record_one(PYTHON, "-B", PROGRAM, "churn", "3")
        functions = set()
        for sample in samples:
            self.assert_known(sample.frames)
            for frame, caller in zip(sample.frames, [*sample.frames[1:], None]):
                if frame.file not in LINES:
                    continue
                functions.add(frame.function)
                self.assertIn(caller and caller.function, CALLERS[frame.function], sample)
        stacks = collections.Counter(sample.stack for sample in samples)
        self.assertGreater(stacks["whole"], stacks["torn"], stacks)
        self.assertTrue(functions.issuperset({"climb", "churn"}), functions)
        self.assertGreater(len({sample.tid for sample in samples}), 3)

    @hazard("a sandbox refuses to read memory (seccomp, process_vm_readv) while the probe samples", sees="output and status unchanged",
            counted="samples go on without Python stacks, and say so")
    def test_a_filter_that_refuses(self):
        samples, finished = self.record_one(PYTHON, "-B", PROGRAM, "refuse")
        self.assertIn(b"compute", finished.stdout)
        stacks = [sample.stack for sample in samples]
        self.assertIn("not readable", stacks)
        self.assertNotIn("whole", stacks[stacks.index("not readable"):])

    @hazard("a sampled program forks; the child computes, then replaces itself", sees="no difference", counted="only the parent is sampled")
    def test_children_are_not_sampled(self):
        processes, _ = self.record([PYTHON, "-B", PROGRAM, "children"])
        self.assertEqual(len(processes), 1)
        self.assertEqual({sample.main for sample in processes[0].samples}, {True})
        self.assertEqual({frame.function for sample in processes[0].samples for frame in sample.frames[:1]} & {"compute"}, set())

    def test_it_can_be_switched_off(self):
        samples, _ = self.record_one(PYTHON, "-B", PROGRAM, "steps", "5", GPUPROBE_HOST_SAMPLES="0")
        self.assertEqual(samples, [])

    def test_there_are_at_most_a_hundred_in_a_second(self):
        samples, _ = self.record_one(PYTHON, "-B", PROGRAM, "churn", "3")
        times = [sample.time_ns for sample in samples]
        for i, begin in enumerate(times):
            self.assertLessEqual(sum(begin <= time < begin + 10**9 for time in times[i:i + 101]), 100)


if __name__ == "__main__":
    harness.main()
