"""Threads parked in all kinds of Python code, which say themselves where they are: what test_stacks.py compares. Runs in Python 3.8 and newer.

Usage: python_stacks.py FILE. Once all are parked, FILE is there with {name: {"tid", "frames": [[function, file, line], ...]}}, innermost frame
first. Then the main thread parks as well, until it is killed.
"""
import json
import os
import sys
import threading

gate = threading.Lock()
ready = threading.Semaphore(0)


def park(*_, **__):
    return ready.release(), gate.acquire()


def park_on_the_last_of_lines(a,
                              b):
    x = [
        a,
        b]


    # A gap, and lines that belong to one statement.
    y = (x,
         park(
             x)
         )
    return y


class Outer:
    class Inner:
        def method(self):
            return [park() for _ in range(1)]

        @property
        def attribute(self):
            return self.method()

        def __getitem__(self, key):
            return self.attribute


def in_generator():
    yield 1
    yield from (park(i) for i in range(2, 3))


def in_except():
    try:
        raise ValueError
    except ValueError:
        try:
            raise KeyError
        except KeyError:
            park()


def in_finally():
    try:
        pass
    finally:
        with threading.Lock():
            for _ in range(1):
                while True:
                    park()


def through_c():
    return sorted([3, 1], key=lambda value: max([value], key=park))


def recursion(depth):
    return park() if depth == 0 else recursion(depth - 1)


class Parks:
    def __init__(self, parks):
        if parks:
            park()


def in_a_constructor():
    # Often enough that the interpreter enters __init__ without a call (3.12 and newer).
    for i in range(1000):
        Parks(i == 999)


def naïve_функция_函数():
    park()


def of_a_long_function():
    scope = {}
    lines = "".join(f"    x = {i}\n" for i in range(3000))
    exec(compile(f"def long(park):\n{lines}    park()\n", "long.py", "exec"), scope)  # pylint: disable=exec-used
    scope["long"](park)


TARGETS = {
    "lines": lambda: park_on_the_last_of_lines(1, 2),
    "class": lambda: Outer.Inner()[0],
    "generator": lambda: list(in_generator()),
    "except": in_except,
    "finally": in_finally,
    "through C": through_c,
    "recursion": lambda: recursion(50),
    "deep": lambda: recursion(400),
    "constructor": in_a_constructor,
    "names": naïve_функция_函数,
    "long": of_a_long_function,
}


def stack_of(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames


def main():
    with gate:
        threads = {name: threading.Thread(target=target, daemon=True) for name, target in TARGETS.items()}
        for thread in threads.values():
            thread.start()
        for _ in threads:
            ready.acquire()
        frames = sys._current_frames()  # pylint: disable=protected-access
        said = {name: {"tid": thread.native_id, "frames": stack_of(frames[thread.ident])} for name, thread in threads.items()}
        with open(sys.argv[1] + ".new", "w", encoding="utf-8") as file:
            json.dump(said, file)
        os.replace(sys.argv[1] + ".new", sys.argv[1])
        gate.acquire()


main()
