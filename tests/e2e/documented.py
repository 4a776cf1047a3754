"""The commands that a page of docs/ shows, so that tests can run them."""
import os
import re
import shlex

from harness import SOURCE


def commands_of(page):
    """The arguments of each `gpuprobe ...` line in the page's code blocks."""
    with open(os.path.join(SOURCE, "docs", page), encoding="utf-8") as file:
        blocks = re.findall(r"^```\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line, comments=True)[1:] for block in blocks for line in block.splitlines() if line.startswith("gpuprobe ")]
