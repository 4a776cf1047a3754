"""The tables of docs/report-json.md, the schema and the page's types: what `gpuprobe help` prints of the report's declared fields.

usage: GPUPROBE_BUILD_DIR=build/release python3 tests/e2e/report_fields.py --write
"""
import os
import re
import subprocess
import sys

from harness import GPUPROBE, SOURCE

PAGE = os.path.join(SOURCE, "docs", "report-json.md")
# What each file is, by what prints it.
FILES = {"report-schema": os.path.join(SOURCE, "docs", "report.schema.json"),
         "report-types": os.path.join(SOURCE, "collector", "page", "web", "report.d.ts")}
TABLE = re.compile(r"^\| field of `(.+?)` \| meaning \|\n(?:\|.*\n)*", re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def printed(topic):
    return subprocess.run([GPUPROBE, "help", topic], capture_output=True, check=True, timeout=60).stdout.decode()


def tables(text):
    """Each table by what it is of."""
    return {table[1]: table[0] for table in TABLE.finditer(text)}


def page():
    """The page with its tables as they should be; a table that is new has to be put somewhere by hand."""
    known = tables(printed("report-fields"))
    return TABLE.sub(lambda table: known.get(table[1], ""), read(PAGE))


def main():
    for path, text in [(PAGE, page()), *((path, printed(topic)) for topic, path in FILES.items())]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    main()
