"""Just enough protobuf to speak to a collector by hand: what a stranger, a newer release or a broken client would send.

Written from proto/gpuprobe/v1/wire.proto and not generated, so that it shares no code with either end.
"""
import os
import socket
import time

PROTOCOL_MAJOR = 1


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def fixed64(field, value):
    return varint(field << 3 | 1) + value.to_bytes(8, "little")


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def clock():
    return fixed64(1, time.time_ns()) + fixed64(2, time.monotonic_ns())


def identity(rank=0, world_size=1, pid=4242, run=""):
    return (block(80, run) + number(1, rank) + number(2, rank) + number(3, world_size) + number(4, 2) + block(6, socket.gethostname()) + number(7, pid) +
            fixed64(8, time.time_ns()) + block(9, "/usr/bin/stranger") + block(10, "stranger"))


def hello(major=PROTOCOL_MAJOR, minor=0, **who):
    return block(1, number(1, major) + number(2, minor) + block(3, "9.9.9") + block(4, identity(**who)) + block(5, clock()) + number(6, 1))


def bye(batches=0):
    return block(3, number(1, 1) + block(2, clock()) + number(3, batches))


def delimited(frame):
    return varint(len(frame)) + frame


def read_until_closed(connection):
    """Everything that the collector says until it closes the connection; fails by socket.timeout if it does not."""
    received = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not chunk:
            return received
        received += chunk


def refusal(received):
    """The text of Control.refused in what a collector sent, or None."""
    at = 0
    while at < len(received):
        length, at = read_varint(received, at)
        frame, at = received[at:at + length], at + length
        for field, content in fields(frame):
            if field != 4:
                continue
            for inner, text in fields(content):
                if inner == 1:
                    return text.decode()
    return None


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(message):
    """(number, content) of a message; numbers come as ints."""
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        kind = key & 7
        if kind == 0:
            content, at = read_varint(message, at)
        elif kind == 1:
            content, at = int.from_bytes(message[at:at + 8], "little"), at + 8
        elif kind == 2:
            length, at = read_varint(message, at)
            content, at = message[at:at + length], at + length
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, content


def connect(path, limit=60):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(limit)
    connection.connect(path)
    return connection


def connect_as(uid, path, limit=60):
    """A connection that the other end sees as this user's: who connects is asked when it does. Needs root."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        return connect(path, limit)
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def read_some(connection, seconds):
    """What comes within this time, or until the connection is closed."""
    received = b""
    connection.settimeout(seconds)
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except (socket.timeout, ConnectionResetError):
        pass
    return received
