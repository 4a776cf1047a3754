#!/usr/bin/env bash
# A process that never touches CUDA is not changed by LD_PRELOAD: same output, same exit code, one thread, no new descriptor, no socket;
# only two variables for its children. usage: preload_test.sh LIBRARY
set -u
library=$(realpath "$1")
failed=0
fail() { echo "FAILED: $*"; failed=1; }
unset CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH GPUPROBE_DISABLE

for command in "ls -la /etc" "cat /proc/cpuinfo /nonexistent" "sh -c 'exit 7'"; do
  plain=$(eval "$command" 2>&1); plain_code=$?
  probed=$(LD_PRELOAD=$library eval "env LD_PRELOAD=$library $command" 2>&1); probed_code=$?
  [ "$plain_code" = "$probed_code" ] || fail "$command: exit code $probed_code instead of $plain_code"
  case $command in *cpuinfo*) plain=${plain: -40} probed=${probed: -40} ;; esac  # clock rates change
  [ "$plain" = "$probed" ] || fail "$command: other output"
done

threads=$(LD_PRELOAD=$library grep Threads /proc/self/status)
[ "${threads//[^0-9]/}" = 1 ] || fail "threads: $threads"

# find sees its own descriptors: 0, 1, 2 and the folder that it reads.
count() { find /proc/self/fd -mindepth 1 2>/dev/null | wc -l; }
plain_fds=$(find /proc/self/fd/ -mindepth 1 -printf '%l\n' 2>/dev/null | grep -vc pipe)
probed_fds=$(LD_PRELOAD=$library find /proc/self/fd/ -mindepth 1 -printf '%l\n' 2>/dev/null | grep -vc pipe)
[ "$plain_fds" = "$probed_fds" ] || fail "descriptors: $probed_fds instead of $plain_fds"
LD_PRELOAD=$library find /proc/self/fd/ -mindepth 1 -printf '%l\n' 2>/dev/null | grep -q socket && fail "a socket was opened"

for name in CUDA_INJECTION64_PATH NVTX_INJECTION64_PATH; do
  value=$(LD_PRELOAD=$library printenv $name)
  # A program that is started by exec sees what its parent's library set.
  value=$(LD_PRELOAD=$library env printenv $name)
  [ "$value" = "$library" ] || fail "$name is '$value'"
  value=$(env $name=/theirs LD_PRELOAD="$library" env printenv $name)
  [ "$value" = /theirs ] || fail "$name of the user was changed to '$value'"
  value=$(GPUPROBE_DISABLE=1 LD_PRELOAD=$library env printenv $name)
  [ -z "$value" ] || fail "GPUPROBE_DISABLE=1: $name is '$value'"
done
exit $failed
