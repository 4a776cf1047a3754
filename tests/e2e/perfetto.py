"""Reads a Perfetto trace as Perfetto's own trace processor does, as far as we write it: written from the published schema, with nothing of ours.

Events are put into order of time (those of one moment stay in the order of the file); a slice's end closes the innermost open slice of its track.
"""
import struct
import zlib
from collections import defaultdict

from wire import fields

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def real(bits):
    return struct.unpack("<d", bits.to_bytes(8, "little"))[0]


class Slice:
    def __init__(self, track, start, name, category, args, begins, ends):
        self.track, self.start, self.name, self.category, self.args = track, start, name, category, args
        self.begins, self.ends = begins, ends
        self.end = start
        self.depth = 0

    @property
    def duration(self):
        return self.end - self.start


class Track:
    def __init__(self):
        self.name = self.parent = self.process = self.thread = self.unit = None
        self.slices, self.values = [], []

    @property
    def is_counter(self):
        return self.unit is not None


class Trace:
    """`tracks` by uuid; `slices` and moments of all tracks; `pids`: a track's process."""

    def __init__(self, data):
        self.tracks = defaultdict(Track)
        self.packets = 0
        self.compressed = 0
        self._interned = {}  # by sequence: field: iid: text
        self._clock = {}
        self._events = []
        self._read(data)
        self._build()

    def _read(self, data):
        for field, packet in fields(data):
            assert field == 1, "a trace is a list of packets"
            self._packet(packet)

    def _packet(self, data):
        packet = defaultdict(list)
        for field, content in fields(data):
            packet[field].append(content)
        if 50 in packet:
            self.compressed += 1
            self._read(zlib.decompress(packet[50][0]))
            return
        self.packets += 1
        sequence = packet[10][0]
        flags = packet.get(13, [0])[0]
        if flags & 1:
            self._interned[sequence] = defaultdict(dict)
            self._clock[sequence] = dict(fields(packet[59][0]))[58]
        if flags & 2:
            assert sequence in self._interned, "a packet needs a state that its sequence never had"
        for data in packet.get(12, []):
            for field, entry in fields(data):
                entry = dict(fields(entry))
                known = self._interned[sequence][field].setdefault(entry[1], entry[2].decode())
                assert known == entry[2].decode(), "a number means one text"
        if 60 in packet:
            self._track(packet[60][0])
        if 11 in packet:
            assert self._clock[sequence] == 1, "times are those of the real-time clock"
            self._events.append((packet[8][0], len(self._events), self._event(packet[11][0], self._interned[sequence])))

    def _track(self, data):
        described = dict(fields(data))
        track = self.tracks[described[1]]
        track.parent = described.get(5)
        track.name = described[2].decode() if 2 in described else None
        if 3 in described:
            process = dict(fields(described[3]))
            track.process = process[1]
            track.name = process[6].decode()
        if 4 in described:
            thread = dict(fields(described[4]))
            track.process, track.thread = thread[1], thread[2]
            track.name = thread[5].decode()
        if 8 in described:
            counter = dict(fields(described[8]))
            track.unit = {1: "ns", 3: "bytes"}.get(counter.get(3)) or counter[6].decode()

    def _event(self, data, interned):
        event = {"args": {}, "begins": [], "ends": []}
        for field, content in fields(data):
            if field == 9:
                event["type"] = content
            elif field == 11:
                event["track"] = content
            elif field == 3:
                event["category"] = interned[1][content]
            elif field == 10:
                event["name"] = interned[2][content]
            elif field == 30:
                event["value"] = signed(content)
            elif field == 44:
                event["value"] = real(content)
            elif field == 47:
                event["begins"].append(content)
            elif field == 48:
                event["ends"].append(content)
            elif field == 4:
                key, value = self._annotation(content, interned)
                event["args"][key] = value
        return event

    @staticmethod
    def _annotation(data, interned):
        annotation = dict(fields(data))
        key = interned[3][annotation.pop(1)]
        (field, value), = annotation.items()
        return key, {3: lambda: value, 4: lambda: signed(value), 5: lambda: real(value), 17: lambda: interned[29][value]}[field]()

    def _build(self):
        self.slices, self.moments = [], []
        open_slices = defaultdict(list)
        for time, _, event in sorted(self._events, key=lambda entry: entry[:2]):
            track = self.tracks[event["track"]]
            stack = open_slices[event["track"]]
            if event["type"] == COUNTER:
                assert track.is_counter
                track.values.append((time, event["value"]))
            elif event["type"] == END:
                assert stack, f"an end without a begin on {track.name}"
                stack.pop().end = time
            else:
                made = Slice(event["track"], time, event["name"], event["category"], event["args"], event["begins"], event["ends"])
                made.depth = len(stack)
                if event["type"] == INSTANT:
                    self.moments.append(made)
                else:
                    stack.append(made)
                    track.slices.append(made)
                    self.slices.append(made)
        left = [self.tracks[uuid].name for uuid, stack in open_slices.items() if stack]
        assert not left, f"slices without an end on {left}"

    def process_of(self, uuid):
        """The name of the process that a track belongs to: "rank 3"."""
        track = self.tracks[uuid]
        while track.parent is not None:
            track = self.tracks[track.parent]
        return track.name


def read(path):
    with open(path, "rb") as file:
        return Trace(file.read())
