"""Stages in Python files: classes that extend PySpark's, and stages that are made."""

from __future__ import annotations

import libcst as cst

from udf_compat.inspector.catalogue import STAGE_BASES, STAGE_MODULES
from udf_compat.inspector.finding import Finding, Place, Remark, Verdict
from udf_compat.inspector.names import Names

STAYS = Remark(Verdict.UNCHANGED, "stays in Spark, as it was")
ALREADY = Remark(Verdict.UNCHANGED, "runs on Ray already")
OWN = Remark(Verdict.UNCHANGED, "stays a stage of the pipeline; its UDFs are listed by themselves")
UNARY = Remark(
    Verdict.NOTE,
    "its createTransformFunc runs in a UDF that PySpark makes, and no changed import moves it: "
    "`python -m udf_compat` does, or a Transformer with udf of udf_compat.functions in its _transform",
)


def class_finding(node: cst.ClassDef, names: Names, place: Place) -> Finding | None:
    """Return the finding for a class that extends a stage of ``pyspark.ml``, None for any other."""
    full = {name for base in node.bases for name in names.qualified(base.value)}
    bases = {name.rpartition(".")[2] for name in full if name.startswith("pyspark.ml.")} & STAGE_BASES
    if not bases:
        return None
    return Finding(place, node.name.value, "stage class", [UNARY if "UnaryTransformer" in bases else OWN])


def stage_finding(full: set[str], place: Place) -> Finding | None:
    """Return the finding for a call that makes a stage, or loads one, None for any other."""
    for name in sorted(full):
        parts = name.split(".")
        if parts[-1] in {"load", "read"} or not parts[-1][:1].isupper():
            continue
        if parts[:2] == ["pyspark", "ml"] and len(parts) == 4 and parts[2] in STAGE_MODULES:
            return Finding(place, parts[-1], "stage", [STAYS])
        if parts[0] == "platform_plugin" and parts[-1].endswith(("Predictor", "Embedder", "Judge")):
            return Finding(place, parts[-1], "stage", [ALREADY])
    return None
