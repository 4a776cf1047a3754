"""Prints one line for each signal that it gets, `NUMBER VALUE`, in the order of delivery: the value is that of sigqueue, or 0.

    signal_reporter.py FILE     creates FILE when it is ready; exits with status 5 after a signal with the value 99, or after 60 s
"""
import ctypes
import signal
import struct
import sys
import time


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    libc = ctypes.CDLL(None)
    everything = ctypes.create_string_buffer(b"\xff" * 128)
    info = ctypes.create_string_buffer(128)
    with open(sys.argv[1], "w", encoding="utf-8"):
        pass
    deadline = time.monotonic() + 60
    last = None  # after the signal that ends it, it reads the rest until then
    while time.monotonic() < (last or deadline):
        number = libc.sigtimedwait(everything, info, struct.pack("qq", 0, 50_000_000))
        if number <= 0:
            continue
        code, = struct.unpack_from("i", info, 8)
        value, = struct.unpack_from("i", info, 24)
        value = value if code == -1 else 0  # SI_QUEUE
        if value == 99:
            last = time.monotonic() + 0.3
        else:
            print(number, value, flush=True)
    sys.exit(5)


main()
