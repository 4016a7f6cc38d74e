"""Notebooks: cells share their names, magics are no Python, and the JSON changes in the changed cells only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from udf_compat.inspector.finding import Verdict
from udf_compat.inspector.inspection import inspect
from udf_compat.inspector.magics import is_python, mask, unmask


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    lines = source.splitlines(keepends=True) if isinstance(source, str) else source
    body: dict[str, Any] = {"cell_type": kind, "id": "a1", "metadata": {"tags": []}, "source": lines}
    return body | ({"execution_count": 3, "outputs": [{"text": ["1\n"], "n": 1.0}]} if kind == "code" else {})


def notebook(*cells: dict[str, Any], language: str = "python", **layout: Any) -> str:
    metadata = {"language_info": {"name": language}, "kernelspec": {"name": "k", "source": ["decoy"]}}
    whole = {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, **({"indent": 1, "ensure_ascii": False} | layout)) + "\n"


def written(tmp_path: Path, raw: str) -> Path:
    path = tmp_path / "n.ipynb"
    path.write_bytes(raw.encode())
    return path


USES = (
    cell("# Title\nudf é\n", "markdown"),
    cell("%pip install x\n!ls \\\n  -l\nfrom pyspark.sql.functions import col, udf  # é\nfiles = !ls\nos.path?"),
    cell(""),
    cell(
        "%%time\nacc = spark.sparkContext.accumulator(0)\n@udf('int')\ndef f(x):\n    %matplotlib inline\n    return x"
    ),
    cell("%%sql\nselect udf from x"),
    cell("g = udf(lambda x: acc.add(1))\ndf.mapInPandas(f, 's');"),
    cell("df.display()\nf?"),
)


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"indent": 4},
        {"indent": None},
        {"indent": None, "separators": (",", ":")},
        {"ensure_ascii": True},
        {"indent": "\t"},
    ],
    ids=str,
)
def test_only_changed_cells_change(tmp_path: Path, layout: dict[str, Any]) -> None:
    raw = notebook(*USES, **layout)
    path = written(tmp_path, raw)
    found = inspect(path)
    assert found.problems == []
    assert [(one.name, one.place.cell, one.place.line, one.verdict) for one in found.findings] == [
        ("f", 4, 4, Verdict.UNCHANGED),
        ("g", 6, 1, Verdict.CANNOT),
        ("f", 6, 2, Verdict.UNCHANGED),
    ]
    before, after = json.loads(raw), json.loads(found.rewritten or "")
    assert "".join(after["cells"][1]["source"]) == (
        "%pip install x\n!ls \\\n  -l\nfrom pyspark.sql.functions import col, udf  # é\n"
        "from udf_compat import on_ray\nfrom udf_compat.functions import udf as ray_udf\nfiles = !ls\nos.path?"
    )
    assert "".join(after["cells"][3]["source"]) == "".join(USES[3]["source"]).replace("@udf", "@ray_udf")
    assert "".join(after["cells"][5]["source"]) == "".join(USES[5]["source"]).replace("(f,", "(on_ray(f),")
    for index in (1, 3, 5):
        before["cells"][index]["source"] = after["cells"][index]["source"]
    # The same layout, and equal in everything else: then every byte outside of the three cells is the same.
    assert json.dumps(before, **({"indent": 1, "ensure_ascii": False} | layout)) + "\n" == found.rewritten
    assert {part.place.cell for part in found.parts} == {2, 4, 6}


def test_a_second_rewrite_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, notebook(*USES))
    path.write_text(inspect(path).rewritten or "", encoding="utf-8")
    assert inspect(path).rewritten is None


def test_bytes_that_json_would_write_otherwise_are_kept(tmp_path: Path) -> None:
    first, second = "from pyspark.sql.functions import udf", "df.mapInArrow(f, '\\u00e9')"
    raw = (
        '{ "nbformat":4,\r\n"cells" : [ {"cell_type":"code", "source": ["# caf\\u00e9 \\/\\n" ,\r\n'
        ' "%s\\n" , "udf(len)" ], "metadata":{"x":1.50e1}} ,{"cell_type":"code","source":"%s"}\r\n]}'
    )
    found = inspect(written(tmp_path, raw % (first, second)))
    moved = 'from udf_compat.functions import udf\\n" ,\r\n "from udf_compat import on_ray'
    after = raw % (moved, second.replace("(f", "(on_ray(f)"))
    # Between the lines of a source stands what stood between its first two.
    assert found.rewritten == after.replace('\\n" , "udf', '\\n" ,\r\n "udf')


def test_a_first_cell_without_imports_takes_the_import(tmp_path: Path) -> None:
    found = inspect(written(tmp_path, notebook(cell("", "markdown"), cell(""), cell("# go\ndf.mapInArrow(f, s)"))))
    assert ["".join(one["source"]) for one in json.loads(found.rewritten or "")["cells"]] == [
        "", "", "# go\nfrom udf_compat import on_ray\ndf.mapInArrow(on_ray(f), s)",
    ]  # fmt: skip


def test_a_cell_that_does_not_parse_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    cells = (cell("from pyspark.sql.functions import udf"), cell("x = 1\nif :"), cell("f = udf(len)"))
    found = inspect(written(tmp_path, notebook(*cells)))
    assert [one.name for one in found.findings] == ["f"]
    (problem,) = found.problems
    assert (problem.place.cell, problem.place.line) == (2, 2)
    assert "is not Python 3" in problem.message
    assert found.rewritten is not None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "no notebook"),
        ('{"cells": 3}', "no notebook"),
        ('{"worksheets": []}', "nbformat 3"),
    ],
)
def test_what_is_no_notebook_is_named(tmp_path: Path, raw: str, message: str) -> None:
    (problem,) = inspect(written(tmp_path, raw)).problems
    assert message in problem.message


def test_other_languages_are_left_alone(tmp_path: Path) -> None:
    found = inspect(written(tmp_path, notebook(cell("val x = udf((x: Int) => x)"), language="scala")))
    assert (found.findings, found.problems, found.rewritten) == ([], [], None)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("x = 1", True),
        ("%%time\nx", True),
        ("\n%%capture out\nx", True),
        ("%%bash\nls", False),
        ("%%html\n<b>", False),
        ("%sql\nselect 1", False),
        ("%md hello", False),
        ("%pip install x", True),
        ("   \n", False),
    ],
)
def test_which_cells_are_python(text: str, python: bool) -> None:
    assert is_python(text) is python


@pytest.mark.parametrize(
    "text",
    [
        "%pip install a \\\n  b \\\n  c\nx = 1",
        "if x:\n    !ls\n    %cd ..\nelse:\n\t?x\n",
        "a, b = !ls\nx = %sql select 1\nobj.attr??  \n",
        "s = '''\n%pip\n'''\n!ls",
        "x = 7 % 3\ny = (7\n % 3)",
        "%%time\r\nx = 1\r\n",
    ],
)
def test_magics_come_back_as_they_were(text: str) -> None:
    masked = mask(text, "token")
    compile(masked, "cell", "exec")
    assert masked.count("\n") == text.count("\n")
    assert unmask(masked, text, "token") == text
