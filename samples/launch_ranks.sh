#!/usr/bin/env bash
# Starts one process per rank on this machine: launch_ranks.sh N CMD [ARGS...]
#
# Each gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as torchrun sets them, and DDP_ID_FILE, where
# rank 0 leaves NCCL's unique id. Ends with the exit status of the first rank that failed, after ending the others; with 0 when all succeeded.
set -u
if [ $# -lt 2 ] || ! [ "$1" -ge 1 ] 2>/dev/null; then
  echo "usage: launch_ranks.sh N CMD [ARGS...]" >&2
  exit 2
fi
world=$1
shift

folder=$(mktemp -d "${TMPDIR:-/tmp}/launch_ranks.XXXXXX") || exit 1
export WORLD_SIZE=$world LOCAL_WORLD_SIZE=$world MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-29500}
export DDP_ID_FILE=${DDP_ID_FILE:-$folder/nccl-id}

declare -A rank_of=()
end_all() {
  local signal=$1 pid
  for pid in "${!rank_of[@]}"; do kill -s "$signal" "$pid" 2>/dev/null; done
}
caught=
# A shell without job control starts background commands with SIGINT and SIGQUIT ignored, so Ctrl-C would not reach the ranks. `env` undoes that,
# unless whoever started this script ignores SIGINT; without an `env` that can (coreutils before 8.31) they are ended by SIGTERM instead.
start=() interrupt=TERM quit=TERM
if env --default-signal=INT,QUIT true 2>/dev/null; then
  start=(env --default-signal=INT,QUIT) interrupt=INT quit=QUIT
fi
trap 'caught=TERM; end_all TERM' TERM
trap 'caught=INT; end_all "$interrupt"' INT
trap 'caught=QUIT; end_all "$quit"' QUIT
trap 'caught=HUP; end_all HUP' HUP
trap 'rm -rf "$folder"' EXIT
[[ $(trap -p INT) == *end_all* ]] || start=()

for ((rank = 0; rank < world; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank ${start[@]+"${start[@]}"} "$@" &
  rank_of[$!]=$rank
done

status=0
while [ ${#rank_of[@]} -gt 0 ]; do
  finished=
  wait -n -p finished
  code=$?
  if [ -z "${finished:-}" ]; then
    # A signal to this script ended `wait` early, or the shell has nobody left to wait for.
    [ "$code" -eq 127 ] && break
    continue
  fi
  [ -n "${rank_of[$finished]:-}" ] || continue
  rank=${rank_of[$finished]}
  unset "rank_of[$finished]"
  if [ "$code" -ne 0 ] && [ "$status" -eq 0 ]; then
    status=$code
    if [ -z "$caught" ]; then
      echo "launch_ranks.sh: rank $rank ended with status $code; ending the others" >&2
    fi
    end_all TERM
  fi
done
if [ -n "$caught" ]; then
  rm -rf "$folder"
  trap - EXIT "$caught"
  kill -s "$caught" $$
  # bash ignores SIGQUIT, and may have lost how the ranks ended.
  [ "$status" -ne 0 ] || status=$((128 + $(kill -l "$caught")))
fi
exit "$status"
