// Stands for libgpuprobe.so where only `gpuprobe run` itself is tested: loads, and does nothing.
