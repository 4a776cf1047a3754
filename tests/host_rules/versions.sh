#!/usr/bin/env bash
# Prints the version script of the rules library: each of its functions has the version that the C library's has, because libgpuprobe.so
# accepts only that (injector/bind_to_libc.cc). usage: versions.sh NM C_LIBRARY OBJECT...
set -euo pipefail
nm=$1 library=$2
shift 2
"$nm" -g --defined-only "$@" | awk 'NF == 3 && $2 == "T" {print $3}' | sort -u >"/tmp/gpuprobe-rules.$$"
trap 'rm -f "/tmp/gpuprobe-rules.$$"' EXIT
"$nm" -D --defined-only "$library" | awk -v wanted="/tmp/gpuprobe-rules.$$" '
  BEGIN { while ((getline name < wanted) > 0) want[name] = 1 }
  { split($NF, part, "@@"); if (part[2] != "" && part[1] in want) names[part[2]] = names[part[2]] "    " part[1] ";\n" }
  END { for (version in names) printf "%s {\n  global:\n%s%s};\n", version, names[version], version == "GLIBC_2.2.5" ? "  local:\n    *;\n" : "" }'
