"""A rank that calls the CUDA driver by ctypes in a loop and meets the others after each step, as in a collective. Usage: trains_in_python.py FOLDER.

Environment: STUCK=RANK: that rank opens the pipe in FOLDER, which nobody writes to. WORKERS=N: so many forked children that wait.
"""
import ctypes
import os
import sys
import time

folder = sys.argv[1]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def next_batch(step):
    if step == 3 and os.environ.get("STUCK") == str(rank):
        with open(os.path.join(folder, "pipe"), encoding="utf-8") as file:
            return file.read()
    return step


def meet(step):
    """Once all ranks are in this step."""
    open(os.path.join(folder, f"step-{step}-{rank}"), "w", encoding="utf-8").close()
    for other in range(world):
        while not os.path.exists(os.path.join(folder, f"step-{step}-{other}")):
            time.sleep(0.01)
    if step > 2:
        os.remove(os.path.join(folder, f"step-{step - 2}-{rank}"))


def compute():
    end = time.monotonic() + 0.005
    while time.monotonic() < end:
        pass


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    for _ in range(int(os.environ.get("WORKERS", "0"))):
        if os.fork() == 0:
            time.sleep(1000)
    with open(os.path.join(folder, f"rank-{rank}.new"), "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    os.rename(os.path.join(folder, f"rank-{rank}.new"), os.path.join(folder, f"rank-{rank}"))
    step = 0
    while True:
        next_batch(step)
        compute()
        meet(step)
        step += 1


main()
