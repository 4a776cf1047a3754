#!/usr/bin/env bash
# Hunts for inputs that break what reads other people's bytes: hunt.sh [MINUTES [TARGET...]]
#
# Builds the fuzz targets with clang's sanitizers (preset fuzz) and runs each for its share of MINUTES (default 60), two at
# a time, from the corpus in tests/fuzz. Prints how many inputs each has run. A finding is kept in build/hunt/TARGET/ and
# ends the hunt with status 1; what reached new code stays in build/hunt/TARGET/corpus for the next hunt.
# HUNT_RUNS=N: each target ends after N inputs instead.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

minutes=${1:-60}
[[ $minutes =~ ^[0-9]+$ ]] && [ "$minutes" -gt 0 ] || die "MINUTES must be a positive number, got \"$minutes\""
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for folder in "$ROOT"/tests/fuzz/corpus/*/; do targets+=("$(basename "$folder")"); done
fi
for target in "${targets[@]}"; do
  [ -d "$ROOT/tests/fuzz/corpus/$target" ] || die "no such target: $target. There are: $(ls "$ROOT/tests/fuzz/corpus" | xargs)"
done

build_preset fuzz "${targets[@]/#/fuzz_}"

at_once=2
[ ${#targets[@]} -gt 1 ] || at_once=1
seconds=$((minutes * 60 * at_once / ${#targets[@]}))
limit=(-max_total_time="$seconds")
share="$seconds s"
if [ -n "${HUNT_RUNS:-}" ]; then
  limit=(-runs="$HUNT_RUNS")
  share="$HUNT_RUNS inputs"
fi

hunt() {
  local target=$1 place=$ROOT/build/hunt/$1
  mkdir -p "$place/corpus"
  (cd "$place" && "$ROOT/build/fuzz/tests/fuzz/fuzz_$target" "${limit[@]}" -max_len=4096 -timeout=20 -rss_limit_mb=2048 \
    -print_final_stats=1 corpus "$ROOT/tests/fuzz/corpus/$target" >hunt.log 2>&1)
}

say "Hunt: ${#targets[@]} targets, $share each, $at_once at a time"
status=0
running=0
declare -A target_of=()
wait_for_one() {
  local finished code=0
  wait -n -p finished || code=$?
  local target=${target_of[$finished]}
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$ROOT/build/hunt/$target/hunt.log")
  if [ "$code" -eq 0 ]; then
    printf '  %-14s %12s inputs, no finding\n' "$target" "${runs:-0}"
  else
    status=1
    printf '  %-14s FINDING, see %s\n' "$target" "build/hunt/$target/hunt.log"
    grep -m 3 -E 'ERROR: |SUMMARY: |Test unit written' "$ROOT/build/hunt/$target/hunt.log" | sed 's/^/      /' || true
  fi
}
for target in "${targets[@]}"; do
  if [ "$running" -ge "$at_once" ]; then
    wait_for_one
    running=$((running - 1))
  fi
  hunt "$target" &
  target_of[$!]=$target
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait_for_one
  running=$((running - 1))
done
exit "$status"
