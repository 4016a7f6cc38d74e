"""The rewrite changes imports and wraps, and not a byte beside: by cases, and by properties over composed sources."""

from __future__ import annotations

import difflib
import re

import libcst as cst
import pytest
from fake_spark import run
from hypothesis import given, settings
from hypothesis import strategies as st

from udf_compat.inspector.catalogue import MOVED
from udf_compat.inspector.finding import Place
from udf_compat.inspector.names import Names
from udf_compat.inspector.planning import make_plan
from udf_compat.inspector.reading import read
from udf_compat.inspector.rewriting import rewrite


def rewritten(source: str) -> str:
    names = Names(cst.parse_module(source), lambda line: Place("x.py", None, line))
    return rewrite(names.module, make_plan(names, read(names)))


CASES = {
    "one name": (
        "from pyspark.sql.functions import pandas_udf  # for scoring\n",
        "from udf_compat.functions import pandas_udf  # for scoring\n",
    ),
    "all names move, layout kept": (
        "from pyspark.sql.functions import (\n    udf as u,  # rows\n    pandas_udf,\n)\n",
        "from udf_compat.functions import (\n    udf as u,  # rows\n    pandas_udf,\n)\n",
    ),
    "others stay": (
        "from pyspark.sql.functions import col, pandas_udf, lit\n",
        "from pyspark.sql.functions import col, lit\nfrom udf_compat.functions import pandas_udf\n",
    ),
    "first and last move": (
        "from pyspark.sql.functions import udf, col, pandas_udf as p  # all\nx = 1\n",
        "from pyspark.sql.functions import col  # all\nfrom udf_compat.functions import udf, pandas_udf as p\nx = 1\n",
    ),
    "parentheses on one line": (
        "from pyspark.sql.functions import (col, udf)\n",
        "from pyspark.sql.functions import (col)\nfrom udf_compat.functions import udf\n",
    ),
    "a comment goes with its name": (
        "from pyspark.sql.functions import (\n    col,  # columns\n    pandas_udf,  # ours\n)\n",
        "from pyspark.sql.functions import (\n    col,  # columns\n)\n"
        "from udf_compat.functions import (\n    pandas_udf,  # ours\n)\n",
    ),
    "a comment goes with its name, no comma at the end": (
        "from pyspark.sql.functions import (\n    col,  # columns\n    udf  # ours\n)\n",
        "from pyspark.sql.functions import (\n    col,  # columns\n)\n"
        "from udf_compat.functions import (\n    udf,  # ours\n)\n",
    ),
    "many lines without comments": (
        "from pyspark.sql.functions import (\n    col,\n    pandas_udf,\n    lit,\n    udf,\n)\n",
        "from pyspark.sql.functions import (\n    col,\n    lit,\n)\n"
        "from udf_compat.functions import pandas_udf, udf\n",
    ),
    "backslash": (
        "from pyspark.sql.functions import col, \\\n    udf\n",
        "from pyspark.sql.functions import col\nfrom udf_compat.functions import udf\n",
    ),
    "in a function": (
        "def f():\n\tfrom pyspark.sql.functions import udf, col\n\treturn udf, col\n",
        "def f():\n\tfrom pyspark.sql.functions import col\n\tfrom udf_compat.functions import udf\n"
        "\treturn udf, col\n",
    ),
    "on one line with others": (
        "import os; from pyspark.sql.functions import udf, col; x = 1\n",
        "import os; from pyspark.sql.functions import col; from udf_compat.functions import udf; x = 1\n",
    ),
    "after a colon": (
        "if True: from pyspark.sql.functions import udf, col\n",
        "if True: from pyspark.sql.functions import col; from udf_compat.functions import udf\n",
    ),
    "no newline at the end": (
        "from pyspark.sql.functions import col, udf",
        "from pyspark.sql.functions import col\nfrom udf_compat.functions import udf",
    ),
    "windows line ends": (
        "from pyspark.sql.functions import col, udf\r\nx = 1\r\n",
        "from pyspark.sql.functions import col\r\nfrom udf_compat.functions import udf\r\nx = 1\r\n",
    ),
    "predict_batch_udf": (
        "from pyspark.ml.functions import predict_batch_udf, vector_to_array\n",
        "from pyspark.ml.functions import vector_to_array\nfrom udf_compat.functions import predict_batch_udf\n",
    ),
    "module alias": (
        "import pyspark.sql.functions as F\n\n\n@F.udf('int')\ndef f(x):\n    return F.lit(x)\n",
        "import pyspark.sql.functions as F\nfrom udf_compat.functions import udf\n\n\n"
        "@udf('int')\ndef f(x):\n    return F.lit(x)\n",
    ),
    "module by its full name": (
        "import pyspark.sql.functions\nf = (pyspark.sql.functions.udf)(len, 'int')\n",
        "import pyspark.sql.functions\nfrom udf_compat.functions import udf\nf = (udf)(len, 'int')\n",
    ),
    "a name that something else has": (
        "from pyspark.sql import functions as F\nudf = F.udf(len, 'int')\nlower = F.udf(str.lower)\n",
        "from pyspark.sql import functions as F\nfrom udf_compat.functions import udf as ray_udf\n"
        "udf = ray_udf(len, 'int')\nlower = ray_udf(str.lower)\n",
    ),
    "star import": (
        "from pyspark.sql.functions import *\nf = udf(len, 'int')\n",
        "from pyspark.sql.functions import *\nfrom udf_compat.functions import udf\nf = udf(len, 'int')\n",
    ),
    "star import behind the name": (
        "from pyspark.sql.functions import udf\nfrom pyspark.sql.functions import *\nf = udf(len, 'int')\n",
        "from udf_compat.functions import udf\nfrom pyspark.sql.functions import *\n"
        "from udf_compat.functions import udf\nf = udf(len, 'int')\n",
    ),
    "frames": (
        '"""Doc."""\nimport os\n\ndef m(it):\n    yield from it\n\n\nout = (\n    df.mapInPandas(m, "a int")  # one\n'
        '    .groupBy("a")\n    .applyInPandas(func=lambda p: p, schema="a int")\n)\n',
        '"""Doc."""\nimport os\nfrom udf_compat import on_ray\n\ndef m(it):\n    yield from it\n\n\nout = (\n'
        '    df.mapInPandas(on_ray(m), "a int")  # one\n    .groupBy("a")\n'
        '    .applyInPandas(func=on_ray(lambda p: p), schema="a int")\n)\n',
    ),
    "no import to stand behind": (
        "#!/usr/bin/env python\n# about\n\ndf.mapInArrow(f, s)\n",
        "#!/usr/bin/env python\n# about\n\nfrom udf_compat import on_ray\ndf.mapInArrow(on_ray(f), s)\n",
    ),
    "a docstring and __future__": (
        '"""Doc."""\nfrom __future__ import annotations\n\ndf.mapInArrow(f, s)\n',
        '"""Doc."""\nfrom __future__ import annotations\nfrom udf_compat import on_ray\n\n'
        "df.mapInArrow(on_ray(f), s)\n",
    ),
    "the unbound method": (
        "from pyspark.sql import DataFrame\nDataFrame.mapInPandas(df, f, s)\n",
        "from pyspark.sql import DataFrame\nfrom udf_compat import on_ray\nDataFrame.mapInPandas(df, on_ray(f), s)\n",
    ),
    "on_ray is something else": (
        "def on_ray(x):\n    return x\ndf.mapInArrow(f, s)\n",
        "from udf_compat import on_ray as ray_on_ray\ndef on_ray(x):\n    return x\ndf.mapInArrow(ray_on_ray(f), s)\n",
    ),
    "register a plain function": (
        "import os\nspark.udf.register('n', lambda x: x, 'int')\nspark.udf.register(\n    'm',\n    len,  # f\n"
        "    returnType='int',\n)\n",
        "import os\nfrom udf_compat.functions import udf\nspark.udf.register('n', udf(lambda x: x, 'int'))\n"
        "spark.udf.register(\n    'm',\n    udf(len,  # f\n    returnType='int'),\n)\n",
    ),
    "what cannot move keeps Spark's name": (
        "from pyspark.sql.functions import udf\nacc = sc.accumulator(0)\n\n@udf\ndef a(x):\n    acc.add(1)\n\n"
        "@udf\ndef b(x):\n    return x\n",
        "from pyspark.sql.functions import udf\nfrom udf_compat.functions import udf as ray_udf\n"
        "acc = sc.accumulator(0)\n\n@udf\ndef a(x):\n    acc.add(1)\n\n@ray_udf\ndef b(x):\n    return x\n",
    ),
}
UNCHANGED = {
    "nothing": "",
    "only what cannot move": "from pyspark.sql.functions import udf\n@udf\ndef f(x):\n    return spark.sql(x)\n",
    "ours already": "from udf_compat.functions import udf\nfrom udf_compat import on_ray\n"
    "df.mapInArrow(on_ray(f), s)\n",
    "a fallback": "try:\n    from udf_compat.functions import udf\nexcept ImportError:\n"
    "    from pyspark.sql.functions import udf\nf = udf(len)\n",
    "marked": "from udf_compat import on_ray\n@on_ray(shared_prologue=True)\ndef f(it):\n    yield from it\n"
    "df.mapInArrow(f, s)\n",
    "given before": "import udf_compat as u\ng = u.on_ray(f)\ndf.mapInArrow(g, s)\n",
    "other names": "from pyspark.sql.functions import col, PandasUDFType\nimport pyspark.sql.functions as F\n"
    "F.col('a')\n",
    "names of others": "from mine import udf, pandas_udf\n@udf\ndef f(x): return x\nmine.udf(x)\n",
    "arguments that are not to be seen": "df.mapInPandas(*args)\ndf.applyInPandas(**kw)\nspark.udf.register(*args)\n",
    "in place of Spark's": "import pyspark.sql.functions as F\nF.udf = mine\ndel F.pandas_udf\n",
    "streaming state": "df.applyInPandasWithState(f, a, b, 'append', t)\n",
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_rewrites(before: str, after: str) -> None:
    assert rewritten(before) == after


@pytest.mark.parametrize("source", UNCHANGED.values(), ids=UNCHANGED)
def test_leaves_alone(source: str) -> None:
    assert rewritten(source) == source


@pytest.mark.parametrize("source", [before for before, _ in CASES.values()], ids=CASES)
def test_a_second_rewrite_changes_nothing(source: str) -> None:
    once = rewritten(source)
    assert rewritten(once) == once


IMPORTS = [
    "import pandas as pd\n",
    "import os, functools\n",
    "import pyspark.sql.functions as F\n",
    "from pyspark.sql import functions as F\n",
    "from pyspark.sql.functions import pandas_udf\n",
    "from pyspark.sql.functions import udf as u, col\n",
    "from pyspark.sql.functions import (\n    col,  # a column\n    udf,  # rows\n    pandas_udf  # batches\n)\n",
    "from pyspark.sql.functions import *\n",
    "from pyspark.sql import SparkSession, types as T\n",
    "from pyspark.ml.functions import predict_batch_udf as pb, vector_to_array\n",
    "try:\n    from pyspark.sql.functions import udf\nexcept ImportError:\n    udf = None\n",
    "import pyspark.sql.functions; import sys\n",
]
ALWAYS = (
    "import pandas as pd\nimport pyspark.sql.functions as F, pyspark.sql.functions\n"
    "from pyspark.sql.functions import udf, pandas_udf\nfrom pyspark.sql.functions import udf as u, lit\n"
    "from pyspark.sql import types as T\nfrom pyspark.ml.functions import predict_batch_udf as pb\n"
)
PARTS = [
    "\n\n@udf('int')  # the first\ndef plus(x):\n    return x + 1\n",
    "\n@pandas_udf('long')\ndef scalar(s: pd.Series) -> pd.Series:\n\treturn s\n",
    "@F.pandas_udf(returnType='long')\ndef total(s: pd.Series) -> int:\n    '''Sum.'''\n    return s.sum()\n",
    "length = F.udf(lambda x: len(x), T.IntegerType())\n",
    "shout = pyspark.sql.functions.udf(str.upper).asNondeterministic()\n",
    "acc = spark.sparkContext.accumulator(0)\n@u\ndef counted(x):\n    acc.add(1)\n    return x\n",
    "@udf\ndef asks(x):\n    return spark.table(x)\n",
    "def helper(x):\n    return spark.sql(x)\ng = F.udf(helper)\n",
    "double = pandas_udf('double')\n@double\ndef twice(s: pd.Series) -> pd.Series: return s * 2\n",
    "h = pb(lambda: None, return_type=T.IntegerType(), batch_size=8)\n",
    "df.mapInPandas(lambda it: it, 'a int').groupBy('a').applyInPandas(func=lambda p: p, schema='a int')\n",
    "def m(it):\n    yield from it\nout = df.mapInArrow(\n    m,  # the function\n    'a int',\n)\n",
    "df.groupBy('a').cogroup(df).applyInPandas(lambda a, b: a, 'a int'); spark.udf.register('n', len, 'int')\n",
    "def inner():\n    from pyspark.sql.functions import udf as v, col\n    return v(lambda x: x, 'int')\ninner()\n",
    "spark.udf.register('made', F.udf(lambda x: x))\n",
    "class Scorer:\n    import pyspark.sql.functions as G\n    f = G.udf(len)\n"
    "    def go(self, it):\n        yield from it\n"
    "    def on(self, df):\n        return df.mapInPandas(self.go, 's')\nScorer().on(df)\n",
    "# a comment\nx = '''\nfrom pyspark.sql.functions import udf\n'''\n\n\n",
    "if True: w = F.udf(len)\n",
]
TOUCHED = re.compile(r"import|udf|mapIn|applyIn|double|self\.go|  m,|len|'int'|\bu\b|[(),]\s*(#.*)?$")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    imports=st.lists(st.sampled_from(IMPORTS), max_size=5, unique=True),
    parts=st.lists(st.sampled_from(PARTS), max_size=7),
    head=st.sampled_from(["", '"""Doc."""\n', "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n\n", "\n\n"]),
    ends=st.sampled_from(["\n", "\r\n"]),
    cut=st.booleans(),
)
def test_a_rewritten_source_does_the_same_on_ray(
    imports: list[str], parts: list[str], head: str, ends: str, cut: bool
) -> None:
    source = (head + "".join(imports) + ALWAYS + "".join(parts)).replace("\n", ends)
    source = source.rstrip() if cut else source
    once = rewritten(source)
    assert rewritten(once) == once, "idempotent"
    before, after = run(source), run(once)
    assert [one[1:] for one in before] == [one[1:] for one in after]
    assert {one[0] for one in before} <= {"spark"}
    for who, what, name in after:
        stays = name in {"counted", "asks", "helper"} or what == "register"
        assert who == ("spark" if stays else "ours"), (what, name)
    changed = difflib.SequenceMatcher(
        None, *(text.splitlines(keepends=True) for text in (source, once)), autojunk=False
    )
    for tag, a, b, c, d in changed.get_opcodes():
        if tag != "equal":
            lines = source.splitlines()[a:b] + once.splitlines()[c:d]
            assert all(TOUCHED.search(line) for line in lines), lines


def test_comments_are_kept() -> None:
    source = ALWAYS + "".join(IMPORTS) + "".join(PARTS)
    comments = re.findall(r"#.*", source)
    assert sorted(re.findall(r"#.*", rewritten(source))) == sorted(comments)


def test_what_is_imported_is_there() -> None:
    import udf_compat
    from udf_compat import functions

    assert {name.rpartition(".")[2] for name in MOVED} <= set(functions.__all__)
    assert "on_ray" in udf_compat.__all__
