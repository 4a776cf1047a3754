"""Whoever listens where the probe looks for a collector: the program's output and status are those of a run without it, and it is not held up."""
import contextlib
import os
import socket
import struct
import threading
import time
import unittest

import harness
import wire
from harness import CUDA_SCRIPT, LIBRARY
from hazards import hazard

COMMAND = [CUDA_SCRIPT, "print:begin", "kernels:200", "copies:20", "print:end", "return:7"]
STRANGER = 12345


class HostileServers(harness.EndToEndTest):

    @contextlib.contextmanager
    def server(self, converse, uid=None):
        """Listens, as another user if asked, and holds this conversation with each client until the program has ended."""
        path = self.path("hostile.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o666)
        if uid is None:
            listener.listen(8)
        else:
            os.seteuid(uid)
            try:
                listener.listen(8)  # the system notes who listens
            finally:
                os.seteuid(0)
        over = threading.Event()
        clients = []

        def serve():
            while not over.is_set():
                listener.settimeout(0.1)
                try:
                    client = listener.accept()[0]
                except OSError:
                    continue
                client.settimeout(0.1)
                clients.append(client)
                with contextlib.suppress(OSError):
                    converse(client, over)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            over.set()
            thread.join()
            for client in [*clients, listener]:
                client.close()
            os.unlink(path)

    def same_as_without(self, converse, uid=None, says=b"", limit=4.0):
        plain = self.run_program(COMMAND)
        for loading in ("CUDA_INJECTION64_PATH", "LD_PRELOAD"):
            with self.subTest(loading), self.server(converse, uid) as path:
                begin = time.monotonic()
                probed = self.run_program(COMMAND, env={loading: LIBRARY, "GPUPROBE_SOCKET": path, "GPUPROBE_AUTOSTART": "0"})
                self.assertLess(time.monotonic() - begin, limit, "the program was held up")
                self.assertEqual((probed.returncode, probed.stdout), (plain.returncode, plain.stdout), str(probed))
                self.assertEqual(len(probed.stderr.splitlines()), 1 if says else 0, str(probed))
                self.assertIn(says, probed.stderr)

    @hazard("another user listens where the probe looks for a collector", sees="no difference", counted="not a byte is sent; nothing is recorded")
    @unittest.skipUnless(os.geteuid() == 0, "needs root: it listens as another user")
    def test_another_users_collector_gets_nothing(self):
        # Root trusts root only: the listener is a stranger to it.
        received = []

        def listen(client, over):
            while not over.is_set():
                with contextlib.suppress(socket.timeout):
                    data = client.recv(65536)
                    received.append(data)
                    if not data:
                        return
        self.same_as_without(listen, STRANGER)
        self.assertEqual(b"".join(received), b"")

    @hazard("a collector sends garbage", sees="no difference", counted="recording ends")
    def test_garbage(self):
        self.same_as_without(lambda client, over: client.sendall(os.urandom(100_000)))

    @hazard("a collector refuses the program", sees="one line with the reason", counted="nothing is recorded")
    def test_a_refusal(self):
        refusal = wire.delimited(wire.block(4, wire.block(1, "not today")))
        self.same_as_without(lambda client, over: client.sendall(refusal), says=b"refused: not today")

    @hazard("a collector refuses with a megabyte of text, or with control characters", sees="at most one line", counted="nothing is recorded")
    def test_a_refusal_without_end(self):
        refusal = wire.delimited(wire.block(4, wire.block(1, "x" * 1_000_000)))
        self.same_as_without(lambda client, over: client.sendall(refusal))

    @hazard("a collector sends an endless stream of control messages", sees="no difference", counted="its requests are served at most as often as the probe flushes")
    def test_controls_without_end(self):
        controls = wire.delimited(wire.block(4, wire.number(2, 1))) + wire.delimited(wire.block(4, wire.number(3, 1)))

        def talk(client, over):
            while not over.is_set():
                with contextlib.suppress(socket.timeout):
                    client.sendall(controls * 1000)
        self.same_as_without(talk)

    @hazard("a collector reads nothing", sees="ends at most GPUPROBE_EXIT_WAIT_MS later", counted="what was not sent is lost")
    def test_one_that_reads_nothing(self):
        self.same_as_without(lambda client, over: over.wait(), limit=6.0)

    @hazard("a collector closes every connection immediately, with data unread", sees="no difference", counted="recording ends")
    def test_one_that_hangs_up(self):
        def hang_up(client, over):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        self.same_as_without(hang_up)


if __name__ == "__main__":
    harness.main()
