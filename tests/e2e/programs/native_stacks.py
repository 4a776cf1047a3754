"""Python that calls C that calls Python that waits in C. Runs in Python 3.8 and newer.

Usage: native_stacks.py LIBRARY [CUDA]. With CUDA, a module that starts it, it is a rank of a job: rank 1 reads what nobody writes, the others wait for it.
"""
import ctypes
import os
import sys

library = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(None)


class Shards:
    def read(self):
        library.ReadShard(os.pipe()[0])


def hook():
    Shards().read()


def train(_):
    library.CallBack(CALLBACK(hook))


def main():
    if len(sys.argv) > 2:
        print(ctypes.CDLL(sys.argv[2]).start_cuda(), flush=True)
        if os.environ["RANK"] != "1":
            library.WaitForPeers()
    sorted([1], key=train)


main()
