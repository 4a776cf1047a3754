"""Threads that start, end, raise and recurse without pause, until killed: see test_stacks.py, which knows who calls whom, and where."""
import threading
import time


def climb(depth):
    return descend(depth - 1) if depth else sum(range(20))


def descend(depth):
    try:
        return stumble(depth)
    except ValueError:
        return climb(depth - 1) if depth > 0 else 0


def stumble(depth):
    if depth % 3 == 0:
        raise ValueError(depth)
    return climb(depth - 1) if depth > 1 else 1


def work():
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        climb(30)


def main():
    while True:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
