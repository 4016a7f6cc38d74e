"""Notebooks: their code cells as one Python module, and back into their JSON with only the changed cells changed."""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from udf_compat.inspector.magics import is_python, lines_of, mask, unmask

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(strict=False)


class NotebookError(ValueError):
    """Raised for JSON that is no notebook, or one of a kind that is not read."""


@dataclass
class Cell:
    """A code cell: its number among all cells from 1, its text, and where its source stands in the JSON."""

    number: int
    text: str
    span: tuple[int, int]


class Notebook:
    """The Python cells of a notebook that parse, as one module: they share their names."""

    def __init__(self, raw: str) -> None:
        """Read the JSON of a notebook.

        Raises:
            NotebookError: it is not one of nbformat 4.
        """
        self.raw = raw
        self.cells = list(_code_cells(raw))
        self.token = "cell-of-platform-plugin"
        while self.token in raw:
            self.token += "-"

    @property
    def marker(self) -> str:
        """The beginning of the comment that stands before each cell in the module."""
        return f"# {self.token} "

    def join(self, cells: list[Cell]) -> str:
        """Return the module: each cell after its marker, its magics as ``pass``."""
        return "".join(f"{self.marker}{cell.number}\n{mask(cell.text, self.token)}{_end(cell)}" for cell in cells)

    def place(self, cells: list[Cell], line: int) -> tuple[int, int]:
        """Return the number of the cell, and the line in it, of a line of the module."""
        starts = [0]
        for cell in cells:
            starts.append(starts[-1] + 1 + (cell.text + _end(cell)).count("\n"))
        index = bisect.bisect_left(starts, line) - 1
        return cells[index].number, line - starts[index] - 1

    def split(self, module: str, cells: list[Cell]) -> dict[int, str]:
        """Return the text of each cell of a rewritten module, by its number."""
        found: dict[int, list[str]] = {}
        for line in lines_of(module):
            if line.startswith(self.marker):
                current = found.setdefault(int(line.removeprefix(self.marker)), [])
            else:
                current.append(line)
        texts = {}
        for cell in cells:
            text = "".join(found[cell.number])
            if _end(cell):
                text = text.removesuffix("\n")
            texts[cell.number] = unmask(text, cell.text, self.token)
        return texts

    def replace(self, texts: dict[int, str]) -> str:
        """Return the JSON with new texts of cells; each source keeps its layout, and its lines that are unchanged."""
        raw = self.raw
        for cell in reversed(self.cells):
            text = texts.get(cell.number, cell.text)
            if text != cell.text:
                begin, end = cell.span
                raw = raw[:begin] + _encode(raw[begin:end], text, raw) + raw[end:]
        return raw


def _end(cell: Cell) -> str:
    return "" if cell.text.endswith("\n") else "\n"


def _code_cells(raw: str) -> Iterator[Cell]:
    """Yield the code cells of a notebook in Python; of another language there are none."""
    try:
        notebook = json.loads(raw, strict=False)
    except ValueError as exc:
        raise NotebookError(f"is not JSON: {exc}") from exc
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise NotebookError("is of nbformat 3: convert it with `jupyter nbconvert --to notebook --inplace`")
        raise NotebookError("is JSON, but no notebook: it has no list of cells")
    if not _language(notebook).startswith("python"):
        return
    for number, fields in enumerate(_fields_of_cells(raw), start=1):
        begin, end = fields.get("source", (0, 0))
        kind = fields.get("cell_type")
        if kind is None or end == 0 or json.loads(raw[slice(*kind)]) != "code":
            continue
        source = json.loads(raw[begin:end], strict=False)
        text = "".join(source) if isinstance(source, list) else str(source)
        if is_python(text):
            yield Cell(number, text, (begin, end))


def _language(notebook: dict[str, object]) -> str:
    metadata = notebook.get("metadata")
    if not isinstance(metadata, dict):
        return "python"
    info, kernel = metadata.get("language_info"), metadata.get("kernelspec")
    for part, key in ((info, "name"), (kernel, "language")):
        if isinstance(part, dict) and isinstance(part.get(key), str):
            return str(part[key]).lower()
    return "python"


def _fields_of_cells(raw: str) -> Iterator[dict[str, tuple[int, int]]]:
    """Yield the spans of the values of each cell."""
    span = dict(_fields(raw, _skip(raw, 0)))["cells"]
    at = _skip(raw, span[0] + 1)
    while raw[at] != "]":
        fields = dict(_fields(raw, at))
        yield fields
        at = _skip(raw, _DECODER.raw_decode(raw, at)[1])
        if raw[at] == ",":
            at = _skip(raw, at + 1)


def _fields(raw: str, at: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each key of the JSON object that begins at `at`, with the span of its value."""
    at = _skip(raw, at + 1)
    while raw[at] != "}":
        key, at = _DECODER.raw_decode(raw, at)
        begin = _skip(raw, _skip(raw, at) + 1)
        end = _DECODER.raw_decode(raw, begin)[1]
        yield key, (begin, end)
        at = _skip(raw, end)
        if raw[at] == ",":
            at = _skip(raw, at + 1)


def _skip(raw: str, at: int) -> int:
    found = _SPACE.match(raw, at)
    return found.end() if found else at


def _encode(old: str, text: str, raw: str) -> str:
    """Return the JSON of a cell's new text in the layout of the old one: a string, or a list of lines."""
    ascii_only = raw.isascii()
    if not old.startswith("["):
        return json.dumps(text, ensure_ascii=ascii_only)
    items, at = [], _skip(old, 1)
    opening, between = old[1:at], ""
    while old[at] != "]":
        end = _DECODER.raw_decode(old, at)[1]
        items.append(old[at:end])
        at = _skip(old, end)
        closing = old[end:at]
        if old[at] == ",":
            begin, at = at, _skip(old, at + 1)
            between = between or closing + old[begin:at]
    known = {_DECODER.decode(item): item for item in items}
    lines = [known.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in lines_of(text)]
    return "[" + opening + (between or "," + opening).join(lines) + closing + "]"
