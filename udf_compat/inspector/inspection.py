"""One file or saved pipeline: what is found in it, and its text after the rewrite."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from udf_compat.inspector.finding import Finding, Place, Problem
from udf_compat.inspector.names import Names
from udf_compat.inspector.notebook import Cell, Notebook, NotebookError
from udf_compat.inspector.planning import make_plan
from udf_compat.inspector.reading import read
from udf_compat.inspector.rewriting import rewrite
from udf_compat.inspector.saved import read_saved
from udf_compat.inspector.sources import Text, load

_OF_INTEREST = re.compile(
    r"udf|mapIn(Pandas|Arrow)|applyInPandas|transformWithState|pyspark\.ml|pyspark import .*\bml\b|platform_plugin"
)
"""What a text must hold to be read closely, which takes a hundred times as long as parsing it."""


@dataclass(frozen=True)
class Part:
    """A file, or a cell of a notebook, before and after the rewrite."""

    place: Place
    before: str
    after: str


@dataclass
class Inspection:
    """What is known of one file or folder after it was read."""

    path: Path
    findings: list[Finding] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    source: Text | None = None
    rewritten: str | None = None
    """The whole text after the rewrite; None where nothing changes."""
    parts: list[Part] = field(default_factory=list)
    """The changed file, or the changed cells of a notebook."""


def inspect(path: Path) -> Inspection:
    """Read a Python file, a notebook or the folder of a saved stage. Never raises for what it finds there."""
    result = Inspection(path)
    if path.is_dir():
        for one in read_saved(path):
            (result.findings if isinstance(one, Finding) else result.problems).append(one)  # type: ignore[arg-type]
        return result
    try:
        result.source = load(path)
        if path.suffix == ".ipynb":
            _notebook(result, result.source.text)
        else:
            _python(result, result.source.text)
    except OSError as exc:
        result.problems.append(Problem(Place(str(path)), f"cannot be read: {exc.strerror}"))
    except ValueError as exc:  # of the encoding, or no notebook
        reason = str(exc) if isinstance(exc, NotebookError) else f"is not text: {exc}"
        result.problems.append(Problem(Place(str(path)), reason))
    return result


def _python(result: Inspection, text: str) -> None:
    file = str(result.path)
    module = _parse(text, result, lambda line: Place(file, None, line))
    if module is None or not _OF_INTEREST.search(text):
        return
    result.findings, after = _inspect(module, lambda line: Place(file, None, line), "")
    if after != text:
        result.rewritten = after
        result.parts = [Part(Place(file), text, after)]


def _notebook(result: Inspection, raw: str) -> None:
    file = str(result.path)
    notebook = Notebook(raw)
    cells: list[Cell] = []
    for cell in notebook.cells:
        at = _placed(notebook, [cell], file)
        if _parse(notebook.join([cell]), result, at) is not None:
            cells.append(cell)
    if not cells or not _OF_INTEREST.search("".join(cell.text for cell in cells)):
        return
    place = _placed(notebook, cells, file)
    joined = notebook.join(cells)
    module = _parse(joined, result, place)
    if module is None:
        return
    result.findings, after = _inspect(module, place, notebook.marker)
    if after == joined:
        return
    texts = notebook.split(after, cells)
    result.rewritten = notebook.replace(texts)
    changed = (cell for cell in cells if texts[cell.number] != cell.text)
    result.parts = [Part(Place(file, cell.number), cell.text, texts[cell.number]) for cell in changed]


def _placed(notebook: Notebook, cells: list[Cell], file: str) -> Callable[[int], Place]:
    return lambda line: Place(file, *notebook.place(cells, line))


def _inspect(module: cst.Module, place: Callable[[int], Place], marker: str) -> tuple[list[Finding], str]:
    names = Names(module, place)
    found = read(names)
    after = rewrite(names.module, make_plan(names, found), marker)
    return [one.finding for one in found], after


def _parse(text: str, result: Inspection, place: Callable[[int], Place]) -> cst.Module | None:
    """Return the module, or None after noting why there is none."""
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as exc:
        line, message = _explained(text, exc)
        result.problems.append(Problem(place(line), f"is not Python 3: {message}"))
        return None
    except RecursionError:
        result.problems.append(Problem(Place(str(result.path)), "is nested too deeply to be read"))
        return None
    if module.code != text:
        result.problems.append(Problem(Place(str(result.path)), "would not be written back as it is; left alone"))
        return None
    return module


def _explained(text: str, error: cst.ParserSyntaxError) -> tuple[int, str]:
    """Return the line and the reason in Python's own words, which say more; libcst's where Python takes the text."""
    try:
        ast.parse(text)
    except SyntaxError as exc:
        return exc.lineno or 1, exc.msg
    except (ValueError, RecursionError, MemoryError):
        pass
    return max(error.raw_line, 1), error.message.partition("\n")[0]
