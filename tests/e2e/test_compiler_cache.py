"""The builds' compiler cache: a precompiled header from it matches the headers that it was made from."""
import os
import shutil
import subprocess
import unittest

import harness

LAUNCHER = os.path.join(harness.SOURCE, "scripts", "cmake", "ccache.sh")


@unittest.skipUnless(shutil.which("ccache") and shutil.which("g++"), "no ccache or g++")
class CompilerCache(harness.EndToEndTest):

    def ccache(self, *command):
        env = {**os.environ, "CCACHE_DIR": self.path("cache"), "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}
        return subprocess.run(command, cwd=self.cwd, env=env, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()

    def compile(self, *arguments):
        self.ccache(LAUNCHER, "ccache", "g++", "-fpch-preprocess", "-Winvalid-pch", *arguments)

    def value_after_build(self, value, comment="", program="int main() { return kValue; }\n"):
        """Builds as CMake and ninja do: the precompiled header of the last build is still there."""
        header = f"// {comment}\n#pragma once\nenum {{ kValue = {value} }};\n"
        for name, text in (("value.h", header), ("pch.hxx", '#include "value.h"\n'), ("pch.cxx", ""),
                           ("program.cc", f'#include "value.h"\n{program}')):
            with open(os.path.join(self.cwd, name), "w", encoding="utf-8") as file:
                file.write(text)
        self.compile("-x", "c++-header", "-include", "pch.hxx", "-MD", "-MT", "pch.hxx.gch", "-MF", "pch.d",
                     "-o", "pch.hxx.gch", "-c", "pch.cxx")
        self.compile("-include", "pch.hxx", "-o", "program.o", "-c", "program.cc")
        subprocess.run(["g++", "-o", "program", "program.o"], cwd=self.cwd, check=True, timeout=60)
        return subprocess.run([os.path.join(self.cwd, "program")], check=False, timeout=60).returncode

    def hits(self):
        counts = dict(line.split("\t") for line in self.ccache("ccache", "--print-stats").splitlines())
        return int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])

    def test_a_precompiled_header_follows_its_headers(self):
        for values in ((1, 2), (1, 3), (1, 4)):  # a fresh checkout each time, then a changed header
            with self.subTest(values=values):
                if os.path.exists(os.path.join(self.cwd, "pch.hxx.gch")):
                    os.unlink(os.path.join(self.cwd, "pch.hxx.gch"))
                self.assertEqual(tuple(map(self.value_after_build, values)), values)
        self.assertEqual(self.hits(), 4, "header and program of the second and third fresh checkout")

    def test_a_header_whose_comment_changed_is_included_once(self):
        self.assertEqual(self.value_after_build(1, "one word"), 1)
        self.assertEqual(self.value_after_build(1, "more words", "int main() { return kValue + 4; }\n"), 5)


if __name__ == "__main__":
    harness.main()
