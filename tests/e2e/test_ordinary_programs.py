"""Some three hundred programs of the distribution do the same with the library preloaded as without: output, status, files, children."""
import concurrent.futures
import os
import shutil

import differential
import harness
import ordinary_programs
from differential import INJECTION, LIBRARY, PRELOAD
from hazards import hazard

WAYS = {"preloaded": PRELOAD, "preloaded and injected": {**PRELOAD, **INJECTION}}
# ORDINARY_PROGRAMS=perl,git runs only those.
CHOSEN = [name for name in os.environ.get("ORDINARY_PROGRAMS", "").split(",") if name]
# What a machine has that installs what install-deps.sh lists: far fewer would mean that the table has broken.
FEWEST = 150
AT_ONCE = 2
# Of a command that shows what changes without the library.
TRIES = 3


class OrdinaryPrograms(harness.EndToEndTest):

    def commands(self):
        for name, commands in ordinary_programs.PROGRAMS.items():
            if (not CHOSEN or name in CHOSEN) and differential.installed(name):
                for number, command in enumerate(commands):
                    if all(map(differential.installed, command.needs)):
                        yield f"{name}-{number}", command

    def compare(self, name, command):
        """Lines that say what differs: first of two runs without the library, then of one in each way with it. What shows the minute of the clock, say,
        differs without the library too, where a run before the others and one after them are compared: then all are run again."""
        place = differential.Place(self, name, ordinary_programs.create_files)

        def once(extra):
            return differential.seen(place.run(command.shell, extra), command.volatile, command.content)
        try:
            for _ in range(TRIES):
                plain = once({})
                found = [f"without the library, in a second run: {line}" for line in differential.differences(plain, once({}))]
                for way, extra in WAYS.items() if not found else ():
                    found += [f"{way}: {line}" for line in differential.differences(plain, once(extra))]
                if not found or not differential.differences(plain, once({})):
                    break
        finally:
            shutil.rmtree(place.folder, ignore_errors=True)
        return [f"{name}: {line}" for line in found]

    @hazard("three hundred programs of the distribution are preloaded: shells, interpreters, compilers, debuggers, databases, MPI",
            sees="output, status, files, and what children inherit are unchanged, but for the variables that name the library", counted="nothing to report")
    def test_they_do_the_same(self):
        commands = list(self.commands())
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = [line for lines in pool.map(lambda each: self.compare(*each), commands) for line in lines]
        programs = len({name.rpartition("-")[0] for name, _ in commands})
        print(f"{programs} of {len(ordinary_programs.PROGRAMS)} programs are installed; {len(commands)} commands ran.")
        self.assertEqual(found, [], "\n".join(found))
        if not CHOSEN:
            self.assertGreaterEqual(programs, FEWEST)

    def test_differences_are_noticed(self):
        """One variable more, one descriptor more, another status: the test above can fail."""
        place = differential.Place(self, "noticed", ordinary_programs.create_files)

        def once(extra, shell="child_view"):
            return differential.seen(place.run(shell, extra))
        plain = once({})
        self.assertEqual(differential.differences(plain, once(PRELOAD)), [])
        self.assertEqual(differential.differences(plain, once({"LD_PRELOAD": LIBRARY, "MORE": "1"})), ["standard output: + MORE=1"])
        self.assertRegex(differential.differences(plain, once({}, "exec 9< words; child_view"))[0], r"standard output: \+ descriptor 9 file")
        self.assertEqual(differential.differences(plain, once({}, "child_view; exit 3")), ["status: - 0", "status: + 3"])
        self.assertIn("processes left behind: + sleep", differential.differences(plain, once({}, "sleep 60 & child_view")))
        self.assert_nothing_runs()


if __name__ == "__main__":
    harness.main()
