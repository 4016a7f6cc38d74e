"""Where a UDF loads its model, and what else would do: once a replica, once a partition, or for every batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from udf_compat.inspector.catalogue import (
    GENERATION_TASKS,
    ITERATOR_KINDS,
    LOADER_CALLS,
    LOADER_NAME,
    LOADERS,
    MODEL_LIBRARIES,
    TEXT_GENERATORS,
)
from udf_compat.inspector.finding import Remark, Verdict
from udf_compat.inspector.kind import last_name
from udf_compat.inspector.names import Names
from udf_compat.inspector.reach import reached, uses

PROLOGUE = (
    "loads a model before its first batch ({}, {}): once a partition, as in Spark; "
    "on_ray(shared_prologue=True) loads it once a replica"
)
EVERY_BATCH = "loads a model for every batch ({}, {}): keep it in a module's variable, or use predict_batch_udf"
GENERATES = "generates text with a model of {}: the stage LLMPredictor batches its requests continuously in vLLM"
PREDICTS = "calls a model of {}: the stage ModelPredictor loads it once a replica and is saved with the pipeline"


def remarks(function: cst.CSTNode, kind: str, names: Names) -> Iterator[Remark]:
    """Yield what is to be said of the models that a function loads and calls.

    Args:
        function: a FunctionDef or Lambda.
        kind: its kind; only an iterator's function can load before its first batch.
    """
    yield from _libraries(function, names)
    if not isinstance(function, cst.FunctionDef) or kind == "predict_batch":
        return  # predict_batch_udf calls its function once a worker, to load
    if kind in ITERATOR_KINDS:
        calls = list(_prologue(function))
        text = PROLOGUE
    else:
        calls = [call for call in uses(function.body).calls if not _guarded(call, function, names)]
        text = EVERY_BATCH
    for call in calls:
        if loads(call, names):
            yield Remark(Verdict.NOTE, text.format(names.code(call.func), names.where(call)))
            return


def loads(call: cst.Call, names: Names, depth: int = 3) -> bool:
    """Whether a call loads a model: by a library's name, by what people call such functions, or by what it does."""
    known = names.loading.get((call, depth))
    if known is None:
        known = names.loading[call, depth] = _loads(call, names, depth)
    return known


def _loads(call: cst.Call, names: Names, depth: int) -> bool:
    full = names.qualified(call.func)
    if full & LOADER_CALLS:
        return True
    local = names.definition(call.func)
    if isinstance(local, cst.FunctionDef) and depth:
        if any("cache" in last_name(_callee(one.decorator)) for one in local.decorators):
            return False
        within = [one for one in uses(local.body).calls if loads(one, names, depth - 1)]
        if within:
            return any(not _guarded(one, local, names) for one in within)  # what stands in an `if` is a cache
    elif isinstance(local, cst.ClassDef) and depth:
        return any(loads(one, names, depth - 1) for one in uses(local.body).calls)
    last = last_name(call.func)
    return last in LOADERS or re.fullmatch(LOADER_NAME, last, re.IGNORECASE) is not None


def _callee(expression: cst.BaseExpression) -> cst.BaseExpression:
    return expression.func if isinstance(expression, cst.Call) else expression


def _guarded(call: cst.Call, function: cst.FunctionDef, names: Names) -> bool:
    for above in names.above(call):
        if above is function:
            return False
        if isinstance(above, cst.If | cst.ExceptHandler | cst.IfExp | cst.BooleanOperation):
            return True
    return False


def _prologue(function: cst.FunctionDef) -> Iterator[cst.Call]:
    """Yield the calls that stand before the first use of a parameter, or the first ``yield``."""
    params = {param.name.value for param in (*function.params.posonly_params, *function.params.params)}
    params -= {"self", "cls"}
    yield from _before(function.body.body, params)


def _before(statements: Sequence[cst.CSTNode], params: set[str]) -> Iterator[cst.Call]:
    for statement in statements:
        if not _begins(statement, params):
            yield from uses(statement).calls
            continue
        if isinstance(statement, cst.With):
            yield from (call for item in statement.items for call in uses(item).calls)
        if isinstance(statement, cst.With | cst.Try | cst.If):
            yield from _before(statement.body.body, params)
        return


def _begins(statement: cst.CSTNode, params: set[str]) -> bool:
    """Whether a statement reads the batches."""
    found = uses(statement)
    yields = _Yields()
    statement.visit(yields)
    return yields.any or any(name.value in params for name in found.names)


class _Yields(cst.CSTVisitor):
    def __init__(self) -> None:
        self.any = False

    def visit_Yield(self, node: cst.Yield) -> None:
        self.any = True

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False


def _libraries(function: cst.CSTNode, names: Names) -> Iterator[Remark]:
    """Remark on models of transformers, torch and the like that are called."""
    seen: set[str] = set()
    generates = False
    for part in reached(function, names):
        found = uses(part)
        full = set[str]()
        for node in found.references:
            full |= names.qualified(node)
            value = names.definition(node)
            if isinstance(value, cst.Call):
                full |= names.qualified(value.func)  # a model that was made outside
                generates |= _generation_task(value)
        seen |= {name for name in full if name.startswith(MODEL_LIBRARIES)}
        generates |= any(_generation_task(call) or last_name(call.func) == "generate" for call in found.calls)
    library = {name.partition(".")[0] for name in seen}
    generates |= any("CausalLM" in name or "Seq2SeqLM" in name or name.startswith("vllm.") for name in seen)
    generators = {name.partition(".")[0] for name in seen if name.startswith(TEXT_GENERATORS)}
    if generators and generates:
        yield Remark(Verdict.NOTE, GENERATES.format(" and ".join(sorted(generators))))
    elif library:
        yield Remark(Verdict.NOTE, PREDICTS.format(" and ".join(sorted(library))))


def _generation_task(call: cst.Call) -> bool:
    """Whether a call is ``pipeline("text-generation", ...)``."""
    return any(
        isinstance(arg.value, cst.SimpleString) and arg.value.evaluated_value in GENERATION_TASKS for arg in call.args
    )
