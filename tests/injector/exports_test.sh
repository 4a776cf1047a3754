#!/usr/bin/env bash
# What libgpuprobe.so shows and needs. usage: exports_test.sh LIBRARY EXPORTS_FILE
#
# - nm -D: the exported list and nothing else, NCCL's names where dlsym does not find them; no undefined symbol of the C++ run-time library
# - readelf -d: NEEDED is libc, libdl, libpthread, libm at most; NOW and NODELETE are set
# - no symbol version newer than GLIBC_2.34
set -u
library=$1
exports=$2
failed=0
fail() { echo "FAILED: $*"; failed=1; }

shown=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $NF}' | sed 's/@.*//' | sort)
expected=$(sort "$exports")
[ -n "$expected" ] || fail "the list of exports is empty"
[ "$shown" = "$expected" ] || fail "exported symbols differ from the list: $(diff <(echo "$shown") <(echo "$expected") | tr '\n' ' ')"
found=$(nm -D --defined-only "$library" | awk '{print $NF}' | grep -E '^p?nccl[A-Z]' | grep -vE '^p?nccl[A-Za-z]+@GPUPROBE$' | grep -v '^ncclProfiler_v' || true)
[ -z "$found" ] || fail "dlsym finds: $found"

foreign=$(nm -D --undefined-only "$library" | awk '{print $NF}' | grep -E '^_Z|^__gxx|^__cxa_(throw|begin_catch|pure)|^_Unwind|^__assert|^abort' || true)
[ -z "$foreign" ] || fail "needs: $foreign"

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
  case $name in
    libc.so.6 | libdl.so.2 | libpthread.so.0 | libm.so.6) ;;
    *) fail "needs the library $name" ;;
  esac
done

flags=$(readelf -d "$library" | grep -E 'FLAGS_1')
[[ $flags == *NOW* && $flags == *NODELETE* ]] || fail "flags: $flags"

# Bound to the C library itself (injector/bind_to_libc.cc): versions that the linker marked "only this one", which readelf shows as a high
# bit of their number. The others hold threads and the loader alone.
left=$(nm -D --undefined-only "$library" | awk '{print $NF}' | grep -E '@GLIBC_2\.(32|34)$' | grep -vE '^(pthread_|dl[a-z]+1?@|__libc_single_threaded@)' || true)
[ -z "$left" ] || fail "not bound to the C library: $left"
open=$(readelf -V "$library" | sed -n '/gnu.version_r/,$p' | grep -oE 'Name: GLIBC_[0-9.]+ +Flags: [a-z]+ +Version: [0-9]+' | awk '$NF < 32768 {print $2}' | sort | tr '\n' ' ')
[ "$open" = "GLIBC_2.32 GLIBC_2.34 " ] || [ -n "${GPUPROBE_SANITIZED:-}" ] || fail "versions that are not bound: $open"

newest=$(readelf -V "$library" | grep -o 'GLIBC_[0-9.]*' | sort -V | tail -1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] || fail "needs $newest"

exit $failed
