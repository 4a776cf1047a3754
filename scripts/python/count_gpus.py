"""How many devices the NVIDIA driver has; fails if there is no driver that can be used."""
import ctypes
import sys

try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    sys.exit(str(error))
count = ctypes.c_int(0)
if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
    sys.exit("the driver cannot be initialised")
print(count.value)
