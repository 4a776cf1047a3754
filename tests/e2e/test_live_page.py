"""A run over HTTP: while it is recorded, and when it is over. Who may read it, and who cannot harm it."""
import contextlib
import http.client
import json
import os
import re
import select
import signal
import socket
import time
import unittest

import harness
from harness import GPUPROBE, wait_until

def take_connections(port, report):
    """Opens connections as fast as they are taken and holds them, each in one of three ways: says nothing, sends a request byte by byte, or follows
    the events and reads nothing. Writes a byte to `report` once it has tried often; never returns."""
    held, tried = [], 0
    while True:
        for _ in range(20):
            one = socket.socket()
            one.settimeout(5)
            try:
                one.connect(("127.0.0.1", port))
                if tried % 3 == 2:
                    one.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                one.setblocking(False)
                held.append((one, tried % 3))
            except OSError:
                one.close()
            tried += 1
            if tried == 600:
                os.write(report, b".")
        for one, way in list(held):
            try:
                if way == 1:
                    one.send(b"G")
                if way == 2 or one.recv(4096) != b"":
                    continue
            except BlockingIOError:
                continue
            except OSError:
                pass
            one.close()
            held.remove((one, way))
        time.sleep(0.02)


def ask_how_it_is(port, report):
    """Asks twenty times, and writes a byte for each good answer."""
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/healthz")
        if connection.getresponse().status == 200:
            os.write(report, b".")
        connection.close()


class LivePage(harness.EndToEndTest):

    def serving(self, command):
        """Starts it, and returns the program and its port."""
        program = self.start(command)
        found = wait_until(lambda: re.search(rb"http://127\.0\.0\.1:(\d+)", program.so_far()) or not program.alive(), "address")
        self.assertTrue(program.alive(), program.so_far())
        return program, int(found[1])

    def get(self, port, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), response

    def recorded(self):
        out = self.path("recorded")
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-late", "--ranks", "4", "--steps", "60", "--out", out])
        return out

    def test_a_finished_run_is_what_its_report_says(self):
        out = self.recorded()
        program, port = self.serving([GPUPROBE, "report", out, "--serve", "127.0.0.1:0"])
        for path, name in (("/api/report", "report.json"), ("/api/summary", "summary.json")):
            self.assertEqual(self.get(port, path)[1], harness.read_file(os.path.join(out, name)), path)
        self.assertEqual(self.get(port, "/api/text")[1] + f"\n page: {out}/report.html\n".encode(), self.run_well([GPUPROBE, "report", out]).stdout)
        self.assertEqual(self.run_well([GPUPROBE, "report", f"http://127.0.0.1:{port}"]).stdout, self.get(port, "/api/text")[1])
        page = json.loads(re.search(r'id="page-data">(.*?)</script>', harness.read_file(os.path.join(out, "report.html")).decode(), re.DOTALL)[1])
        self.assertEqual(json.loads(self.get(port, "/api/page-data")[1]), page)
        self.assertIn(b"event: end", self.get(port, "/events")[1])
        self.assertIn(b"gpuprobe_ranks 4\n", self.get(port, "/metrics")[1])
        self.assertEqual(self.get(port, "/readyz")[0], 200)
        program.signal(15)
        self.assertEqual(program.wait().returncode, 0)

    def test_any_step_of_a_served_run_has_a_timeline(self):
        out = self.recorded()
        program, port = self.serving([GPUPROBE, "report", out, "--serve", "127.0.0.1:0"])

        def shown():
            return {timeline["step"]: timeline for timeline in json.loads(self.get(port, "/api/page-data")[1])["timelines"]}

        before = shown()
        others = [step for step in range(60) if step not in before][:5]
        for step in others:
            status, answer, _ = self.get(port, f"/api/timeline?step={step}")
            self.assertEqual((status, json.loads(answer)["step"]), (200, step))
            timeline = shown()[step]
            self.assertEqual([len(rank["slices"]["track"]) > 50 for rank in timeline["ranks"]], [True] * 4)
        self.assertEqual(set(shown()), set(before) | set(others[1:]), "the last four")
        self.assertEqual(self.get(port, "/api/timeline?step=100000")[0], 200)
        self.assertEqual(set(shown()), set(before) | set(others[2:]), "there is no such step")
        for wrong in ("/api/timeline", "/api/timeline?step=-1", "/api/timeline?step=x"):
            status, answer, _ = self.get(port, wrong)
            self.assertEqual(status, 400)
            self.assertIn("/api/timeline?step=N", json.loads(answer)["error"])
        program.signal(15)
        self.assertEqual(program.wait().returncode, 0)

    def test_only_who_may_reads_it(self):
        out = self.recorded()
        program, port = self.serving([GPUPROBE, "report", out, "--serve", "127.0.0.1:0"])
        self.assertEqual(self.get(port, "/api/report", Host="evil.example")[0], 403)
        self.assertEqual(self.get(port, "/api/report", Host="localhost:1")[0], 200)
        self.assertIn("default-src 'none'", self.get(port, "/")[2].getheader("Content-Security-Policy"))
        busy = self.run_program([GPUPROBE, "report", out, "--serve", f"127.0.0.1:{port}"])
        self.assertEqual((busy.returncode, busy.stderr.count(b"\n")), (1, 1), busy)
        self.assertIn(b"already in use", busy.stderr)
        open_to_all = self.run_program([GPUPROBE, "report", out, "--serve", "0.0.0.0:0"])
        self.assertEqual(open_to_all.returncode, 1)
        self.assertIn(b"--http-token", open_to_all.stderr)
        program.signal(15)
        program.wait()
        token = self.path("token")
        with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        program, port = self.serving([GPUPROBE, "report", out, "--serve", "127.0.0.1:0", "--http-token", token])
        self.assertEqual(self.get(port, "/api/report")[0], 401)
        self.assertEqual(self.get(port, "/api/report", Authorization="Bearer 0123456789abcdef0123456789abcdee")[0], 401)
        self.assertEqual(self.get(port, "/api/report", Authorization="Bearer 0123456789abcdef0123456789abcdef")[0], 200)
        status, _, response = self.get(port, "/?token=0123456789abcdef0123456789abcdef")
        self.assertEqual((status, response.getheader("Location")), (303, "/"))
        self.assertEqual(self.get(port, "/api/report", Cookie=response.getheader("Set-Cookie").split(";")[0])[0], 200)
        self.assertEqual(self.get(port, "/healthz")[0], 200)
        program.signal(15)
        self.assertEqual(program.wait().returncode, 0)

    def test_follows_a_run_with_fifty_viewers_and_one_that_never_reads(self):
        collector = harness.Collector(self, arguments=["--http", "127.0.0.1:0"])
        port = int(re.search(rb"http://127\.0\.0\.1:(\d+)", wait_until(
            lambda: collector.program.so_far() if b"http://" in collector.program.so_far() else None, "address"))[1])
        viewers = [socket.create_connection(("127.0.0.1", port)) for _ in range(51)]
        for viewer in viewers:
            viewer.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.addCleanup(viewer.close)
        never_reads = viewers.pop()
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-late", "--ranks", "4", "--steps", "60", "--socket", collector.socket])
        wait_until(lambda: json.loads(self.get(port, "/api/status")[1])["steps"] >= 50, "steps in the status")
        wait_until(lambda: self.get(port, "/api/report")[0] == 200, "report")
        wait_until(lambda: (json.loads(self.get(port, "/api/report")[1])["steps"] or {"count": 0})["count"] >= 50, "steps in the report")
        self.assertIn(b"gpuprobe_http_viewers 51\n", self.get(port, "/metrics")[1])
        collector.program.signal(15)
        for viewer in viewers:
            viewer.settimeout(60)
            seen = b""
            while b"event: end" not in seen:
                data = viewer.recv(65536)
                self.assertTrue(data, seen[-500:])
                seen += data
            self.assertIn(b"event: documents", seen)
            viewer.close()
        never_reads.close()
        self.assertEqual(collector.program.wait().returncode, 0)
        self.assert_no_loss(self.report(collector.out))

    def as_user(self, uid, action, port):
        """Runs `action` in a child process of that user; returns its pid and what it reports to."""
        report, end = os.pipe()
        self.addCleanup(os.close, report)
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
                action(port, end)
            finally:
                os._exit(0)
        os.close(end)
        return pid, report

    def end(self, pid):
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as several users")
    def test_other_users_who_take_every_connection(self):
        """The owner is served as if they were not there, and health checks are answered for everyone."""
        recorded = self.recorded()
        for users in (1, 6):
            with self.subTest(users=users):
                program, port = self.serving([GPUPROBE, "report", recorded, "--serve", "127.0.0.1:0"])
                takers = [self.as_user(12300 + number, take_connections, port) for number in range(users)]
                for pid, report in takers:
                    self.addCleanup(self.end, pid)
                    self.assertTrue(select.select([report], [], [], 60)[0] and os.read(report, 1), "they did not come far enough")
                for _ in range(20):
                    for path in ("/api/report", "/metrics", "/healthz"):
                        self.assertEqual(self.get(port, path)[0], 200, path)
                self.assertIn(b"event: end", self.get(port, "/events")[1])
                pid, report = self.as_user(12399, ask_how_it_is, port)
                os.waitpid(pid, 0)
                self.assertEqual(os.read(report, 100), b"." * 20)
                self.assertGreater(int(re.search(rb"\ngpuprobe_http_refused_total (\d+)", self.get(port, "/metrics")[1])[1]), 0)
                for pid, _ in takers:
                    self.end(pid)
                program.signal(15)
                self.assertEqual(program.wait().returncode, 0)


if __name__ == "__main__":
    harness.main()
