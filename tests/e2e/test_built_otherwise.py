"""Programs that a preloaded library may keep from starting: sanitized, for another C library, for another machine."""
import os
import shutil
import struct
import subprocess
import unittest

import harness
from harness import BUILD, GPUPROBE, LIBRARY
from hazards import hazard


# The leak check after main stops over the thread-local memory of the node's CUPTI threads (GCC 12 with glibc 2.36), now and then.
NO_LEAK_CHECK = {"ASAN_OPTIONS": "detect_leaks=0"}


def sanitized(name):
    return os.path.join(BUILD, "tests", "e2e", f"copies_{name}")


class BuiltOtherwise(harness.EndToEndTest):

    def under_run(self, *command, options=()):
        out = self.path("out")
        shutil.rmtree(out, ignore_errors=True)
        return self.run_program([GPUPROBE, "run", "--out", out, *options, "--", *command], env=NO_LEAK_CHECK)

    def copies(self):
        return sum(record["kind"] == "memcpy" for record in self.export(self.path("out")))

    def runs_and_is_recorded(self, name, line):
        if not os.path.exists(sanitized(name)):
            raise unittest.SkipTest(f"built without the runtime of -fsanitize={name}")
        plain = self.run_program([sanitized(name), "5"], env=NO_LEAK_CHECK)
        self.assertEqual(plain.outcome, (3, b"copied 5 times\n", b""))
        finished = self.under_run(sanitized(name), "5")
        self.assertEqual((finished.returncode, finished.stdout), (3, plain.stdout), str(finished))
        self.assertEqual(b"not preloaded" in finished.stderr, line, str(finished))
        self.assertEqual(self.copies(), 5)

    @hazard("a program built with AddressSanitizer under `gpuprobe run`", sees="starts and ends as without the probe: only CUDA loads it",
            counted="everything is recorded; one line says that the probe is not preloaded, and why")
    def test_address_sanitizer(self):
        self.runs_and_is_recorded("address", line=True)

    @hazard("a program built with ThreadSanitizer under `gpuprobe run`", sees="output and status unchanged, no race reported", counted="everything is recorded")
    def test_thread_sanitizer(self):
        self.runs_and_is_recorded("thread", line=False)

    @hazard("a program built with UndefinedBehaviorSanitizer under `gpuprobe run`", sees="output and status unchanged", counted="everything is recorded")
    def test_undefined_behaviour_sanitizer(self):
        self.runs_and_is_recorded("undefined", line=False)

    @unittest.skipUnless(os.path.exists(sanitized("address")), "no AddressSanitizer")
    def test_a_preloaded_library_does_stop_a_sanitized_program(self):
        """What the line is for: without the check this happens."""
        finished = self.run_program([sanitized("address"), "5"], env={"LD_PRELOAD": LIBRARY})
        self.assertIn(b"ASan runtime does not come first", finished.stderr)

    @unittest.skipUnless(os.path.exists(sanitized("address")), "no AddressSanitizer")
    @hazard("a launcher on the command line starts a program built with AddressSanitizer", sees="launcher and program start", counted="everything is recorded; one line says that the probe is not preloaded")
    def test_launcher_of_a_sanitized_program(self):
        finished = self.under_run("env", "A=1", "nice", "-n", "0", sanitized("address"), "5")
        self.assertEqual((finished.returncode, finished.stdout), (3, b"copied 5 times\n"), str(finished))
        self.assertIn(b"AddressSanitizer", finished.stderr)
        self.assertEqual(self.copies(), 5)

    @unittest.skipUnless(os.path.exists(sanitized("address")), "no AddressSanitizer")
    @hazard("a script starts a program built with AddressSanitizer, which cannot be seen from outside", sees="with --no-preload the program starts",
            counted="everything is recorded")
    def test_script_that_starts_a_sanitized_program(self):
        finished = self.under_run("/bin/sh", "-c", f"{sanitized('address')} 5", options=["--no-preload"])
        self.assertEqual((finished.returncode, finished.stdout), (3, b"copied 5 times\n"), str(finished))
        self.assertNotIn(b"AddressSanitizer", finished.stderr)
        self.assertEqual(self.copies(), 5)

    @unittest.skipUnless(shutil.which("musl-gcc"), "no musl-gcc: install musl-tools")
    @hazard("a program built for musl, which cannot load the probe, under `gpuprobe run`", sees="starts and ends as without the probe", counted="one line says that the probe is not preloaded")
    def test_musl(self):
        source, program = self.path("hello.c"), self.path("hello")
        with open(source, "w", encoding="utf-8") as file:
            file.write('#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n')
        subprocess.run(["musl-gcc", source, "-o", program], check=True)
        finished = self.under_run(program)
        self.assertEqual((finished.returncode, finished.stdout), (3, b"hello\n"), str(finished))
        self.assertIn(b"is built for musl", finished.stderr)
        with open(self.path("script"), "w", encoding="utf-8") as file:
            file.write(f"#!{program} -x\n")
        os.chmod(self.path("script"), 0o755)
        finished = self.under_run(self.path("script"))
        self.assertEqual((finished.returncode, finished.stdout), (3, b"hello\n"), str(finished))
        self.assertIn(b"is built for musl", finished.stderr)

    def elf(self, name, machine, offset=64, count=1, size=56, elf_class=2, body=b""):
        """The head of an ELF program, as wrong as wanted."""
        header = b"\x7fELF" + bytes([elf_class, 1, 1]) + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, offset, 0, 0, 64, size, count, 0, 0, 0)
        with open(self.path(name), "wb") as file:
            file.write(header + body)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    @hazard("a program of another architecture under `gpuprobe run`", sees="the kernel's own error, without a loader message about the probe", counted="one line says that the probe is not preloaded")
    def test_other_architecture(self):
        other = self.elf("other", 8)
        plain = self.run_program(["/usr/bin/env", other])
        finished = self.under_run("/usr/bin/env", other)
        self.assertEqual(finished.returncode, plain.returncode, str(finished))
        self.assertIn(b"another architecture", finished.stderr)
        self.assertNotIn(b"ld.so", finished.stderr)

    @hazard("the command is a damaged ELF file", sees="the kernel's own error", counted="no message and no crash of `gpuprobe`")
    def test_damaged_programs(self):
        interpreter = struct.pack("<IIQQQQQQ", 3, 4, 1 << 62, 0, 0, 1 << 62, 1 << 62, 1)
        dynamic = struct.pack("<IIQQQQQQ", 2, 4, 8, 0, 0, 1 << 63, 1 << 63, 1)
        damaged = {"no-headers": {"offset": 1 << 63}, "many-headers": {"count": 65535}, "odd-size": {"size": 1}, "cut": {"count": 5},
                   "interpreter": {"body": interpreter}, "dynamic": {"body": dynamic}, "empty": {"count": 0}}
        machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
        for name, how in damaged.items():
            with self.subTest(name=name):
                program = self.elf(name, machine, **how)
                plain = self.run_program(["/usr/bin/env", program])
                finished = self.under_run("/usr/bin/env", program)
                self.assertEqual((finished.returncode, finished.stdout), (plain.returncode, plain.stdout), str(finished))
                self.assertNotIn(b"not preloaded", finished.stderr)


if __name__ == "__main__":
    harness.main()
