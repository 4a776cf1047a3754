#!/usr/bin/env bash
# Format and lint. `lint.sh` checks everything; `--format` the format only; `--changed` the format, and with clang-tidy what changed;
# `--fix` rewrites the format in place.
#
# Changed is what differs from the branch that the change goes into: from origin/main or main, on main itself from the commit before. Sources
# count, headers are checked with them; LINT_LIMIT (8) bounds how many, for the sake of the time. Everything is checked as the build compiles it, several
# sources as one. clang-tidy needs a configured tree: build/release, or the folder in $BUILD_DIR.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT"

tool() { command -v "$1-14" || command -v "$1" || die "no $1: run scripts/install-deps.sh"; }

# The commit that the change starts from; nothing if the clone does not go back so far.
changed_since() {
  local branch base
  for branch in origin/main main; do
    base=$(git merge-base HEAD "$branch" 2>/dev/null) || continue
    [ "$base" = "$(git rev-parse HEAD)" ] && base=$(git rev-parse -q --verify HEAD~1 || true)
    [ -n "$base" ] && echo "$base"
    return 0
  done
  return 0
}

mapfile -t sources < <(find injector collector proto stacks tests samples \( -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.cu' -o -name '*.cuh' \) | sort)
what=${1:-}

case "$what" in
  --fix)
    "$(tool clang-format)" -i "${sources[@]}"
    exit
    ;;
  --format | --changed | "") ;;
  *) die "unknown option $what (there are --format, --changed and --fix)" ;;
esac

say "clang-format over ${#sources[@]} files"
printf '%s\n' "${sources[@]}" | xargs -P "$JOBS" -n 32 "$(tool clang-format)" --dry-run --Werror
[ "$what" = --format ] && exit

BUILD_DIR=${BUILD_DIR:-$ROOT/build/release}
[ -e "$BUILD_DIR/compile_commands.json" ] || cmake --preset release >/dev/null
# units [together]: what clang-tidy can check, one a line
units() { python3 scripts/python/translation_units.py "$BUILD_DIR/compile_commands.json" "$ROOT" "$BUILD_DIR/lint" "$@"; }
tidy=("$(tool clang-tidy)" -p "$BUILD_DIR/lint" --quiet --extra-arg=-Wno-unknown-warning-option)
if [ "$what" = --changed ]; then
  base=$(changed_since)
  if [ -z "$base" ]; then
    say "clang-tidy: this clone has no earlier commit to compare with"
    exit
  fi
  mapfile -t changed < <({ git diff --name-only --diff-filter=d "$base" && git ls-files --others --exclude-standard; } | sed "s#^#$ROOT/#" | sort -u)
  mapfile -t units < <(comm -12 <(units | sort) <(printf '%s\n' "${changed[@]}"))
  limit=${LINT_LIMIT:-8}
  if [ ${#units[@]} -gt "$limit" ]; then
    echo "${#units[@]} sources changed since ${base:0:9}; clang-tidy checks the first $limit (LINT_LIMIT). Check all of them with: scripts/lint.sh"
    units=("${units[@]:0:$limit}")
  fi
  if [ ${#units[@]} -eq 0 ]; then
    say "clang-tidy: no source has changed since ${base:0:9}"
    exit
  fi
else
  mapfile -t units < <(units together)
  # A source that another one includes is checked like a header.
  tidy+=(--checks=-bugprone-suspicious-include "--header-filter=$ROOT/(injector|collector|proto|stacks|tests|samples)/")
fi
say "clang-tidy over ${#units[@]} translation units"
product=() tests=()
for unit in "${units[@]}"; do
  case "$unit" in */tests/*) tests+=("$unit") ;; *) product+=("$unit") ;; esac
done
status=0
run_tidy() { xargs -0 -P "$JOBS" -n 4 "${tidy[@]}" "$@" || status=$?; }
[ ${#product[@]} -eq 0 ] || run_tidy < <(printf '%s\0' "${product[@]}")
# The settings of tests/ hold in the build's files of several sources, too, which are elsewhere.
[ ${#tests[@]} -eq 0 ] || run_tidy "--config-file=$ROOT/tests/.clang-tidy" < <(printf '%s\0' "${tests[@]}")
exit "$status"
