"""NVTX as a Python module calls it: a domain with registered strings through event attributes, and the plain calls, by ctypes on NVTX's own library."""
import ctypes
import sys

cuda = ctypes.CDLL("libcudart.so.13")
assert cuda.cudaFree(None) == 0
nvtx = ctypes.CDLL(sys.argv[1])


class Attributes(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint16), ("size", ctypes.c_uint16), ("category", ctypes.c_uint32), ("color_type", ctypes.c_int32),
                ("color", ctypes.c_uint32), ("payload_type", ctypes.c_int32), ("reserved", ctypes.c_int32), ("payload", ctypes.c_uint64),
                ("message_type", ctypes.c_int32), ("message", ctypes.c_void_p)]


for name in ("nvtxDomainCreateA", "nvtxDomainRegisterStringA"):
    getattr(nvtx, name).restype = ctypes.c_void_p
nvtx.nvtxDomainRegisterStringA.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
nvtx.nvtxDomainRangePushEx.argtypes = [ctypes.c_void_p, ctypes.POINTER(Attributes)]
nvtx.nvtxDomainRangePop.argtypes = [ctypes.c_void_p]
nvtx.nvtxRangeStartA.restype = ctypes.c_uint64
nvtx.nvtxRangeEnd.argtypes = [ctypes.c_uint64]

domain = nvtx.nvtxDomainCreateA(b"python")
step = nvtx.nvtxDomainRegisterStringA(domain, b"step")
attributes = Attributes(version=3, size=ctypes.sizeof(Attributes), category=5, color_type=1, color=0xffff0000, payload_type=2, payload=(1 << 64) - 9,
                        message_type=3, message=step)
for _ in range(3):
    assert nvtx.nvtxDomainRangePushEx(domain, ctypes.byref(attributes)) == 0
    assert nvtx.nvtxRangePushA(b"inner") == 0
    assert nvtx.nvtxRangePop() == 0
    assert nvtx.nvtxDomainRangePop(domain) == 0
nvtx.nvtxRangeEnd(nvtx.nvtxRangeStartA(b"started"))
nvtx.nvtxMarkA(b"mark")
