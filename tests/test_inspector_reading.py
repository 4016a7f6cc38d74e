"""What the inspector finds in a source: each way to make a UDF, its kind, and whether it moves."""

from __future__ import annotations

import libcst as cst
import pytest

from udf_compat.inspector.finding import Finding, Place, Verdict
from udf_compat.inspector.names import Names
from udf_compat.inspector.reading import read

HEAD = """\
import functools
import mlflow
import joblib
import torch
import pandas as pd
import pyspark
import pyspark.sql.functions as F
from collections.abc import Iterator
from typing import Tuple
from pyspark import SparkContext, TaskContext, BarrierTaskContext, SparkFiles
from pyspark.ml import Transformer, UnaryTransformer, feature
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame, SparkSession, functions, types as T
from pyspark.sql.functions import pandas_udf as pu, udf, PandasUDFType
from pyspark.sql.types import LongType
from transformers import AutoModel, AutoModelForCausalLM, pipeline
session = SparkSession.builder.appName("x").getOrCreate()
sc = session.sparkContext
"""


def findings(source: str, head: str = HEAD) -> list[Finding]:
    names = Names(cst.parse_module(head + source), lambda line: Place("x.py", None, line - head.count("\n")))
    return [one.finding for one in read(names)]


def only(source: str, head: str = HEAD) -> Finding:
    (found,) = findings(source, head)
    return found


@pytest.mark.parametrize(
    ("source", "name", "kind", "line"),
    [
        ("@udf\ndef f(x): pass", "f", "row", 2),
        ("@udf('int')\n@functools.cache\ndef f(x): pass", "f", "row", 3),
        ("@udf(returnType=T.LongType())\ndef f(x): pass", "f", "row", 2),
        ("def outer(kind):\n    @pu(kind)\n    def f(x): pass", "f", "scalar (no type hints)", 3),
        ("@F.udf(useArrow=True)\ndef f(x): pass", "f", "row", 2),
        ("@functions.udf\ndef f(x): pass", "f", "row", 2),
        ("@pyspark.sql.functions.udf\ndef f(x): pass", "f", "row", 2),
        ("g = udf(lambda x: x, 'int')", "g", "row", 1),
        ("g = udf(lambda x: x).asNondeterministic()", "g", "row", 1),
        ("g: object = udf(f=len, returnType=LongType())", "g", "row", 1),
        ("df.select(udf(lambda x: x)('a'))", "<lambda>", "row", 1),
        ("df.select(F.udf(str.upper)('a'))", "str.upper", "row", 1),
        ("g = udf('int')(lambda x: x)", "g", "row", 1),
        ("g = udf(T.LongType())(lambda x: x)", "g", "row", 1),
        ("schema = T.StructType([])\n@pu(schema)\ndef f(x: pd.Series) -> pd.DataFrame: pass", "f", "scalar", 3),
        ("def my(x): pass\ng = udf(my)", "g", "row", 2),
        ("my = F.udf\n@my('int')\ndef f(x): pass", "f", "row", 3),
        ("longs = functools.partial(udf, returnType='long')\ng = longs(lambda x: x)", "g", "row", 2),
        ("class A:\n    @staticmethod\n    @udf\n    def f(x): pass", "f", "row", 4),
        ("def outer():\n    from pyspark.sql.functions import udf as v\n    return v(len)", "len", "row", 3),
        ("@pu('long')\ndef f(s: pd.Series, t: pd.Series) -> pd.Series: pass", "f", "scalar", 2),
        ("@pu('long')\ndef f(s: 'pd.DataFrame') -> 'pd.Series': pass", "f", "scalar", 2),
        ("@pu('long')\ndef f(*s: pd.Series) -> pd.Series: pass", "f", "scalar", 2),
        ("@pu('long')\ndef f(s): pass", "f", "scalar (no type hints)", 2),
        ("f = pu(lambda s: s, 'long')", "f", "scalar (no type hints)", 1),
        ("@pu('long')\ndef f(s: pd.Series) -> float: pass", "f", "grouped aggregate", 2),
        ("@pu('long')\ndef f(s: pd.Series) -> 'float': pass", "f", "grouped aggregate", 2),
        ("@pu('a array<int>')\ndef f(s: pd.Series) -> list[int]: pass", "f", "grouped aggregate", 2),
        ("@pu('long')\ndef f(i: Iterator[pd.Series]) -> Iterator[pd.Series]: yield", "f", "scalar iterator", 2),
        ("@pu('long')\ndef f(i: Iterator[pd.DataFrame]) -> Iterator[pd.Series]: yield", "f", "scalar iterator", 2),
        (
            "@pu('long')\ndef f(i: Iterator[Tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]: yield",
            "f",
            "iterator of tuples",
            2,
        ),
        (
            "@pu('long')\ndef f(i: 'Iterator[tuple[pd.Series, ...]]') -> 'Iterator[pd.Series]': yield",
            "f",
            "iterator of tuples",
            2,
        ),
        ("@pu('long', PandasUDFType.SCALAR_ITER)\ndef f(i): yield", "f", "scalar iterator", 2),
        ("@pu('long', functionType=PandasUDFType.GROUPED_AGG)\ndef f(i): pass", "f", "grouped aggregate", 2),
        ("@pu('a int', F.PandasUDFType.GROUPED_MAP)\ndef f(i): pass", "f", "grouped map", 2),
        ("g = predict_batch_udf(lambda: len, return_type=LongType(), batch_size=8)", "g", "predict_batch", 1),
        ("df.mapInPandas(lambda it: it, 'a int')", "<lambda>", "mapInPandas", 1),
        ("(\n    df\n    .mapInArrow(func=lambda it: it, schema='a int')\n)", "<lambda>", "mapInArrow", 3),
        ("df.groupby('a').applyInPandas(lambda p: p, 'a int')", "<lambda>", "grouped map", 1),
        ("a.groupBy('k').cogroup(b.groupBy('k')).applyInPandas(lambda a, b: a, 's')", "<lambda>", "cogrouped map", 1),
        ("both = a.cogroup(b)\nboth.applyInPandas(lambda a, b: a, 's')", "<lambda>", "cogrouped map", 2),
        ("session.udf.register('n', lambda x: x, 'int')", "n", "registered", 1),
        ("NAME = 'n'\nsession.udf.register(NAME, lambda x: x)", "NAME", "registered", 2),
        ("t = feature.Tokenizer(inputCol='a', outputCol='b')", "Tokenizer", "stage", 1),
        ("class Own(Transformer):\n    pass", "Own", "stage class", 1),
    ],
)
def test_finds_and_names(source: str, name: str, kind: str, line: int) -> None:
    found = only(source)
    assert (found.name, found.kind, found.place.line) == (name, kind, line)
    assert found.verdict is Verdict.UNCHANGED, found.why


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "F.col('a') + F.lit(1)",
        "import pyspark.sql.functions as G",
        "plain = udf",
        "curried = pu('long')",
        "def udf(x): return x\nudf(len)",
        "from mine import pandas_udf\n@pandas_udf('long')\ndef f(x): pass",
        "df.rdd.mapPartitions(len)",
        "frame.apply(len)",
        "registry.register('n', len)",
        "feature.Tokenizer.load('x')",
        "df.mapInPandas",
    ],
)
def test_finds_nothing(source: str) -> None:
    head = "" if "def udf" in source or "from mine" in source else HEAD
    assert findings(source, head) == []


SESSION = "which exists on the driver only"
BODIES = {
    "accumulator": ("acc = sc.accumulator(0)", "acc.add(1)", Verdict.CANNOT, "updates the accumulator `acc`"),
    "accumulator, added to": (
        "acc = sc.accumulator(0)",
        "global acc\n    acc += 1",
        Verdict.CANNOT,
        "accumulator `acc`",
    ),
    "accumulator in a helper": (
        "acc = sc.accumulator(0)\ndef count(): acc.add(1)\ndef helper(): count()",
        "helper()",
        Verdict.CANNOT,
        "accumulator `acc`",
    ),
    "session": ("", "session.sql('select 1')", Verdict.CANNOT, "uses the SparkSession `session`, " + SESSION),
    "session of the shell": ("", "spark.sql('select 1')", Verdict.CANNOT, "uses the SparkSession `spark`"),
    "session made inside": ("", "SparkSession.builder.getOrCreate()", Verdict.CANNOT, "SparkSession"),
    "context": ("", "sc.parallelize([x])", Verdict.CANNOT, "uses the SparkContext `sc`"),
    "context made inside": ("", "SparkContext.getOrCreate()", Verdict.CANNOT, "SparkContext"),
    "context of a session": (
        "",
        "other().sparkContext",
        Verdict.CANNOT,
        "uses the SparkContext `other().sparkContext`",
    ),
    "frame": (
        "table = session.read.parquet('x').cache()",
        "table.count()",
        Verdict.CANNOT,
        "uses the DataFrame `table`",
    ),
    "barrier": ("", "BarrierTaskContext.get()", Verdict.CANNOT, "BarrierTaskContext"),
    "files": ("", "SparkFiles.get('a')", Verdict.NOTE, "SparkFiles"),
    "broadcast": (
        "b = sc.broadcast([1])",
        "b.value[x]",
        Verdict.UNCHANGED,
        "broadcast variable `b`, which is carried over",
    ),
    "task context": (
        "",
        "TaskContext.get().partitionId()",
        Verdict.UNCHANGED,
        "reads TaskContext, which is carried over",
    ),
    "value of a frame": ("n = session.table('x').count()", "n", Verdict.UNCHANGED, "with one changed import"),
    "broadcast hint": ("b = F.broadcast(df)", "b", Verdict.UNCHANGED, "with one changed import"),
    "model of the driver": (
        "model = joblib.load('m')",
        "model.predict(x)",
        Verdict.NOTE,
        "closes over `model`, loaded on the driver (line 1): it is sent with the function",
    ),
    "model for every batch": ("", "mlflow.pyfunc.load_model('m')", Verdict.NOTE, "loads a model for every batch"),
    "model by a helper": ("def build(): return joblib.load('m')", "build()", Verdict.NOTE, "for every batch (build, "),
    "model, kept": (
        "kept = {}",
        "if 'm' not in kept:\n        kept['m'] = joblib.load('m')",
        Verdict.UNCHANGED,
        "with one changed import",
    ),
    "model, kept by a helper": (
        "@functools.lru_cache\ndef load_model(): return joblib.load('m')",
        "load_model()",
        Verdict.UNCHANGED,
        "with one changed import",
    ),
    "model, kept in a global": (
        "model = None\ndef get_model():\n    global model\n    if model is None:\n        model = joblib.load('m')\n"
        "    return model",
        "get_model()",
        Verdict.UNCHANGED,
        "with one changed import",
    ),
    "text generation": (
        "model = AutoModelForCausalLM.from_pretrained('m')",
        "model.generate(x)",
        Verdict.NOTE,
        "generates text with a model of transformers: the stage LLMPredictor",
    ),
    "pipeline of text generation": ("p = pipeline('text-generation')", "p(x)", Verdict.NOTE, "the stage LLMPredictor"),
    "torch": ("", "torch.no_grad()", Verdict.NOTE, "calls a model of torch: the stage ModelPredictor"),
    "local names hide the driver's": ("", "spark = x\n    return spark + 1", Verdict.UNCHANGED, "changed import"),
    "a name assigned from itself": ("q = q.sql(q)", "q", Verdict.UNCHANGED, "changed import"),
}


@pytest.mark.parametrize(("before", "body", "verdict", "why"), BODIES.values(), ids=BODIES)
@pytest.mark.parametrize(
    "form",
    [
        "@udf\ndef f(x):\n    {}\n",
        "def f(x):\n    {}\ng = udf(f)\n",
        "def f(x):\n    {}\nsession.udf.register('f', f)\n",
    ],
    ids=["decorator", "call", "register"],
)
def test_what_a_function_takes_from_outside(form: str, before: str, body: str, verdict: Verdict, why: str) -> None:
    (found,) = findings(before + "\n" + form.format(body))
    assert found.verdict is verdict, found.why
    assert "register" in form or any(why in told for told in found.why), found.why
    if verdict is Verdict.CANNOT:
        assert not any("changed import" in told for told in found.why)


@pytest.mark.parametrize(
    ("source", "verdict", "why"),
    [
        ("@pu('long')\ndef f(a: pd.Series, b) -> pd.Series: pass", Verdict.NOTE, "type hints"),
        ("@pu('long')\ndef f(a: Iterator[pd.Series]) -> pd.Series: pass", Verdict.NOTE, "type hints"),
        ("g = udf(elsewhere.f)", Verdict.NOTE, "calls elsewhere.f, whose source is not in this file"),
        ("g = F.udtf(returnType='a int')", Verdict.CANNOT, "a table function is not carried over"),
        ("@F.udtf(returnType='a int')\nclass G: pass", Verdict.CANNOT, "a table function is not carried over"),
        ("g = mlflow.pyfunc.spark_udf(session, 'models:/m')", Verdict.CANNOT, "the stage ModelPredictor"),
        ("df.groupBy('a').applyInPandasWithState(f, 'a', 'b', 'append', t)", Verdict.CANNOT, "streaming state"),
        ("class U(UnaryTransformer):\n    pass", Verdict.NOTE, "createTransformFunc"),
        ("session.udf.register('n', elsewhere.f)", Verdict.NOTE, "if it is a plain function"),
        ("session.udf.register(returnType='int', f=len, name='n')", Verdict.NOTE, "if it is a plain function"),
    ],
)
def test_what_needs_a_word(source: str, verdict: Verdict, why: str) -> None:
    found = only(source)
    assert found.verdict is verdict
    assert any(why in told for told in found.why), found.why


PROLOGUES = {
    "decorated": "@pu('long')\ndef f(it: Iterator[pd.Series]) -> Iterator[pd.Series]:\n{}",
    "mapInPandas": "def f(it):\n{}\ndf.mapInPandas(f, 's')",
    "method": "class A:\n    def f(self, it):\n    {}\n    def go(self):\n        df.mapInArrow(self.f, 's')",
}


@pytest.mark.parametrize("form", PROLOGUES.values(), ids=PROLOGUES)
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["m = joblib.load('m')", "for b in it: yield m(b)"], "before its first batch (joblib.load, line"),
        (["m = load_model()", "yield from it"], "before its first batch (load_model, line"),
        (["with open('m') as f: m = joblib.load(f)", "yield from it"], "before its first batch"),
        (["for b in it: yield joblib.load('m')(b)"], None),
        (["first = next(it)", "m = joblib.load('m')", "yield first"], None),
        (["yield from it"], None),
    ],
)
def test_a_model_in_the_prologue_of_an_iterator(form: str, lines: list[str], why: str | None) -> None:
    (found,) = findings(
        form.format("\n".join(f"    {line}" for line in lines).replace("\n", "\n    " if "class" in form else "\n"))
    )
    told = [one for one in found.why if "shared_prologue=True" in one]
    if why is None:
        assert told == []
        assert found.verdict is Verdict.UNCHANGED
    else:
        assert len(told) == 1
        assert why in told[0]
        assert found.verdict is Verdict.NOTE


def test_a_loader_of_predict_batch_udf_may_load() -> None:
    found = only("def make():\n    m = joblib.load('m')\n    return m.predict\n"
                 "g = predict_batch_udf(make, return_type=LongType(), batch_size=8)")  # fmt: skip
    assert found.verdict is Verdict.UNCHANGED


def test_functions_are_followed_through_factories_objects_and_partial() -> None:
    source = """\
acc = sc.accumulator(0)
def make():
    def inner(x):
        acc.add(1)
    return inner
class Call:
    def __call__(self, x):
        acc.add(1)
def two(x, y):
    acc.add(1)
a = udf(make())
b = udf(Call())
c = udf(functools.partial(two, y=1))
call = Call()
d = udf(call)
"""
    found = findings(source)
    assert [one.name for one in found] == ["a", "b", "c", "d"]
    assert {one.verdict for one in found} == {Verdict.CANNOT}


def test_attributes_of_an_object_are_followed() -> None:
    source = """\
class Job:
    def __init__(self, spark):
        self.seen = spark.sparkContext.accumulator(0)
        self.spark = spark
    def count(self, it):
        self.seen.add(1)
        yield from it
    def ask(self, it):
        self.spark.sql("select 1")
        yield from it
    def fine(self, it):
        yield from it
    def run(self, df):
        return df.mapInPandas(self.count, "s").mapInPandas(self.ask, "s").mapInPandas(self.fine, "s")
"""
    found = {one.name: one.verdict for one in findings(source)}
    assert found == {"self.count": Verdict.CANNOT, "self.ask": Verdict.CANNOT, "self.fine": Verdict.UNCHANGED}


def test_a_parameter_that_is_the_session_is_seen() -> None:
    source = "def main(s: SparkSession, n: int):\n    @udf\n    def f(x):\n        return s.sql(x)\n"
    source += "    return udf(lambda x: n)\n"
    found = {one.name: one.verdict for one in findings(source)}
    assert found == {"f": Verdict.CANNOT, "<lambda>": Verdict.UNCHANGED}


def test_a_registered_udf_has_the_verdict_of_the_udf() -> None:
    source = (
        "@udf\ndef f(x): return spark.sql(x)\ng = udf(len)\nspark.udf.register('f', f)\nspark.udf.register('g', g)\n"
    )
    source += "spark.udf.register('h', udf(len).asNondeterministic())\n"
    found = {one.name: (one.verdict, one.why) for one in findings(source) if one.kind == "registered"}
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "f": Verdict.CANNOT, "g": Verdict.UNCHANGED, "h": Verdict.UNCHANGED,
    }  # fmt: skip
    assert "registers g for SQL" in found["g"][1]


def test_a_star_import_is_told() -> None:
    found = only("f = udf(lambda x: x)", "from pyspark.sql.functions import *\n")
    assert found.verdict is Verdict.NOTE
    assert "star import" in found.why[0]
    assert findings("f = udf(lambda x: x)", "from elsewhere import *\n") == []


def test_what_runs_on_ray_already_is_told() -> None:
    source = "f = udf(lambda x: x)\ndf.mapInPandas(on_ray(lambda it: it), 's')\nLLMPredictor(outputCol='a')"
    head = "from udf_compat.functions import udf\nfrom udf_compat import on_ray\n"
    head += "from platform_plugin import LLMPredictor\n"
    found = findings(source, head)
    assert [one.why for one in found] == [["runs on Ray already"]] * 3
    assert {one.verdict for one in found} == {Verdict.UNCHANGED}


def test_the_latest_function_of_a_name_counts() -> None:
    source = "def f(x): return spark.sql(x)\na = udf(f)\ndef f(x): return x\nb = udf(f)\n"
    assert [one.verdict for one in findings(source)] == [Verdict.CANNOT, Verdict.UNCHANGED]
