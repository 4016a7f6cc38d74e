"""What the inspector reports: findings about UDFs and stages, and problems with what it was given to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a UDF or stage moves to Ray actors."""

    UNCHANGED = "unchanged"
    NOTE = "note"
    CANNOT = "cannot"

    @property
    def words(self) -> str:
        """The verdict as the table says it."""
        return {"unchanged": "moves unchanged", "note": "moves with a note", "cannot": "cannot move"}[self.value]


@dataclass(frozen=True, order=True)
class Place:
    """Where something stands; `cell` counts all cells of a notebook from 1, `line` the lines of the cell."""

    file: str
    cell: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        cell = "" if self.cell is None else f"[{self.cell}]"
        return f"{self.file}{cell}" + ("" if self.line is None else f":{self.line}")


@dataclass(frozen=True)
class Remark:
    """One reason for a verdict; UNCHANGED for what is only said, as that broadcast variables are carried over."""

    verdict: Verdict
    text: str


@dataclass
class Finding:
    """One UDF or stage."""

    place: Place
    name: str
    kind: str
    remarks: list[Remark] = field(default_factory=list)

    @property
    def verdict(self) -> Verdict:
        """The gravest of the remarks' verdicts."""
        return max((remark.verdict for remark in self.remarks), key=list(Verdict).index, default=Verdict.UNCHANGED)

    @property
    def why(self) -> list[str]:
        """The reasons, gravest first, each once; of what cannot move only why."""
        ranked = sorted(self.remarks, key=lambda remark: -list(Verdict).index(remark.verdict))
        told = [one.text for one in ranked if self.verdict in (one.verdict, Verdict.NOTE, Verdict.UNCHANGED)]
        return list(dict.fromkeys(told))


@dataclass(frozen=True)
class Problem:
    """Something that could not be read or written."""

    place: Place
    message: str


def as_json(finding: Finding) -> dict[str, object]:
    """Return a finding as it stands in the output of ``--json``."""
    place = finding.place
    return {
        "file": place.file,
        "cell": place.cell,
        "line": place.line,
        "name": finding.name,
        "kind": finding.kind,
        "verdict": finding.verdict.value,
        "why": finding.why,
    }
