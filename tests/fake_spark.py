"""Modules that stand for PySpark's and ours where rewritten sources are run: they note who made what."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

LOG: list[tuple[str, str, str]] = []
"""(who, what, name of the function), in order."""


class Type:
    """A type of ``pyspark.sql.types``."""


class Udf:
    """What a maker returns."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def asNondeterministic(self) -> Udf:  # noqa: N802
        return self

    def __call__(self, *columns: Any) -> Any:
        return self


def title(function: Any) -> str:
    return getattr(getattr(function, "function", function), "__name__", type(function).__name__)


def maker(who: str, what: str) -> Callable[..., Any]:
    """Return a maker of UDFs with PySpark's ways to be called."""

    def make(f: Any = None, returnType: Any = None, functionType: Any = None, **rest: Any) -> Any:  # noqa: N803
        f = rest.get("make_predict_fn", f)
        if f is None or isinstance(f, str | Type):
            return lambda function: make(function, f)
        LOG.append((who, what, title(f)))
        return Udf(f)

    return make


class Anything:
    """A frame, a session, a context: whatever is asked of it is there, and takes anything."""

    def __getattr__(self, name: str) -> Any:
        if name in {"mapInPandas", "mapInArrow", "applyInPandas"}:
            return lambda func, schema=None, **_: self._apply(name, func)
        return self

    def _apply(self, method: str, func: Any) -> Anything:
        moved = isinstance(func, tuple)
        LOG.append(("ours" if moved else "spark", method, title(func[1] if moved else func)))
        return self

    def register(self, name: str, f: Any, returnType: Any = None) -> Any:  # noqa: N803
        if isinstance(f, Udf):
            assert returnType is None, "PySpark refuses a type with what is a UDF already"
        else:
            LOG.append(("spark", "udf", title(f)))  # as PySpark does with a plain function
        LOG.append(("spark", "register", name))
        return f

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def modules() -> dict[str, ModuleType]:
    def module(name: str, **content: Any) -> ModuleType:
        made = ModuleType(name)
        vars(made).update(content)
        return made

    plain = {name: maker("spark", name) for name in ("pandas_udf", "udf")}
    ours = {name: maker("ours", name) for name in ("pandas_udf", "udf", "predict_batch_udf")}
    functions = module("pyspark.sql.functions", col=Anything(), lit=Anything(), PandasUDFType=Anything(), **plain)
    types = module("pyspark.sql.types", IntegerType=Type, LongType=Type, StringType=Type)
    sql = module("pyspark.sql", functions=functions, types=types, SparkSession=Anything(), __path__=[])
    ml = module("pyspark.ml", __path__=[])
    batch = module("pyspark.ml.functions", predict_batch_udf=maker("spark", "predict_batch_udf"), vector_to_array=1)
    compat = module("udf_compat.functions", **ours)
    face = module("udf_compat", functions=compat, on_ray=lambda f, **_: ("ours", f), __path__=[])
    pandas = module("pandas", Series=object, DataFrame=object)
    made = [functions, types, sql, ml, batch, compat, face, pandas]
    return {
        one.__name__: one for one in [*made, module("pyspark", sql=sql, ml=ml, TaskContext=Anything(), __path__=[])]
    }


@contextmanager
def _in_place(fakes: dict[str, ModuleType]) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in fakes}
    sys.modules.update(fakes)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def run(source: str) -> list[tuple[str, str, str]]:
    """Run a source with the fakes, and return what it made."""
    LOG.clear()
    with _in_place(modules()):
        exec(compile(source, "<source>", "exec"), {"__name__": "source", "df": Anything(), "spark": Anything()})
    return list(LOG)
