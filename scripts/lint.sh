#!/usr/bin/env bash
# Format and lint. `lint.sh` checks everything; `lint.sh --format` checks the format only; `lint.sh --fix` rewrites the format in place.
#
# clang-tidy needs a configured tree; build/release is used, or the folder in $BUILD_DIR.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

tool() { command -v "$1-14" || command -v "$1" || die "no $1: run scripts/install-deps.sh"; }

mapfile -t sources < <(find injector collector proto tests samples \( -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) | sort)

case "${1:-}" in
  --fix)
    "$(tool clang-format)" -i "${sources[@]}"
    exit
    ;;
  --format | "") ;;
  *) die "unknown option $1 (there are --format and --fix)" ;;
esac

say "clang-format over ${#sources[@]} files"
printf '%s\n' "${sources[@]}" | xargs -P "$JOBS" -n 32 "$(tool clang-format)" --dry-run --Werror
[ "${1:-}" = --format ] && exit

BUILD_DIR=${BUILD_DIR:-$ROOT/build/release}
[ -e "$BUILD_DIR/compile_commands.json" ] || cmake --preset release >/dev/null
# Only what the build compiles can be checked: generated sources and CUDA files are left out.
mapfile -t units < <(python3 - "$BUILD_DIR/compile_commands.json" "$ROOT" <<'PY'
import json, os, sys
root = sys.argv[2] + os.sep
names = {os.path.normpath(os.path.join(c["directory"], c["file"])) for c in json.load(open(sys.argv[1]))}
print("\n".join(sorted(n for n in names if n.startswith(root) and not n.startswith(root + "build") and n.endswith((".cc", ".c")))))
PY
)
say "clang-tidy over ${#units[@]} translation units"
printf '%s\n' "${units[@]}" | xargs -P "$JOBS" -n 4 "$(tool clang-tidy)" -p "$BUILD_DIR" --quiet --extra-arg=-Wno-unknown-warning-option
