"""Launches, and is then elsewhere, in functions that it names. host_samples.py WHAT [ARGUMENT]"""
import ctypes
import os
import sys
import threading
import time

from python_churn import climb
from refuse_reads import refuse_reads

cudart = ctypes.CDLL("libcudart.so.13")
buffer = ctypes.c_void_p()
spent = {}


def launch():
    for _ in range(20):
        if cudart.cudaMemsetAsync(buffer, 0, ctypes.c_size_t(1 << 10), None) != 0:
            os.abort()


def compute(seconds):
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        sum(range(100))
    spent["compute"] = spent.get("compute", 0) + time.monotonic() - begin


def wait(seconds):
    begin = time.monotonic()
    time.sleep(seconds)
    spent["wait"] = spent.get("wait", 0) + time.monotonic() - begin


def step():
    launch()
    compute(0.06)
    launch()
    wait(0.03)


def steps(count):
    for _ in range(int(count)):
        step()
    print(spent)


def read(path):
    """Until somebody has written to the pipe."""
    launch()
    with open(path, "rb", buffering=0) as pipe:
        pipe.read(1)


def hog(stop):
    while not stop:
        sum(range(100))


def contend(_):
    """Two threads that both run Python; only one launches."""
    stop = []
    other = threading.Thread(target=hog, args=(stop,))
    other.start()
    launch()
    compute(1)
    stop.append(1)
    other.join()


def refuse(_):
    refuse_reads()
    steps(5)


def children(_):
    launch()
    child = os.fork()
    if child == 0:
        compute(0.2)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.2)"])
    os.waitpid(child, 0)


def work():
    launch()
    begin = time.monotonic()
    while time.monotonic() - begin < 0.02:
        climb(30)


def churn(seconds):
    begin = time.monotonic()
    while time.monotonic() - begin < float(seconds):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if cudart.cudaMalloc(ctypes.byref(buffer), ctypes.c_size_t(1 << 20)) != 0:
    sys.exit("no device")
{"steps": steps, "read": read, "contend": contend, "refuse": refuse, "children": children, "churn": churn}[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
