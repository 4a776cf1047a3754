#!/usr/bin/env python3
"""The tables of docs/clickhouse.md, from the statements that make them: clickhouse_tables.py [--write]. Ends with 1 if the document has others."""
import os
import re
import subprocess
import sys

BUILD = os.environ["GPUPROBE_BUILD_DIR"]
DOCUMENT = os.path.join(os.environ["GPUPROBE_SOURCE_DIR"], "docs", "clickhouse.md")
BEGIN = "<!-- tables: tests/e2e/clickhouse_tables.py --write -->\n"
END = "<!-- end -->"


def text(literal):
    return literal.replace("\\'", "'").replace("\\\\", "\\")


def tables():
    sql = subprocess.run([os.path.join(BUILD, "collector", "gpuprobe"), "hub", "--clickhouse", "http://ch:8123", "--dry-run"], capture_output=True, text=True, check=True, timeout=60).stdout
    out = []
    for statement in sql.split(";\n"):
        made = re.search(r"CREATE TABLE IF NOT EXISTS gpuprobe\.(\w+)\n\((.*?)\n\)\nENGINE = (.*?)\nPARTITION .*?INTERVAL (\d+) DAY.*\nCOMMENT '(.*)'", statement, re.DOTALL)
        if not made:
            continue
        name, columns, engine, days, meaning = made.groups()
        out.append(f"### `{name}`\n{text(meaning)[0].upper()}{text(meaning)[1:]}. Kept for {days} days{'; read it with `FINAL`' if 'Replacing' in engine else ''}.\n\n| column | type | meaning |\n|---|---|---|\n")
        for column, kind, comment in re.findall(r"`(\w+)` (.*?) CODEC\(.*?\) COMMENT '(.*)'", columns):
            out.append(f"| `{column}` | `{kind}` | {text(comment)} |\n")
        out.append("\n")
    out.append("### `step_minutes`, `step_hours`\nSums of the steps of a rank that began in a minute or an hour, of those that are complete and not of the warm-up: `steps`, the sum of each of their times, `min_total_ns` and "
               "`max_total_ns`, and `total_ns_quantiles` (`quantilesTDigestMerge(0.5, 0.99)`). Kept for 90 and 730 days.\n")
    return "".join(out)


def main():
    with open(DOCUMENT, encoding="utf-8") as file:
        document = file.read()
    head, rest = document.split(BEGIN)
    made = head + BEGIN + tables() + rest[rest.index(END):]
    if made == document:
        return 0
    if "--write" not in sys.argv:
        print(f"{DOCUMENT} has other tables: {__file__} --write")
        return 1
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
