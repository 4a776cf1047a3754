"""NCCL through ctypes, as vLLM's wrapper calls it: one thread, two devices."""
import ctypes

cudart = ctypes.CDLL("libcudart.so.13")
nccl = ctypes.CDLL("libnccl.so.2")
DEVICES = 2
FLOAT, INT8, SUM = 7, 0, 0


def check(result):
    if result != 0:
        raise SystemExit(f"error {result}")


comms = (ctypes.c_void_p * DEVICES)()
streams, buffers = [], []
for device in range(DEVICES):
    check(cudart.cudaSetDevice(device))
    streams.append(ctypes.c_void_p())
    buffers.append(ctypes.c_void_p())
    check(cudart.cudaStreamCreate(ctypes.byref(streams[device])))
    check(cudart.cudaMalloc(ctypes.byref(buffers[device]), ctypes.c_size_t(1 << 20)))
check(nccl.ncclCommInitAll(comms, DEVICES, None))

calls = 0
for step in range(1, 5):
    check(nccl.ncclGroupStart())
    for device in range(DEVICES):
        check(nccl.ncclAllReduce(buffers[device], buffers[device], ctypes.c_size_t(1000 * step), FLOAT, SUM, ctypes.c_void_p(comms[device]), streams[device]))
        check(nccl.ncclAllGather(buffers[device], buffers[device], ctypes.c_size_t(10 * step), INT8, ctypes.c_void_p(comms[device]), streams[device]))
        calls += 2
    check(nccl.ncclGroupEnd())

for device in range(DEVICES):
    check(cudart.cudaSetDevice(device))
    check(cudart.cudaStreamSynchronize(streams[device]))
    check(nccl.ncclCommDestroy(ctypes.c_void_p(comms[device])))
    check(cudart.cudaFree(buffers[device]))
    check(cudart.cudaStreamDestroy(streams[device]))
print(f"ctypes: {calls} calls")
