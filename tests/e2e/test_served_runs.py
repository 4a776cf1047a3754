"""Commands that read a run directory read the URL of a served run as well, and nothing of the copy is left."""
import http.server
import json
import os
import re
import signal
import socket
import threading

import harness
from harness import GPUPROBE, wait_until


def logs_of(run):
    return {name: harness.read_file(os.path.join(run, name)) for name in os.listdir(run) if name.endswith(".gpr")}


def listing(files):
    return json.dumps({"files": [{"name": name, "bytes": len(data)} for name, data in files.items()]}).encode()


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` as a run, or whatever else it is made to."""
    daemon_threads = True

    def __init__(self, files, listed=None):
        self.files, self.asked = files, []
        self.listed = listing(files) if listed is None else listed
        self.most = None  # of a file in one answer, which then breaks off
        self.goes_on = threading.Event()
        self.goes_on.set()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def do_GET(self):  # pylint: disable=invalid-name
        path, _, query = self.path.partition("?")
        if path == "/api/files":
            return self.answer(self.server.listed)
        self.server.asked.append(self.path)
        if path not in (f"/api/files/{name}" for name in self.server.files):
            return self.send_error(404)
        self.server.goes_on.wait()
        data = self.server.files[path.removeprefix("/api/files/")][int(query.removeprefix("from=")):]
        return self.answer(data, self.server.most)

    def answer(self, data, most=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:most])
        self.close_connection = True


class ServedRuns(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        self.copies = self.path("copies")
        os.mkdir(self.copies)

    def env(self, extra=None, devices=1, sim_lib=None):
        return super().env({"TMPDIR": self.path("copies"), **(extra or {})}, devices, sim_lib)

    def recorded(self, name, *options):
        out = self.path(name)
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-late", "--ranks", "4", "--steps", "60", "--out", out, *options])
        return out

    def serve(self, *directories):
        program = self.start([GPUPROBE, "report", *directories, "--serve", "127.0.0.1:0"])
        found = wait_until(lambda: re.search(rb"http://127\.0\.0\.1:\d+", program.so_far()) or not program.alive(), "address")
        return found[0].decode()

    def assert_nothing_is_left(self):
        self.assertEqual(os.listdir(self.copies), [])

    def output(self, command, run):
        """What it prints and writes."""
        out = self.path("written")
        finished = self.run_well([GPUPROBE, *(word.format(run=run, out=out) for word in command)])
        written = {}
        for folder, _, names in os.walk(out):
            written.update({name: harness.read_file(os.path.join(folder, name)) for name in names})
        if os.path.isfile(out):
            written = {"": harness.read_file(out)}
        if "{out}" in command:
            self.assertTrue(written)
            self.run_well(["rm", "-r", out])
        return finished.stdout.replace(run.encode(), b"RUN"), written

    def test_every_command_says_the_same_of_both(self):
        run = self.recorded("run")
        other = self.recorded("other", "--seed", "7")
        url = self.serve(run)
        sql = "SELECT rank, count(*), sum(end_ns - start_ns) FROM kernel GROUP BY rank ORDER BY rank"
        for command in (("query", "{run}", sql), ("query", "{run}", "--schema"), ("trace", "{run}", "-o", "{out}"), ("trace", "{run}", "-o", "{out}", "--format", "chrome", "--ranks", "2"),
                        ("trace", "{run}", "--around", "straggler-slow-gpu", "-o", "{out}"), ("diff", other, "{run}"), ("diff", "{run}", other, "--json"),
                        ("export", "{run}"), ("export", "{run}", "--format", "steps"), ("export", "{run}", "--format", "csv", "--out", "{out}"),
                        ("report", "{run}", "--html"), ("report", "{run}", "--json", "--steps")):
            with self.subTest(command=command):
                self.assertEqual(self.output(command, url), self.output(command, run))
                self.assert_nothing_is_left()

    def test_hosts_of_a_job(self):
        """The folders of hosts are kept; directories that were put together for a report become such folders."""
        of_hosts = self.path("job")
        os.mkdir(of_hosts)
        halves = [self.recorded("job/n1", "--ranks-per-host", "2"), self.recorded("odd name")]
        with self.subTest("folders"):
            url = self.serve(of_hosts)
            self.assertEqual(self.output(("query", "{run}", "SELECT rank, count(*) FROM kernel GROUP BY rank"), url), self.output(("query", "{run}", "SELECT rank, count(*) FROM kernel GROUP BY rank"), of_hosts))
        with self.subTest("put together"):
            count = ("query", "{run}", "SELECT count(*) FROM kernel")
            both = [int(self.output(count, half)[0].split()[-1]) for half in halves]
            self.assertEqual(int(self.output(count, self.serve(*halves))[0].split()[-1]), sum(both))
        self.assert_nothing_is_left()

    def test_an_answer_that_breaks_off_is_continued(self):
        run = self.recorded("run")
        server = Server(logs_of(run))
        server.most = 10_000
        self.assertEqual(self.output(("export", "{run}"), server.url), self.output(("export", "{run}"), run))
        self.assertTrue(any(path.endswith("from=10000") for path in server.asked), server.asked)
        server.most = 0
        finished = self.run_program([GPUPROBE, "export", server.url])
        self.assertEqual((finished.returncode, finished.stderr), (1, f"gpuprobe: export: {server.url} stopped in the middle of an answer\n".encode()))
        self.assert_nothing_is_left()

    def test_a_file_that_goes_meanwhile_is_left_out(self):
        """As where detail is dropped while it is read."""
        run = self.recorded("run")
        files = logs_of(run)
        listed = listing(files)
        del files["rank-3.gpr"]
        rows = self.run_well([GPUPROBE, "query", Server(files, listed).url, "SELECT DISTINCT rank FROM kernel"]).stdout.split()[1:]
        self.assertEqual(rows, [b"0", b"1", b"2"])

    def test_what_a_server_may_not_say(self):
        names = ("../rank-0.gpr", "/tmp/rank-0.gpr", "a/b/rank-0.gpr", ".ssh/rank-0.gpr", "rank-0.sh", "n1/..gpr/x.gpr", "", "a\x1b[2J.gpr")
        lists = [json.dumps({"files": [{"name": name, "bytes": 1}]}).encode() for name in names]
        for listed in (*lists, b"", b"[]", b'{"files":[{"name":1,"bytes":1}]}', b'{"files":[{"name":"rank-0.gpr","bytes":-1}]}', b"\0" * 100_000):
            with self.subTest(listed=listed[:60]):
                server = Server({name: b"x" for name in names}, listed)
                finished = self.run_program([GPUPROBE, "query", server.url, "SELECT 1"])
                self.assertEqual((finished.returncode, finished.stderr), (1, f"gpuprobe: query: {server.url} answers with something else than a list of a run's files\n".encode()))
                self.assertEqual(server.asked, [])
                self.assert_nothing_is_left()
        server = Server({"rank-0.gpr": b"no log"})
        self.assertIn(f"gpuprobe: query: {server.url}: rank-0.gpr is damaged".encode(), self.run_program([GPUPROBE, "query", server.url, "SELECT 1"]).stderr)
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        finished = self.run_program([GPUPROBE, "diff", url, url])
        self.assertEqual((finished.returncode, finished.stderr), (1, f"gpuprobe: diff: {url} does not answer\n".encode()))
        self.assert_nothing_is_left()

    def test_a_server_that_sends_more_than_it_said(self):
        run = self.recorded("run")
        files = logs_of(run)
        server = Server({name: data + b"more" * 100_000 for name, data in files.items()}, listing(files))
        self.assertEqual(self.output(("export", "{run}"), server.url), self.output(("export", "{run}"), run))
        huge = Server(files, json.dumps({"files": [{"name": "rank-0.gpr", "bytes": 1 << 60}, {"name": "rank-1.gpr", "bytes": (1 << 64) - 1}]}).encode())
        finished = self.run_program([GPUPROBE, "export", huge.url])
        self.assertEqual(finished.returncode, 1)
        self.assertRegex(finished.stderr.decode(), rf"^gpuprobe: export: a copy of {re.escape(huge.url)} needs \d\S+ \w+, and {re.escape(self.copies)} has room for [^:]*: "
                                                   r"set TMPDIR to another directory\n$")
        self.assertEqual(huge.asked, [])
        self.assert_nothing_is_left()

    def test_a_signal_leaves_no_copy(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                server = Server({"rank-0.gpr": b"x" * 1000})
                server.goes_on.clear()
                program = self.start([GPUPROBE, "export", server.url])
                wait_until(lambda s=server: s.asked, "copy")
                self.assertEqual(len(os.listdir(self.copies)), 1)
                program.signal(number)
                self.assertEqual(program.wait().returncode, -number)
                self.assert_nothing_is_left()


if __name__ == "__main__":
    harness.main()
