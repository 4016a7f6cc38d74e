"""What a UDF takes from the driver: accumulators, the session, broadcast variables, models, the task's context."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from udf_compat.inspector.catalogue import (
    FRAME_ACTIONS,
    FRAME_SOURCES,
    SESSION_ATTRIBUTES,
    SESSION_CLASSES,
    SESSION_NAMES,
)
from udf_compat.inspector.finding import Remark, Verdict
from udf_compat.inspector.kind import last_name
from udf_compat.inspector.loading import loads
from udf_compat.inspector.names import Names
from udf_compat.inspector.reach import inside, reached, uses

DEPTH = 4
"""Assignments followed back, `a = spark.read...; b = a`; a name may be assigned from itself."""

ACCUMULATOR = (
    "updates the accumulator `{}`: updates on Ray actors never reach Spark's driver; "
    "return the count as a column, or leave this UDF on Spark"
)
SESSION = "uses the {} `{}`, which exists on the driver only: read it before, and pass values or a broadcast variable"
FRAME = "uses the DataFrame `{}`, which exists on the driver only: join it, or broadcast what was collected of it"
BROADCAST = "reads the broadcast variable `{}`, which is carried over"
CONTEXT = "reads TaskContext, which is carried over"
BARRIER = "uses BarrierTaskContext: Ray actors take no part in a barrier stage; keep this one in Spark"
FILES = "reads SparkFiles: what addFile brings lies on Spark's workers, so check that the actors' nodes have it"
CLOSURE = "closes over `{}`, loaded on the driver ({}): it is sent with the function; load it inside, on the actor"


def remarks(function: cst.CSTNode, names: Names) -> Iterator[Remark]:
    """Yield what is to be said of all that a function, and what it calls in the module, takes from outside.

    Args:
        function: a FunctionDef or Lambda.
    """
    parts = reached(function, names)
    for part in parts:
        found = uses(part)
        for node in found.references:
            yield from _classes(node, names)
            if not _own(node, parts, names):
                yield from _outer(node, parts, names)


def _classes(node: cst.Name | cst.Attribute, names: Names) -> Iterator[Remark]:
    """Remark on classes and attributes of PySpark that the function names itself."""
    if isinstance(node, cst.Attribute) and node.attr.value in SESSION_ATTRIBUTES:
        yield Remark(Verdict.CANNOT, SESSION.format(SESSION_ATTRIBUTES[node.attr.value], names.code(node)))
    for full in names.qualified(node):
        package, _, last = full.rpartition(".")
        if not package.startswith("pyspark"):
            continue
        if last in SESSION_CLASSES:
            yield Remark(Verdict.CANNOT, SESSION.format(SESSION_CLASSES[last], names.code(node)))
        elif last == "TaskContext":
            yield Remark(Verdict.UNCHANGED, CONTEXT)
        elif last == "BarrierTaskContext":
            yield Remark(Verdict.CANNOT, BARRIER)
        elif last == "SparkFiles":
            yield Remark(Verdict.NOTE, FILES)


def _own(node: cst.Name | cst.Attribute, parts: list[cst.CSTNode], names: Names) -> bool:
    """Whether a name is bound within the function or what it calls: a parameter, or a local variable."""
    if isinstance(node, cst.Attribute):
        return False
    bound = [one.node for one in names.bindings(node)]
    return bool(bound) and all(any(inside(one, part, names) for part in parts) for one in bound)


def _outer(node: cst.Name | cst.Attribute, parts: list[cst.CSTNode], names: Names) -> Iterator[Remark]:
    """Remark on a name that is bound outside of the function, by what it is bound to."""
    value = names.definition(node)
    if value is not None and any(inside(value, part, names) for part in parts):
        return  # a global that the function itself fills
    last = node.attr.value if isinstance(node, cst.Attribute) else node.value
    for _ in range(DEPTH):  # self.session = spark
        if isinstance(value, cst.Name):
            last, value = value.value, names.definition(value)
    if isinstance(value, cst.Param):
        kind = last_name(value.annotation.annotation) if value.annotation else ""
        shell = kind == "" and last in SESSION_NAMES
    else:
        kind = _made(value, names)
        shell = value is None and _shell_name(node, last, names)
    written = names.code(node)
    if kind == "Accumulator":
        yield Remark(Verdict.CANNOT, ACCUMULATOR.format(written))
    elif kind in SESSION_CLASSES:
        yield Remark(Verdict.CANNOT, SESSION.format(SESSION_CLASSES[kind], written))
    elif kind == "DataFrame":
        yield Remark(Verdict.CANNOT, FRAME.format(written))
    elif kind == "Broadcast":
        yield Remark(Verdict.UNCHANGED, BROADCAST.format(written))
    elif isinstance(value, cst.Call) and loads(value, names):
        yield Remark(Verdict.NOTE, CLOSURE.format(written, names.where(value)))
    elif shell:
        yield Remark(Verdict.CANNOT, SESSION.format(SESSION_NAMES[last], written))


def _made(value: cst.CSTNode | None, names: Names, depth: int = DEPTH) -> str:
    """Return what an expression makes: "Accumulator", "Broadcast", "DataFrame", "SparkSession" or "SparkContext"."""
    if depth and _frame(value, names, depth):
        return "DataFrame"
    if isinstance(value, cst.Attribute):
        return SESSION_ATTRIBUTES.get(value.attr.value, "")
    if not isinstance(value, cst.Call):
        return ""
    called = names.qualified(value.func)
    if any(name.startswith("pyspark.sql.") and name.endswith(".broadcast") for name in called):
        return ""  # the hint for joins
    last = last_name(value.func)
    if last in {"accumulator", "broadcast"}:
        return last.capitalize()
    if last in {"getOrCreate", "getActiveSession", "newSession"}:
        full = {part for name in called for part in name.split(".")}
        return "SparkContext" if "SparkContext" in full or "SparkContext" in names.code(value.func) else "SparkSession"
    if any(name.startswith("platform_plugin") and name.endswith("spark_on_ray") for name in called):
        return "SparkSession"
    return last if last in SESSION_CLASSES and any(name.startswith("pyspark") for name in called) else ""


def _frame(value: cst.CSTNode | None, names: Names, depth: int) -> bool:
    """Whether an expression is a chain that begins with a session, and ends with a DataFrame."""
    links: list[str] = []
    while isinstance(value, cst.Call | cst.Attribute):
        if isinstance(value, cst.Attribute):
            links.append(value.attr.value)
            value = value.value
        else:
            value = value.func
    if not isinstance(value, cst.Name) or not links or links[-1] not in FRAME_SOURCES or FRAME_ACTIONS & set(links):
        return False
    return _shell_name(value, value.value, names) or _made(names.definition(value), names, depth - 1) == "SparkSession"


def _shell_name(node: cst.Name | cst.Attribute, last: str, names: Names) -> bool:
    """Whether a name that nothing in the module binds is one of those that shells bind; ``self.spark`` counts, too."""
    if isinstance(node, cst.Attribute) and not (isinstance(node.value, cst.Name) and node.value.value == "self"):
        return False
    return last in SESSION_NAMES and not names.imports(node)
