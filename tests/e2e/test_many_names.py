"""A program with ever more names, an NVTX text and a kernel of its own in every step: the collector stays small, and counts what it counted before."""
import os
import resource
import socket
import threading
import time

import harness
import wire
from harness import Collector
from hazards import hazard

TEXTS, KERNELS = 600_000, 100_000
MEMORY_MIB, SECONDS = 160, 40
GENERATION = 50_000  # names after which gemm is defined again; the injector does so after at most 65,536


class Client:
    """Speaks to a collector as the injector does."""

    def __init__(self, path):
        self.connection = wire.connect(path)
        self.connection.sendall(wire.delimited(wire.hello(pid=os.getpid())))
        self.reader = threading.Thread(target=wire.read_until_closed, args=(self.connection,), daemon=True)
        self.reader.start()
        self.sequence = self.names = self.sites = 0

    def batch(self, body):
        self.sequence += 1
        self.connection.sendall(wire.delimited(wire.block(2, wire.number(1, self.sequence) + wire.fixed64(2, time.time_ns()) + body)))

    def text(self, text):
        self.names += 1
        return wire.block(4, wire.number(1, self.names) + wire.block(2, text))

    def texts(self, texts):
        self.batch(b"".join(map(self.text, texts)))

    def kernels(self, names):
        """Defines and launches each kernel once: gemm runs for 1 ms, the others for 1 us."""
        definitions, sites, launched, lengths = bytearray(), bytearray(), [], bytearray()
        for name in names:
            definitions += self.text(name)
            self.sites += 1
            sites += wire.block(6, wire.number(1, self.sites) + wire.number(2, self.names) + wire.number(5, 7) + b"".join(wire.number(field, 1) for field in range(6, 12)))
            launched.append(self.sites)
            lengths += wire.varint(1_000_000 if name == "gemm" else 1000)
        self.batch(bytes(definitions + sites) + wire.block(9, wire.block(1, wire.varint(2000 << 1) * len(launched)) + wire.block(2, bytes(lengths)) +
                                                           wire.block(3, b"".join(map(wire.varint, launched))) + wire.block(4, wire.varint(1 << 1) * len(launched))))

    def end(self):
        self.connection.sendall(wire.delimited(wire.bye(self.sequence)))
        self.connection.shutdown(socket.SHUT_WR)
        self.reader.join(60)
        self.connection.close()


class ManyNames(harness.EndToEndTest):

    @hazard("a program has a new NVTX text and a new kernel name in every step, hundreds of thousands of them",
            sees="no difference", counted="every launch; names beyond 65,536 share one with a `#` for their numbers, and the report says how many (trust.other_names)")
    def test_an_ordinary_kernel_among_ever_new_names(self):
        collector = Collector(self)
        began = time.monotonic()
        client = Client(collector.socket)
        ordinary = 0
        for first in range(0, TEXTS, 20_000):
            client.texts(f"step {i} of training epoch" for i in range(first, first + 20_000))
            if first % GENERATION == 0:
                client.kernels(["gemm"])
                ordinary += 1
        for first in range(0, KERNELS, 10_000):
            client.kernels(["gemm", *(f"_Z22triton_fused_kernel_{i:08x}v" for i in range(first, first + 10_000))])
            ordinary += 1
        client.end()
        collector.stop()
        took, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        report = self.report(collector.out)
        self.assertLess(peak, MEMORY_MIB)
        self.assertLess(took, SECONDS)
        rank, = report["ranks"]
        self.assertEqual(rank["kernels"]["count"], KERNELS + ordinary)
        self.assertEqual([row["time_ns"]["count"] for row in rank["top_kernels"] if row["name"] == "gemm"], [ordinary])
        self.assertGreater(report["trust"]["other_names"], TEXTS - 65_536)
        self.assertEqual(report["trust"]["lost"], {})


if __name__ == "__main__":
    harness.main()
