#!/usr/bin/env python3
"""Whether two builds of gpuprobe report the same: every scenario of `gpuprobe simulate` is recorded with the first, both report on each
recording and on those of tests/data/real, and the outputs are compared byte for byte.

usage: compare_reports.py BEFORE AFTER [--runs DIR] [--only WORD]

BEFORE and AFTER are gpuprobe programs. The recordings stay in --runs (a temporary folder without it), so that a second call need not record
again. Compared are report.json with all ranks and steps, and the screen. Standard library only.
"""
import argparse
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REAL = os.path.join(ROOT, "tests", "data", "real")
VIEWS = {"json": ["--json", "--steps"], "screen": []}


def call(program, *arguments):
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def scenarios(program):
    return [line.split()[0] for line in call(program, "simulate", "--list").decode().splitlines() if line.strip()]


def record(program, folder, *arguments):
    if not os.path.isdir(folder):
        call(program, "simulate", *arguments, "--out", folder)


def differs(before, after, view, folder):
    return call(before, "report", folder, *VIEWS[view]) != call(after, "report", folder, *VIEWS[view])


def main():
    parser = argparse.ArgumentParser(description="Compares the reports of two builds.")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--runs")
    parser.add_argument("--only", default="", help="only recordings whose name contains this")
    options = parser.parse_args()
    before, after = os.path.abspath(options.before), os.path.abspath(options.after)
    with tempfile.TemporaryDirectory() as temporary:
        runs = os.path.abspath(options.runs or temporary)
        os.makedirs(runs, exist_ok=True)
        folders = {}
        for name in scenarios(before):
            if options.only in name:
                folders[name] = os.path.join(runs, name)
                record(before, folders[name], "--scenario", name)
        for name in sorted(os.listdir(REAL)):
            if options.only in name and os.path.isdir(os.path.join(REAL, name)):
                folders["real/" + name] = os.path.join(REAL, name)
        bad = [(name, view) for name, folder in folders.items() for view in VIEWS if differs(before, after, view, folder)]
    for name, view in bad:
        print(f"{name}: the {view} differs")
    print(f"{len(folders)} recordings, {len(bad)} differences")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
