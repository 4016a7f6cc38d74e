"""The notebooks, run in order in one kernel with the real model: one session and one engine serve them all."""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
import pytest

from platform_plugin.jdk import use_java

pytestmark = [pytest.mark.ray, pytest.mark.vllm]
pytest.importorskip("vllm", reason="vllm is not installed: the extra `cpu` or `gpu`")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the extra `notebook`")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# Each notebook begins with the session alone.
FORGET = "for _name in [n for n in dir() if n not in ('session', 'spark') and n[0] != '_']:\n    del globals()[_name]"


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_committed_without_outputs(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    assert "start" in tags(code[0])
    assert tags(code[-1]) == ["stop"]


@pytest.mark.timeout(1500)
def test_notebooks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_java()
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    whole = nbformat.v4.new_notebook()
    for number, path in enumerate(NOTEBOOKS):
        book = nbformat.read(path, as_version=4)
        cells = [copy.deepcopy(cell) for cell in book.cells if cell.cell_type == "code"]
        cells = cells[: len(cells) - (number < len(NOTEBOOKS) - 1)]
        whole.cells += cells if number == 0 else [nbformat.v4.new_code_cell(FORGET), *cells[1:]]
    nbclient.NotebookClient(whole, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [o for cell in whole.cells for o in cell.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 5
    assert any("rows" in o.get("data", {}).get("text/html", "") for cell in whole.cells for o in cell.outputs)
