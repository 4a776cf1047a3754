"""Collects garbage without pause in one thread, in `collect`, and never in the other, which works in `work`, until killed: see test_stacks.py.

With the argument `never`, nobody collects any.
"""
import gc
import sys
import threading

heap = [[number] for number in range(300_000)]


def collect():
    while True:
        gc.collect()


def work():
    while True:
        sum(map(len, heap[:1000]))


def main():
    gc.disable()
    threading.Thread(target=work, daemon=True).start()
    (work if "never" in sys.argv else collect)()


main()
