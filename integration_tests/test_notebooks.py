"""The notebooks, the README's first example and the demo, in one kernel with the real model, session and engine."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import nbformat
import pytest

from platform_plugin.jdk import use_java

pytestmark = [pytest.mark.ray, pytest.mark.vllm]
pytest.importorskip("vllm", reason="vllm is not installed: the extra `cpu` or `gpu`")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the extra `notebook`")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
EXAMPLE = re.search(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
# Its session is the one that runs.
SHARE = (
    "import contextlib, platform_plugin\nplatform_plugin.spark_on_ray = lambda *_, **__: contextlib.nullcontext(spark)"
)
DEMO = """
import sys
from platform_plugin import cli, session as _made
_made.spark_on_ray = platform_plugin.spark_on_ray
sys.argv[1:] = ["demo", "--json", "--rows", "9"]
try:
    cli.main()
except SystemExit as exit:
    assert not exit.code
"""
# Each notebook begins with the session alone.
FORGET = "for _name in [n for n in dir() if n not in ('session', 'spark') and n[0] != '_']:\n    del globals()[_name]"


def tags(cell: nbformat.NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")


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
    assert EXAMPLE is not None
    example = nbformat.v4.new_code_cell(EXAMPLE[1])
    demo = nbformat.v4.new_code_cell(DEMO)
    whole.cells[1:1] = [nbformat.v4.new_code_cell(SHARE), demo, example, nbformat.v4.new_code_cell(FORGET)]
    nbclient.NotebookClient(whole, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    pictures = [o for cell in whole.cells for o in cell.outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 5
    report = json.loads(printed(demo).splitlines()[-1])
    assert (report["rows"], report["distinct"] + report["reused"], report["failed"]) == (9, 9, {})
    assert report["output_tokens"] > 0
    assert list(report["steps"]) == ["check", "hand over", "engine", "infer", "take back"]
    said = printed(example)
    assert "template field 'clean' is null" in said
    assert "3 = 2 asked + 0 reused + 1 refused" in said
    assert any("rows" in o.get("data", {}).get("text/html", "") for cell in whole.cells for o in cell.outputs)
