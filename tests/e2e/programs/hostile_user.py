"""One user who does everything that a program can do to a collector, until the time is over: hostile_user.py SOCKET SECONDS

Prints how often each attack got through to the socket.
"""
import os
import random
import resource
import socket
import sys
import threading
import time

import wire  # beside this one, where the test has copied both

PATH, SECONDS = sys.argv[1], float(sys.argv[2])
END = time.monotonic() + SECONDS
COUNTS = {}


def connect():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(0.5)
    connection.connect(PATH)
    return connection


def keep_sending(connection, data):
    connection.setblocking(False)
    sent = 0
    try:
        while sent < len(data) and time.monotonic() < END:
            try:
                sent += connection.send(data[sent:sent + 65536])
            except BlockingIOError:
                time.sleep(0.002)
    except OSError:
        pass


def unfinished_frame_before_hello(held):
    held.append(connect())
    keep_sending(held[-1], wire.varint(16 << 20) + b"x" * (15 << 20))


def slow_hello(held):
    held.append(connect())
    held[-1].send(wire.delimited(wire.hello())[:-1])


def hello_of_10_mb(held):
    with connect() as connection:
        hello = wire.hello()[:0] + wire.block(1, wire.number(1, 1) + wire.block(4, wire.identity() + wire.block(10, b"x" * 10_000_000)))
        keep_sending(connection, wire.delimited(hello))


def idle(held):
    held += [connect() for _ in range(50)]


def new_run(held):
    with connect() as connection:
        name = f"job-{random.random()}"
        connection.sendall(wire.delimited(wire.hello(pid=random.randrange(1 << 20), run=name)))
        if random.random() < 0.5:
            connection.sendall(wire.delimited(wire.bye()))


def unfinished_frame_after_hello(held):
    held.append(connect())
    held[-1].sendall(wire.delimited(wire.hello(pid=random.randrange(1 << 20), run="big")))
    keep_sending(held[-1], wire.varint(9 << 20) + b"x" * (8 << 20))


def names_without_end(held):
    """Batches as the probe makes them, each with names that nobody has heard before."""
    with connect() as connection:
        keep_sending(connection, wire.delimited(wire.hello(pid=random.randrange(1 << 20), run="names")))
        for number in range(1, 200):
            first = number * 500
            names = b"".join(wire.block(4, wire.number(1, first + i) + wire.block(2, os.urandom(100) * 10)) for i in range(500))
            keep_sending(connection, wire.delimited(wire.block(2, wire.number(1, number) + names)))
            if time.monotonic() > END:
                return


def tiny_definitions(held):
    """Decoded, they take many times as much."""
    with connect() as connection:
        keep_sending(connection, wire.delimited(wire.hello(pid=random.randrange(1 << 20), run="tiny")))
        keep_sending(connection, wire.delimited(wire.block(2, wire.number(1, 1) + wire.block(4, b"") * (2 << 20))))


def garbage(held):
    with connect() as connection:
        keep_sending(connection, os.urandom(100_000))


def come_and_go(held):
    for _ in range(100):
        connect().close()


def attack(act):
    held = []
    while time.monotonic() < END:
        try:
            act(held)
            COUNTS[act.__name__] = COUNTS.get(act.__name__, 0) + 1
        except OSError:
            time.sleep(0.01)
        if len(held) > 3000:
            held.clear()
    for connection in held:
        connection.close()


def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    acts = [unfinished_frame_before_hello, slow_hello, hello_of_10_mb, idle, new_run, unfinished_frame_after_hello, names_without_end, tiny_definitions,
            garbage, come_and_go]
    threads = [threading.Thread(target=attack, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(COUNTS)


main()
