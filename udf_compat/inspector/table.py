"""How the inspector's report looks on a terminal: the table, the summary and the diff."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterator, Sequence

from udf_compat.inspector.finding import Finding, Verdict
from udf_compat.inspector.inspection import Inspection, Part

COLUMNS = ("where", "name", "kind", "verdict", "why")
LEAST_WHY = 40
"""Characters that the last column has at least; on a narrow terminal the lines then run over."""


def table(findings: Sequence[Finding], width: int | None) -> Iterator[str]:
    """Yield the lines of the table; a finding has one line for each reason.

    Args:
        width: characters of the terminal, None to leave reasons unbroken.
    """
    rows = [(str(one.place), one.name, one.kind, one.verdict.words) for one in findings]
    widths = [max(len(row[i]) for row in [COLUMNS, *rows]) for i in range(4)]
    yield _line(COLUMNS[:4], widths, COLUMNS[4])
    yield _line(["-" * one for one in widths], widths, "-" * len(COLUMNS[4]))
    room = None if width is None else max(LEAST_WHY, width - sum(widths) - 2 * len(widths))
    for finding, row in zip(findings, rows, strict=True):
        reasons = [line for why in finding.why for line in (textwrap.wrap(why, room) if room else [why])]
        yield _line(row, widths, reasons[0] if reasons else "")
        for reason in reasons[1:]:
            yield _line([""] * 4, widths, reason)


def _line(cells: Sequence[str], widths: Sequence[int], last: str) -> str:
    return "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), last]).rstrip()


def summary(inspections: Sequence[Inspection]) -> str:
    """Return one line of counts."""
    findings = [finding for one in inspections for finding in one.findings]
    if not findings:
        return f"No UDF and no stage in {_read(inspections)}."
    counts = {verdict: sum(one.verdict is verdict for one in findings) for verdict in Verdict}
    told = ", ".join(f"{count} {_words(verdict, count)}" for verdict, count in counts.items() if count)
    return f"{told}, in {_read(inspections)}."


def _read(inspections: Sequence[Inspection]) -> str:
    saved = sum(one.path.is_dir() for one in inspections)
    counts = ((len(inspections) - saved, "file"), (saved, "saved pipeline"))
    return " and ".join(_many(count, noun) for count, noun in counts if count) or "nothing"


def _words(verdict: Verdict, count: int) -> str:
    return verdict.words.replace("moves", "move", 1) if count > 1 else verdict.words


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def diff(parts: Sequence[Part]) -> str:
    """Return the unified diff of changed files and cells."""
    return "".join(line for part in parts for line in _diff(part))


def _diff(part: Part) -> Iterator[str]:
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (part.before, part.after))
    name = str(part.place).lstrip("/")
    for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
