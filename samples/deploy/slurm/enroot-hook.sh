#!/usr/bin/env bash
# A hook of enroot, for /etc/enroot/hooks.d/60-gpuprobe.sh: containers that ask for it are recorded by the node's collector (docs/deploy.md).
#
#   GPUPROBE=1 srun --container-image=... | enroot start --env GPUPROBE=1 ...     asks for it; GPUPROBE=0, or nothing, does not
#
# It adds lines to the container's mounts and environment, and nothing else. Where the library or the collector's socket is not there, or the
# container has another tool, it adds nothing. A hook that fails would keep the container from starting, so it always ends with 0.

# For the site to set. The library runs in images with glibc 2.34 and newer.
library=/usr/lib/gpuprobe/lib/libgpuprobe.so
socket=/run/gpuprobe

# What the container's environment has counts, then what the job's has.
wanted=$(sed -n 's/^GPUPROBE=//p' "${ENROOT_ENVIRON:-/dev/null}" 2>/dev/null | tail -n 1)
[ "${wanted:-${GPUPROBE:-}}" = 1 ] || exit 0
[ -r "$library" ] && [ -S "$socket/collector.sock" ] || exit 0
if grep -q '^CUDA_INJECTION64_PATH=' "$ENROOT_ENVIRON"; then
  exit 0
fi

# At a path of its own, which no image has.
inside=/opt/gpuprobe/libgpuprobe.so
{
  echo "$library $inside none x-create=file,bind,ro,nosuid,nodev,private"
  echo "$socket $socket none x-create=dir,bind,ro,nosuid,nodev,private"
} >>"$ENROOT_MOUNTS"
{
  echo "CUDA_INJECTION64_PATH=$inside"
  echo "GPUPROBE_SOCKET=$socket/collector.sock"
  echo "GPUPROBE_AUTOSTART=0"
} >>"$ENROOT_ENVIRON"
exit 0
