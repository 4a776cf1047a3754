"""The commands that the pages of docs/ show, so that tests can run them."""
import os
import re
import shlex
import textwrap

from harness import SOURCE


def pages(folder="docs"):
    """Every page under a folder, by its path from the root of the tree."""
    return sorted(os.path.relpath(os.path.join(parent, name), SOURCE)
                  for parent, _, names in os.walk(os.path.join(SOURCE, folder)) for name in names if name.endswith(".md"))


def blocks_of(page):
    """The code blocks of a page that name no language, also those in lists. A screen begins with `$ `; other blocks show commands or what is printed."""
    found, block = [], None
    with open(os.path.join(SOURCE, page), encoding="utf-8") as file:
        for line in file:
            fence = line.strip().startswith("```")
            if fence and block is None:
                block = (line.strip() == "```", [])
            elif fence:
                found += ["".join(block[1])] if block[0] else []
                block = None
            elif block is not None:
                block[1].append(line)
    return [textwrap.dedent(text) for text in found]


def commands_of(page):
    """The arguments of each `gpuprobe ...` line in the code blocks of a page of docs/."""
    return [shlex.split(line, comments=True)[1:] for block in blocks_of(os.path.join("docs", page)) for line in block.splitlines() if line.startswith("gpuprobe ")]


def shown_commands(page):
    """Every line of a page's code blocks that is a command, in the order of the page; those of screens are finding_pages.py's."""
    return [line.strip() for block in blocks_of(page) if not block.startswith("$ ") for line in block.splitlines()
            if re.match(r"(?:[A-Z][A-Z0-9_]*=\S+ )*[a-z][\w./-]*(?: |$)", line) and not line.startswith((" ", "gpuprobe: "))]
