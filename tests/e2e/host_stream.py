"""Listens to a probe in the collector's place, and decodes what it says of the host: samples, frames, threads.

Written from proto/gpuprobe/v1/wire.proto, so that it shares no code with either end (wire.py).
"""
import collections
import contextlib
import socket
import threading

import wire

STRINGS, THREADS, SAMPLES, FRAMES = 4, 5, 66, 67
STATES = ("unknown", "running", "sleeping", "uninterruptible", "stopped")
STACKS = ("unknown", "whole", "outer missing", "torn", "no python", "not readable")
COLUMNS = ("time", "stands_for", "thread", "in_gap", "state", "call", "call_duration", "system_call", "file", "run_delay", "frame", "stack")

Frame = collections.namedtuple("Frame", "function file line")
Sample = collections.namedtuple("Sample", "time_ns stands_for_ns tid main in_gap state call call_ns system_call file run_delay_ns stack frames")


class Process:
    """What one process has said."""

    def __init__(self, stream):
        self.strings, self.threads, self.definitions, rows = {0: ""}, {}, {}, []
        at = 0
        while at < len(stream):
            length, at = wire.read_varint(stream, at)
            for kind, body in wire.fields(stream[at:at + length]):
                if kind == 2:
                    self._take_batch(list(wire.fields(body)), rows)
            at += length
        self.samples = [self._sample(*row) for row in rows]

    def _take_batch(self, fields, rows):
        base = next((content for number, content in fields if number == 2), 0)
        for number, content in fields:
            if number in (STRINGS, THREADS, FRAMES):
                one = dict(wire.fields(content))
                if number == STRINGS:
                    self.strings[one[1]] = one.get(2, b"").decode()
                elif number == THREADS:
                    self.threads[one[1]] = (one[2], one.get(4, 0) == 1)
                else:
                    self.definitions[one[1]] = tuple(one.get(i, 0) for i in range(2, 6))
            elif number == SAMPLES:
                rows += self._rows(dict(wire.fields(content)), base)

    @staticmethod
    def _rows(message, base):
        columns = {}
        for place, name in enumerate(COLUMNS, 1):
            values, at, packed = [], 0, message.get(place, b"")
            while at < len(packed):
                value, at = wire.read_varint(packed, at)
                values.append(value)
            columns[name] = values
        count = max(map(len, columns.values()))
        time = base
        for i in range(count):
            row = {name: values[i] if values else 0 for name, values in columns.items()}
            time += (row["time"] >> 1) ^ -(row["time"] & 1)
            yield time, row

    def _sample(self, time, row):
        tid, main = self.threads[row["thread"]]
        frames, frame = [], row["frame"]
        while frame:
            caller, function, file, line = self.definitions[frame]
            frames.append(Frame(self.strings[function], self.strings[file], line))
            frame = caller
        return Sample(time, row["stands_for"], tid, main, bool(row["in_gap"]), STATES[row["state"]], self.strings[row["call"]], row["call_duration"],
                      row["system_call"] - 1, self.strings[row["file"]], row["run_delay"], STACKS[row["stack"]], frames)


class Listener:
    """Takes all that comes, from any number of processes, and answers nothing."""

    def __init__(self, test):
        self.path = test.path("listener.sock")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen(64)
        self._streams, self._threads = [], []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        test.addCleanup(self.stop)

    def env(self):
        return {"GPUPROBE_SOCKET": self.path, "GPUPROBE_AUTOSTART": "0"}

    def _accept(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            stream = bytearray()
            self._streams.append(stream)
            thread = threading.Thread(target=self._read, args=(connection, stream), daemon=True)
            self._threads.append(thread)
            thread.start()

    @staticmethod
    def _read(connection, stream):
        with connection:
            connection.settimeout(60)
            try:
                while chunk := connection.recv(1 << 16):
                    stream += chunk
            except OSError:
                pass

    def stop(self):
        """Every process that connected, once they have all ended."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._accepting.join(10)
        self._socket.close()
        for thread in self._threads:
            thread.join(60)
        return [Process(bytes(stream)) for stream in self._streams if stream]
