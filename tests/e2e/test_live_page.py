"""A run over HTTP: while it is recorded, and when it is over. Who may read it, and who cannot harm it."""
import contextlib
import http.client
import json
import os
import re
import socket

import harness
from harness import GPUPROBE, wait_until


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
        page = json.loads(re.search(r'id="page-data">(.*?)</script>', harness.read_file(os.path.join(out, "report.html")).decode(), re.DOTALL)[1])
        self.assertEqual(json.loads(self.get(port, "/api/page-data")[1]), page)
        self.assertIn(b"event: end", self.get(port, "/events")[1])
        self.assertIn(b"gpuprobe_ranks 4\n", self.get(port, "/metrics")[1])
        self.assertEqual(self.get(port, "/readyz")[0], 200)
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


if __name__ == "__main__":
    harness.main()
