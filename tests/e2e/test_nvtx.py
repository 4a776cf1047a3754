"""Annotated ranges: every call of NVTX's C API yields exactly its ranges, whoever calls it; calls without a partner are counted and harm nothing."""
import os
import struct
import sys

import harness
from harness import BUILD, GPUPROBE, SOURCE

NVTX_CALLS = os.path.join(BUILD, "tests", "e2e", "nvtx_calls")
NVTX_PAYLOADS = os.path.join(BUILD, "tests", "e2e", "nvtx_payloads")
NVTX_OLD_CALLER = os.path.join(BUILD, "tests", "e2e", "nvtx_old_caller")
NVTX_SCRIPT = os.path.join(SOURCE, "tests", "e2e", "programs", "nvtx_script.py")


def nvtx_library():
    """The toolkit's shared NVTX, or None."""
    for folder in (os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"):
        path = os.path.join(folder, "lib64", "libnvtx3interop.so")
        if folder and os.path.exists(path):
            return os.path.realpath(path)
    return None


class Nvtx(harness.EndToEndTest):

    def record(self, command):
        out = self.path("run-directory")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--", *command])
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_nothing_runs()
        records = self.export(out)
        ranges = [r for r in records if r["kind"] == "range"]
        self.memsets = [r for r in records if r["kind"] == "memset"]
        self.launches = [r for r in records if r["kind"] == "launch"]
        report = self.report(out)
        self.assert_no_loss(report)
        return ranges, report

    def shape(self, ranges):
        """(name, domain, kind, name of the parent), and what the attributes said, where they said something; by start."""
        names = {r["id"]: r["name"] for r in ranges}
        said = ("category", "color", "payload", "unclosed")
        return [(r["name"], r["domain"], r["range"], names.get(r["parent"]), {key: r[key] for key in said if key in r})
                for r in sorted(ranges, key=lambda r: (r["start_ns"], r["id"]))]

    def test_every_call_of_the_c_api(self):
        ranges, report = self.record([NVTX_CALLS])
        self.assertEqual(self.shape(ranges), [
            ("push A", "", "push_pop", None, {}),
            ("push W \u00e9\u4e16", "", "push_pop", "push A", {}),
            ("push Ex", "", "push_pop", "push W \u00e9\u4e16", {"category": 7, "color": 0xff76b900, "payload": 1 << 40}),
            ("mark A", "", "mark", "push Ex", {}),
            ("mark W", "", "mark", "push Ex", {}),
            ("mark Ex", "", "mark", "push Ex", {"payload": 2.5}),
            ("wide Ex", "", "push_pop", None, {"payload": -3}),
            ("start A", "", "start_end", None, {}),
            ("start W", "", "start_end", None, {}),
            ("start Ex", "", "start_end", None, {}),
            ("on the worker", "", "push_pop", None, {}),
            ("registered A", "domain A", "push_pop", None, {"category": 3}),
            ("in domain W", "domain W", "push_pop", "registered A", {}),
            ("registered W", "domain A", "mark", "in domain W", {"category": 4}),
            ("started in domain A", "domain A", "start_end", None, {}),
        ])
        by_name = {r["name"]: r for r in ranges}
        self.assertLessEqual(by_name["push A"]["start_ns"], by_name["push Ex"]["start_ns"])
        self.assertGreaterEqual(by_name["push A"]["end_ns"], by_name["push Ex"]["end_ns"])
        self.assertNotEqual(by_name["on the worker"]["tid"], by_name["push A"]["tid"])
        self.assertEqual([(r["thread"], r["range"]) for r in self.launches], [("worker", by_name["on the worker"]["id"])])
        # Ended on the worker: the first inside its range, the second after it.
        self.assertLess(by_name["start A"]["end_ns"], by_name["on the worker"]["end_ns"])
        self.assertGreater(by_name["start Ex"]["end_ns"], by_name["on the worker"]["end_ns"])
        self.assertEqual([report["trust"][key] for key in ("range_pops_without_push", "range_ends_without_start", "ranges_unclosed")], [0, 0, 0])

    def test_extended_payloads(self):
        """Each layout's numbers, by name: not what pointers lead to, nor what the program did not pass."""
        ranges, _ = self.record([NVTX_PAYLOADS])
        everything = {"comm": 0x1234567890abcdef, "bytes": 4096, "small": -7, "ratio": 0.5, "choice": 2, "point.x": -3, "point.y": 2.25, "last": -1}
        call = {"NCCL communicator ID": 77, "Message size [bytes]": 1 << 20}
        self.assertEqual([(r["name"], r["domain"], r.get("fields")) for r in sorted(ranges, key=lambda r: r["id"])], [
            ("whole", "payloads", everything),
            ("part", "payloads", {"comm": 0x1234567890abcdef, "bytes": 4096}),
            ("unknown", "payloads", None),
            ("unsized", "payloads", everything),
            ("AllReduce", "payloads", {**call, "NCCL communicator ID": 78}),  # said again when it ended
            ("", "", None),  # a layout that another domain has
            ("AllReduce", "payloads", call),
        ])

    def test_names_of_streams_and_devices(self):
        self.record([NVTX_PAYLOADS])
        self.assertEqual([(r["bytes"], r.get("stream_name"), r["device_name"]) for r in sorted(self.memsets, key=lambda r: r["bytes"])],
                         [(1, "compute \u4e16", "the only one"), (2, "copies", "the only one"), (3, "a resource", "the only one"), (4, None, "the only one")])

    def test_names_given_before_cuda(self):
        ranges, _ = self.record([NVTX_CALLS, "early"])
        self.assertEqual([(r["domain"], r["category"], r["category_name"]) for r in sorted(ranges, key=lambda r: r["id"])],
                         [("", 7, "category seven"), ("early domain", 7, "its own \u4e16")])
        self.assertEqual({r["thread"] for r in self.launches}, {"named early"})

    def test_calls_without_a_partner(self):
        ranges, report = self.record([NVTX_CALLS, "unbalanced"])
        self.assertEqual([(name, said.get("unclosed", False)) for name, _, kind, _, said in self.shape(ranges) if kind != "mark"],
                         [("left open", True), ("popped", False), ("", False), ("", False), ("", False)])
        self.assertEqual([report["trust"][key] for key in ("range_pops_without_push", "range_ends_without_start", "ranges_unclosed")], [2, 2, 1])

    def test_callers_of_older_headers(self):
        """Through the libraries' other entry point, with what tables version 2 had, and version 1."""
        for version, expected in ((2, [("outer", "old domain", "push_pop", None, {}), ("inner", "", "push_pop", "outer", {})]),
                                  (1, [("inner", "", "push_pop", None, {})])):
            with self.subTest(version=version):
                harness.shutil.rmtree(self.path("run-directory"), ignore_errors=True)
                ranges, _ = self.record([NVTX_OLD_CALLER, str(version)])
                self.assertEqual(self.shape(ranges), expected)

    def test_python(self):
        library = nvtx_library()
        if library is None:
            self.skipTest("no libnvtx3interop.so in the CUDA toolkit: NVTX is not called from Python")
        ranges, _ = self.record([sys.executable, NVTX_SCRIPT, library])
        signed = struct.unpack("<q", struct.pack("<Q", (1 << 64) - 9))[0]
        step = [("step", "python", "push_pop", None, {"category": 5, "color": 0xffff0000, "payload": signed}), ("inner", "", "push_pop", "step", {})]
        self.assertEqual(self.shape(ranges), 3 * step + [("started", "", "start_end", None, {}), ("mark", "", "mark", None, {})])


if __name__ == "__main__":
    harness.main()
