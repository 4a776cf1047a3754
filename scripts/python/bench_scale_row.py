"""One row of `bench.sh --scale`: bench_scale_row.py RANKS FOLDER PROGRAM."""
import re
import resource
import subprocess
import sys

ranks, out, program = int(sys.argv[1]), sys.argv[2], sys.argv[3]
line = open(f"{out}/live").read().splitlines()[-1]
records, cpu_s, mib = re.search(r": (\d+) records in .* used ([\d.]+) s of CPU and ([\d.]+) MiB", line).groups()
subprocess.run([program, "report", f"{out}/run"], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"| {ranks:,} | {int(records):,} | {cpu_s} s | {mib} MiB | {used.ru_utime + used.ru_stime:.2f} s | {used.ru_maxrss / 1024:.0f} MiB | "
      f"{float(mib) / ranks:.2f} MiB | {float(cpu_s) / int(records) * 1e6:.2f} s |")
