"""Interpreters and tools that start CUDA from a module and then change their environment, have children, close descriptors: the same with the probe as without."""
import concurrent.futures
import os
import re
import shutil

import differential
import harness
import interpreters
import ordinary_programs
from differential import INJECTION, PRELOAD
from hazards import hazard

# INTERPRETERS="python under MPI,gcc" runs only those.
CHOSEN = [name for name in os.environ.get("INTERPRETERS", "").split(",") if name]
FEWEST = 10
AT_ONCE = 2
KERNELS_PER_CALL = 10
WAYS = {"injected": INJECTION, "preloaded": {**PRELOAD, **INJECTION}}
# A line says where the collector records to, and its socket was in a folder of ours.
AUTOSTARTED = r"gpuprobe: recording to |run/gpuprobe(/|$)"


class Interpreters(harness.EndToEndTest):

    def scripts(self):
        for name, interpreter in interpreters.INTERPRETERS.items():
            if (not CHOSEN or name in CHOSEN) and differential.installed(interpreter.program):
                yield name, interpreter

    def compare(self, name, interpreter):
        """Lines that say what differs from the same script without the probe, and how much of its work was recorded."""
        def fill(folder):
            ordinary_programs.create_files(folder)
            with open(os.path.join(folder, interpreter.file), "w", encoding="utf-8") as file:
                file.write(interpreter.script.lstrip("\n"))
        place = differential.Place(self, re.sub(r"\W+", "-", name), fill)
        try:
            found = self.collected(place, interpreter) + self.autostarted(place, interpreter)
        finally:
            shutil.rmtree(place.folder, ignore_errors=True)
        return [f"{name}: {line}" for line in found]

    def collected(self, place, interpreter):
        """Without a collector, and with one that was there before."""
        socket = f"{place.folder}.sock"
        # The same in all runs, so that children inherit the same.
        settings = {"GPUPROBE_SOCKET": socket, "GPUPROBE_AUTOSTART": "0", **harness.PATIENT}

        def once(extra):
            return differential.seen(place.run(interpreter.command, {**settings, **extra}), interpreter.volatile)
        plain = once({})
        found = [f"without the probe, in a second run: {line}" for line in differential.differences(plain, once({}))]
        for way, extra in WAYS.items():
            found += [f"{way}: {line}" for line in differential.differences(plain, once(extra))]
            collector = harness.Collector(self, f"{place.folder}-{way}", socket=socket)
            found += [f"{way} and collected: {line}" for line in differential.differences(plain, once(extra))]
            collector.stop()
            found += [f"{way} and collected: {line}" for line in self.missing(collector.out, interpreter)]
        return found

    def autostarted(self, place, interpreter):
        """The program starts its collector itself, which must not become its child."""
        out = f"{place.folder}-autostarted"
        settings = {"GPUPROBE_OUT": out, **harness.PATIENT}

        def once(extra):
            # The collector waits for a while for those that have not said that they end.
            result = place.run(interpreter.command, {**settings, **extra}, patience_s=60)
            return differential.seen(result, interpreter.volatile, without=AUTOSTARTED)
        found = differential.differences(once({}), once(INJECTION))
        return [f"autostarted: {line}" for line in found + self.missing(out, interpreter)]

    def missing(self, out, interpreter):
        if interpreter.cuda is None:
            return []
        # Nobody came: there is no run directory.
        kernels = sum(rank["kernels"]["count"] for rank in self.report(out)["ranks"]) if os.path.isdir(out) else 0
        expected = interpreter.cuda * KERNELS_PER_CALL
        return [] if kernels == expected else [f"{kernels} kernels recorded of {expected}"]

    @hazard("an interpreter starts CUDA from a module, then changes its environment, has children, closes descriptors: perl, python, ruby, php, node, java, lua, tcl, bash, make, vim",
            sees="output, status, files, and what children inherit are unchanged, but for the variables that name the library", counted="every kernel is recorded")
    def test_they_do_the_same(self):
        scripts = list(self.scripts())
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = [line for lines in pool.map(lambda each: self.compare(*each), scripts) for line in lines]
        print(f"{len(scripts)} of {len(interpreters.INTERPRETERS)} scripts ran.")
        self.assertEqual(found, [], "\n".join(found))
        if not CHOSEN:
            self.assertGreaterEqual(len(scripts), FEWEST)


if __name__ == "__main__":
    harness.main()
