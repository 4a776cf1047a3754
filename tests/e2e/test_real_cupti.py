"""NVIDIA's own CUPTI, 11.8 to 13.5: what the probe and the simulated node take for granted is in each release's headers and library.

scripts/cupti-env.sh fetches the releases, one folder each; GPUPROBE_TEST_CUPTI names another folder with the same contents. Without any of them everything here is
skipped. The libraries run without a GPU, up to 13.1: from 13.2 on they answer nothing without a driver, so only their headers and their symbols are held.
"""
import ctypes
import glob
import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import defaultdict

import harness

SKIPPED = 77
FOLDER = os.environ.get("GPUPROBE_TEST_CUPTI") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gpuprobe", "cupti")
CUDA_INCLUDE = os.environ.get("GPUPROBE_CUDA_INCLUDE", "/usr/local/cuda/include")
FACTS = os.path.join(harness.BUILD, "tests", "e2e", "cupti_facts")
MAX_LIMIT_REACHED, INVALID_KIND, UNKNOWN = 12, 21, 999
FIRST_WITH_INVALID_KIND = (12, 4, 127)
LAST_WITHOUT_DRIVER = (13, 1)
# No release but this defines a structure in a way of its own: 12.4 to 12.9 have longer records of just-in-time compilation than the comment of their kind says.
LONGER_THAN_THE_HEADER_SAYS = {52: (72, (12, 4), (13, 0))}
# Functions that a session cannot do without, whatever the release.
NEEDED = {"cuptiGetVersion", "cuptiSubscribe", "cuptiUnsubscribe", "cuptiEnableCallback", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityDisable",
          "cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords", "cuptiActivitySetAttribute", "cuptiActivityEnableAndDump",
          "cuptiGetContextId", "cuptiGetStreamIdEx", "cuptiGetGraphNodeId", "cuptiGetDeviceId", "cuptiFinalize", "cuptiActivityRegisterTimestampCallback"}
# First release with each of the others.
SINCE = {"cuptiSubscribe_v2": (13, 0)}
SINCE.update(dict.fromkeys(("cuptiActivityEnable_v2", "cuptiActivityDisable_v2", "cuptiActivityEnableAndDump_v2", "cuptiActivityRegisterCallbacks_v2",
                            "cuptiActivitySetAttribute_v2", "cuptiActivityGetAttribute_v2"), (13, 2)))
SINCE.update(dict.fromkeys(("cuptiActivityGetNextRecord_v2", "cuptiActivityGetNumDroppedRecords_v2", "cuptiGetTimestamp_v2",
                            "cuptiActivityPushExternalCorrelationId_v2", "cuptiActivityPopExternalCorrelationId_v2"), (13, 3)))


def key(release):
    return tuple(int(part) for part in release.split("."))


def releases():
    found = [name for name in os.listdir(FOLDER) if re.fullmatch(r"\d+\.\d+\.\d+", name)] if os.path.isdir(FOLDER) else []
    return sorted(found, key=key)


def library_of(release):
    return glob.glob(os.path.join(FOLDER, release, "lib", "libcupti.so.*"))[0]


def header_of(release, name):
    with open(os.path.join(FOLDER, release, "include", name), encoding="utf-8") as header:
        return header.read()


def structures_of(release):
    """The record of each kind, as the comment of the kind names it."""
    text = header_of(release, "cupti_activity.h")
    kinds = text[:text.index("} CUpti_ActivityKind;")]
    kinds = kinds[kinds.rindex("typedef enum"):]
    found = {}
    for comment, number in re.findall(r"/\*\*(.*?)\*/\s*CUPTI_ACTIVITY_KIND_\w+\s*=\s*(\d+)", kinds, re.DOTALL):
        names = re.findall(r"CUpti_Activity\w+", comment)
        if names:
            found[int(number)] = names[-1]
    return found


def ask(library):
    """Run in a process of its own, as some releases crash: the version, sizes, names and what walking damaged buffers answers."""
    cupti = ctypes.CDLL(library)
    number, name = ctypes.c_uint32(), ctypes.c_char_p()
    if cupti.cuptiGetVersion(ctypes.byref(number)) != 0:
        return
    print("version", number.value)

    def walk(kinds, stride, valid):
        buffer = (ctypes.c_uint8 * 4096)()
        for at, kind in enumerate(kinds):
            ctypes.c_uint32.from_buffer(buffer, at * stride).value = kind
        record, steps = ctypes.c_void_p(), []
        for _ in range(4):
            result = cupti.cuptiActivityGetNextRecord(buffer, ctypes.c_size_t(valid), ctypes.byref(record))
            steps.append((result, -1 if record.value is None else record.value - ctypes.addressof(buffer)))
        return steps

    sizes = {}
    for kind in range(1, 80):
        for valid in range(8, 512, 8):
            if walk([kind], 8, valid)[0][0] == 0:
                sizes[kind] = valid
                print("size", kind, valid)
                break
    kernel, bytes_ = 10, sizes[10]
    print("walk", "damaged", walk([kernel, 0, kernel], bytes_, 3 * bytes_))
    print("walk", "cut", walk([kernel, kernel], bytes_, 2 * bytes_ - 8))
    for domain in (1, 2):
        for cbid in range(1, 1200):
            if cupti.cuptiGetCallbackName(domain, cbid, ctypes.byref(name)) == 0:
                print("callback", domain, cbid, name.value.decode())


@unittest.skipUnless(releases(), f"no CUPTI in {FOLDER}: scripts/cupti-env.sh fetches it")
class RealCupti(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.facts = defaultdict(list)
        for line in subprocess.run([FACTS], check=True, capture_output=True, text=True, timeout=60).stdout.splitlines():
            what, *rest = line.split()
            cls.facts[what].append(rest)
        cls.answers = {release: cls.answers_of(release) for release in releases()}

    @staticmethod
    def answers_of(release):
        answers = defaultdict(list)
        asked = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--ask", library_of(release)], capture_output=True, text=True, timeout=60, check=False)
        for line in asked.stdout.splitlines() if asked.returncode == 0 else []:
            what, *rest = line.split(maxsplit=3 if line.startswith("callback") else 2)
            answers[what].append(rest)
        return answers

    def for_each_release(self, check):
        for release in releases():
            with self.subTest(release=release):
                check(release)

    def number_of(self, release):
        return int(re.search(r"#define CUPTI_API_VERSION (\d+)", header_of(release, "cupti_version.h")).group(1))

    def simulated_sizes(self, release):
        """For the node as that release: the newest of its releases that say the number, and are not newer."""
        number, best = str(self.number_of(release)), None
        for name, reported, _, _ in self.facts["size"]:
            if reported == number and key(name)[:2] <= key(release)[:2]:
                best = name
        self.assertIsNotNone(best, f"GPUSIM_CUPTI_VERSION has no release with the number {number}")
        return {int(kind): int(size) for name, _, kind, size in self.facts["size"] if name == best}

    def compile(self, release, body):
        """Prints what `body` prints, with that release's headers."""
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "facts.cc"), os.path.join(folder, "facts")
            with open(source, "w", encoding="utf-8") as out:
                out.write("#include <cuda.h>\n#include <cstddef>\n#include <cstdio>\n#include <cupti_activity.h>\n#include <cupti_callbacks.h>\n"
                          f"#include <cupti_driver_cbid.h>\nint main() {{\n{body}\n}}\n")
            built = subprocess.run(["g++", "-w", "-I", os.path.join(FOLDER, release, "include"), "-I", CUDA_INCLUDE, source, "-o", program],
                                   capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(built.returncode, 0, built.stderr[:4000])
            return [line.split() for line in subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()]

    def test_each_release_says_the_number_that_the_tables_give_it(self):
        def check(release):
            answers = self.answers[release]
            if key(release)[:2] <= LAST_WITHOUT_DRIVER:
                self.assertEqual(answers["version"], [[str(self.number_of(release))]])
            else:
                self.assertEqual(answers["version"], [], "answers without a driver after all: hold it like the older ones")
            self.simulated_sizes(release)

        self.for_each_release(check)

    def test_records_of_the_node_are_as_long_as_the_real_ones(self):
        def check(release):
            simulated = self.simulated_sizes(release)
            structures = structures_of(release)
            lines = self.compile(release, "\n".join(f'std::printf("{kind} %zu\\n", sizeof({name}));' for kind, name in structures.items()))
            from_headers = {int(kind): int(size) for kind, size in lines}
            for kind, (size, since, before) in LONGER_THAN_THE_HEADER_SAYS.items():
                if since <= key(release)[:2] <= before:
                    from_headers[kind] = size
            if self.answers[release]["size"]:
                real = {int(kind): int(size) for kind, size in self.answers[release]["size"]}
                self.assertEqual(simulated, real)
                self.assertEqual({kind: from_headers[kind] for kind in real if kind in from_headers}, {kind: real[kind] for kind in real if kind in from_headers})
            else:
                self.assertEqual({kind: size for kind, size in simulated.items() if kind in from_headers}, {kind: from_headers[kind] for kind in simulated if kind in from_headers})
                self.assertGreaterEqual(set(simulated), {1, 2, 3, 8, 9, 10, 22, 38, 49, 50, 51})

        self.for_each_release(check)

    def test_the_decoders_fields_are_where_they_are_in_each_release(self):
        def check(release):
            structures = structures_of(release)
            expected, body = [], []
            for kind, field, offset, size in self.facts["field"]:
                structure = structures[int(kind)]
                expected.append([kind, field, offset, size])
                body.append(f'std::printf("{kind} {field} %zu %zu\\n", offsetof({structure}, {field}), sizeof((({structure}*)0)->{field}));')
            self.assertEqual(self.compile(release, "\n".join(body)), expected)

        self.for_each_release(check)

    def test_constants_are_the_same_in_each_release(self):
        def check(release):
            facts = self.facts["constant"] + [fact for since, *fact in self.facts["since"] if key(since) <= key(release)]
            body = "\n".join(f'std::printf("{name} %lld\\n", (long long)({name}));' for name, _ in facts)
            self.assertEqual(self.compile(release, body), facts)

        self.for_each_release(check)

    def test_a_walk_ends_where_a_record_is_cut_off_and_stays_before_a_damaged_one(self):
        def check(release):
            if key(release)[:2] > LAST_WITHOUT_DRIVER:
                return
            walks = dict(self.answers[release]["walk"])
            size = dict(self.answers[release]["size"])["10"]
            damaged = UNKNOWN if key(release) < FIRST_WITH_INVALID_KIND else INVALID_KIND
            self.assertEqual(walks["damaged"], str([(0, 0)] + 3 * [(damaged, 0)]), size)
            self.assertEqual(walks["cut"], str([(0, 0)] + 3 * [(MAX_LIMIT_REACHED, 0)]), size)

        self.for_each_release(check)

    def test_callbacks_have_the_same_numbers_and_names_in_each_release(self):
        def check(release):
            headers = {}
            for domain, file, prefix in (("1", "cupti_driver_cbid.h", "CUPTI_DRIVER_TRACE_CBID_"), ("2", "cupti_runtime_cbid.h", "CUPTI_RUNTIME_TRACE_CBID_")):
                for name, number in re.findall(prefix + r"(\w+)\s*=\s*(\d+)", header_of(release, file)):
                    headers[domain, name] = number
            names = {(domain, number): name for domain, number, name in self.answers[release]["callback"]}
            known = 0
            for domain, number, name in self.facts["callback"]:
                in_header = headers.get((domain, name))
                if in_header is None:
                    continue  # an older release does not have the function
                known += 1
                self.assertEqual(in_header, number, name)
                if names:
                    self.assertEqual(names[domain, number], name)
            self.assertGreater(known, 150)

        self.for_each_release(check)

    def test_each_release_has_the_functions_that_are_bound(self):
        bound = {name for name, in self.facts["bound"]}
        self.assertEqual(NEEDED - bound, set())

        def check(release):
            symbols = subprocess.run(["nm", "-D", "--defined-only", library_of(release)], check=True, capture_output=True, text=True, timeout=60).stdout
            exported = set(re.findall(r" T (cupti\w+)", symbols))
            self.assertEqual(NEEDED - exported, set())
            self.assertEqual({name for name in bound if name not in NEEDED and name in exported},
                             {name for name in bound - NEEDED if SINCE.get(name, (0, 0)) <= key(release)[:2]})

        self.for_each_release(check)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2])
        sys.exit(0)
    if not releases():
        print(f"skipped: no CUPTI in {FOLDER}; scripts/cupti-env.sh fetches it")
        sys.exit(SKIPPED)
    harness.main()
