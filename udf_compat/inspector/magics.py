"""IPython's magics in a cell: lines that are not Python, hidden from the parser and put back as they were."""

from __future__ import annotations

import re

import libcst as cst

PYTHON_MAGICS = {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "snakeviz", "python", "python3", "px",
                 "debug", "heat", "notify", "skip"}  # fmt: skip
"""Cell magics whose cell is Python."""
OTHER_LANGUAGES = {"sql", "md", "scala", "r", "sh", "fs"}
"""What Databricks writes with one ``%`` on a cell's first line for a cell that is not Python."""

_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_WHOLE = re.compile(r"\s*%(\w+)\b")
_MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:"
    r"[%!?](?!=)"  # %pip install, !ls, ?name
    r"|[A-Za-z_][\w., \t\[\]'\"]*=[ \t]*[%!](?!=)"  # files = !ls, rows = %sql select 1
    r"|[A-Za-z_][\w.\[\]]*\?{1,2}[ \t;]*$"  # name?, name??
    r")"
)


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends; other than ``splitlines``, a form feed ends none."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_python(text: str) -> bool:
    """Whether a code cell holds Python, perhaps with magics."""
    if not text.strip():
        return False
    cell = _CELL_MAGIC.match(text)
    if cell:
        return cell.group(1) in PYTHON_MAGICS
    whole = _WHOLE.match(text)
    return not (whole and whole.group(1).lower() in OTHER_LANGUAGES)


def mask(text: str, token: str) -> str:
    """Return a cell with each magic as ``pass`` and a comment that names its line; as long as it was, in lines."""
    if _parses(text):
        return text
    lines = lines_of(text)
    continued, indent = False, ""
    for index, line in enumerate(lines):
        found = _MAGIC.match(line)
        if not found and not continued:
            continue
        if found and not continued:
            indent = found.group("indent")
        body = line.rstrip("\r\n")
        lines[index] = f"{indent}pass  # {token}:{index}{line[len(body) :]}"
        continued = body.endswith("\\")
    return "".join(lines)


def unmask(text: str, original: str, token: str) -> str:
    """Return a cell with the magics of the original text put back."""
    lines = [line.rstrip("\r\n") for line in lines_of(original)]
    return re.sub(rf"[ \t]*pass  # {re.escape(token)}:(\d+)", lambda found: lines[int(found.group(1))], text)


def _parses(text: str) -> bool:
    try:
        cst.parse_module(text)
    except (cst.ParserSyntaxError, RecursionError):
        return False
    return True
