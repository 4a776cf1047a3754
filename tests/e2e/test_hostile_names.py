"""Names that a program, a file or a client chose do nothing to whoever reads them: a terminal, a spreadsheet, a scraper, a parser of JSON."""
import contextlib
import csv
import http.client
import io
import json
import os
import re
import unicodedata

import harness
import wire
from harness import BUILD, GPUPROBE, wait_until
from hazards import hazard

NAMED_RANGES = os.path.join(BUILD, "tests", "e2e", "named_ranges")
# An escape sequence, its 8-bit form, marks that turn text around, a bell, a line that looks like ours, bytes that are not UTF-8.
OBEYED = ("\x1b]0;title\x07", "\x9b2J", "\u202egpj.exe", "a\u2066b\u2069", "two\nlines", "back\b\b\bspace", "\x7f", "\u061c\u200f\u2028")
FORMULAS = ("=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", '=HYPERLINK("http://x","y")', "+.", "-e1")
NAMES = [name.encode() for name in OBEYED + FORMULAS] + [b"cut\xc3", b"\xff\xfe", b"\xed\xa0\x80", b"-12.5", b"plain"]


def obeyed_in(text, lines=True):
    """Characters of `text` that a terminal obeys."""
    return sorted({hex(ord(c)) for c in text if (unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and not (lines and c == "\n"))})


class HostileNames(harness.EndToEndTest):

    def recorded(self):
        out = self.path("run-directory")
        program = self.path("\x1b]0;x\x07\x9bprogram\u202e")
        os.symlink(NAMED_RANGES, program)
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", program, *(name.hex() for name in NAMES)], env=harness.PATIENT)
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_harmless(finished)
        return out

    def assert_harmless(self, finished, line_ends=b""):
        for stream in (finished.stdout.replace(line_ends, b"") if line_ends else finished.stdout, finished.stderr):
            text = stream.decode("utf-8")  # strictly
            self.assertEqual(obeyed_in(text), [], str(finished))

    @hazard("names of ranges and programs contain escape sequences, marks that turn text around, line ends, and bytes that are not UTF-8", sees="no difference",
            counted="no command that reads the run writes one of them to a terminal; JSON has them as `\\u` escapes")
    def test_names_of_a_program_on_a_terminal(self):
        run = self.recorded()
        everything = "SELECT * FROM range"
        for command in (["report", run], ["report", run, "--json"], ["report", run, "--ranks"], ["export", run], ["export", run, "--format", "steps"],
                        ["query", run, everything], ["query", run, everything, "--format", "jsonl"], ["query", run, "SELECT * FROM rank"],
                        ["query", run, "SELECT name AS \"a\x1b[2J\" FROM range"], ["query", run, "--schema"], ["diff", run, run], ["diff", run, run, "--json"],
                        ["top", run, "--once"], ["trace", run, "-o", self.path("trace")], ["trace", run, "--format", "chrome", "-o", self.path("chrome")]):
            with self.subTest(command=command):
                self.assert_harmless(self.run_program([GPUPROBE, *command]))
        self.assert_harmless(self.run_program([GPUPROBE, "query", run, everything, "--format", "csv"]), line_ends=b"\r")
        # Nothing is lost for whoever parses it.
        ranges = [record["name"] for record in self.export(run) if record["kind"] == "range"]
        self.assertEqual(ranges, [name.decode("utf-8", "replace") if name != b"\xed\xa0\x80" else "\ufffd" * 3 for name in NAMES])

    @hazard("the names of files and folders that a command is given contain escape sequences", sees="-", counted="the line that says what is wrong has `?` in their place")
    def test_names_of_files_on_a_terminal(self):
        run = self.recorded()
        for hostile in ("\x1b]0;x\x07", "\x9b2J", "\u202ex"):
            missing = self.path("no" + hostile)
            for command in (["report", missing], ["export", missing], ["diff", missing, run], ["top", missing, "--once"], ["trace", missing, "-o", self.path("t")],
                            ["query", missing, "SELECT 1"], ["report", run, missing], ["export", run, "--format", "csv", "-o", os.path.join(missing, "x\n", "y")], [hostile]):
                with self.subTest(command=command):
                    self.assert_harmless(self.run_program([GPUPROBE, *command]))
            damaged = self.path("damaged" + hostile)
            os.mkdir(damaged)
            log, = (name for name in os.listdir(run) if name.endswith(".gpr"))
            with open(os.path.join(damaged, f"rank-{hostile}.gpr"), "wb") as file:
                file.write(harness.read_file(os.path.join(run, log))[:-40])
            for command in ("report", "export", "top", "trace", "query", "diff"):
                arguments = {"query": ["SELECT 1"], "diff": [run], "trace": ["-o", self.path("t")], "top": ["--once"]}.get(command, [])
                with self.subTest(command=command):
                    self.assert_harmless(self.run_program([GPUPROBE, command, damaged, *arguments]))

    @hazard("names of ranges look like formulas to a spreadsheet", sees="no difference", counted="they have an apostrophe in front in CSV, and numbers stay numbers")
    def test_names_that_look_like_formulas(self):
        run = self.recorded()
        self.run_well([GPUPROBE, "export", run, "--format", "csv", "--out", self.path("tables")])
        printed = self.run_well([GPUPROBE, "query", run, "SELECT name, -1 AS n, -1.5e-7 AS m FROM range", "--format", "csv"]).stdout.decode()
        tables = {"query": printed}
        for name in os.listdir(self.path("tables")):
            tables[name] = harness.read_file(self.path("tables", name)).decode()
        for name, text in tables.items():
            with self.subTest(table=name):
                self.assertEqual(obeyed_in(text.replace("\r\n", "")), [])
                for row in csv.reader(io.StringIO(text)):
                    for cell in row:
                        if not re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", cell):
                            self.assertNotRegex(cell, r"^[ ]*[=+\-@\uff1d\uff0b\uff0d\uff20]", row)
        rows = list(csv.DictReader(io.StringIO(printed)))
        self.assertEqual({(row["n"], row["m"]) for row in rows}, {("-1", "-1.5e-07")})
        names = [row["name"] for row in rows]
        self.assertIn("'=1+1", names)
        self.assertIn("-12.5", names)
        self.assertIn("plain", names)
        self.assertIn("'?=1", names)

    def test_metrics_of_a_client_with_a_hostile_host(self):
        collector = harness.Collector(self, arguments=["--http", "127.0.0.1:0"])
        port = int(wait_until(lambda: re.search(rb"http://127\.0\.0\.1:(\d+)", collector.program.so_far()), "address")[1])
        hosts = (b"cut\xc3", b"cut\xc2", b"\xff", b"a\x1b[2J", "\u202ex".encode(), b'quote"\\', b"two\nlines")
        clients = []
        for number, host in enumerate(hosts):
            named = wire.hello(rank=number, world_size=len(hosts), pid=5000 + number).replace(
                wire.block(6, wire.socket.gethostname()), wire.block(6, b"H" * len(wire.socket.gethostname())))
            hello = named.replace(b"H" * len(wire.socket.gethostname()), (host * 40)[:len(wire.socket.gethostname())]) if host not in hosts[:2] else named.replace(
                b"H" * len(wire.socket.gethostname()), b"h" * (len(wire.socket.gethostname()) - 1) + host[-1:])
            client = wire.connect(collector.socket)
            self.addCleanup(client.close)
            client.sendall(wire.delimited(hello))
            clients.append(client)

        def metrics(accept):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", "/metrics", headers={"Accept": accept})
                return connection.getresponse().read()

        wait_until(lambda: b"\ngpuprobe_ranks " in metrics("text/plain") and b"\ngpuprobe_ranks 0\n" not in metrics("text/plain"), "ranks")
        for accept in ("text/plain", "application/openmetrics-text; version=1.0.0"):
            text = metrics(accept).decode("utf-8")  # strictly
            self.assertEqual(obeyed_in(text), [])
            series = [line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")]
            self.assertEqual(len(series), len(set(series)), "a series is there twice")
        for path in ("/api/status", "/api/report"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", path)
                body = connection.getresponse().read()
            json.loads(body.decode("utf-8"))
            self.assertEqual(obeyed_in(body.decode("utf-8")), [])
        collector.stop()


if __name__ == "__main__":
    harness.main()
