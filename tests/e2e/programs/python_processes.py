"""Two worker processes that use CUDA, made in the way that the first argument names (fork, spawn, forkserver). The second is the folder of the
simulated node's libraries."""
import ctypes
import multiprocessing
import os
import sys
import time


def work(number, results):
    runtime = ctypes.CDLL(os.path.join(sys.argv[2], "libcudart.so.13"))
    memory = ctypes.c_void_p()
    host = ctypes.create_string_buffer(4096)
    errors = [runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096))]
    for _ in range(number):
        errors.append(runtime.cudaMemcpy(memory, host, ctypes.c_size_t(4096), 1))
    errors.append(runtime.cudaDeviceSynchronize())
    results.put((number, errors.count(0)))
    time.sleep(1)  # a worker leaves by _exit: what the probe has not sent by then is lost


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    workers = [context.Process(target=work, args=(number, queue)) for number in (3, 5)]
    for worker in workers:
        worker.start()
    print(sorted(queue.get() for _ in workers))
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers])
