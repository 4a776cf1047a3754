#!/bin/sh
# Slurm's Epilog: removes what programs that Slurm killed have left on the node, when their user has no process there any more (docs/deploy.md).
#
# Slurm runs this as root on each node of a job that has ended, and drains a node whose epilog fails. So it always ends with 0. Everything is
# removed as the user, who could have put links anywhere: nothing of others can be lost.

user=${SLURM_JOB_UID:-}
group=${SLURM_JOB_GID:-$user}
case "$user" in
  "" | *[!0-9]*) exit 0 ;;
esac

if stat -c %u /proc/[0-9]* 2>/dev/null | grep -qx "$user"; then
  exit 0
fi

as_user() { setpriv --reuid="$user" --regid="$group" --clear-groups -- "$@" 2>/dev/null; }
# Sockets of collectors that programs started for themselves, and where ranks met.
as_user rm -rf "/tmp/gpuprobe-$user"
# Last moments of programs whose collector was killed, too, for gpuprobe autopsy: a day is time to read them.
as_user find "/dev/shm/gpuprobe-$user" -mindepth 1 -mmin +1440 -delete
as_user rmdir "/dev/shm/gpuprobe-$user"
exit 0
