"""Saved pipelines: the stages that their metadata names, read as JSON, without Spark."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from udf_compat.inspector.finding import Finding, Place, Problem, Remark, Verdict

STAYS = Remark(Verdict.UNCHANGED, "stays in Spark, as it was")
ON_RAY = Remark(Verdict.UNCHANGED, "runs on Ray already")
CONTAINER = Remark(Verdict.UNCHANGED, "holds other stages, which are listed by themselves")
MAIN = Remark(
    Verdict.CANNOT,
    "its class was defined in a script or notebook (__main__): no other process can load it; "
    "move the class to a module and save the pipeline again",
)
OWN = "loads as before; what it does is in the class {}: give the file of {} to migrate too"

CONTAINERS = {"Pipeline", "PipelineModel", "CrossValidator", "CrossValidatorModel", "TrainValidationSplit",
              "TrainValidationSplitModel", "OneVsRest", "OneVsRestModel"}  # fmt: skip


def is_saved(folder: Path) -> bool:
    """Whether a folder is a saved stage, model or pipeline."""
    return (folder / "metadata").is_dir() and any((folder / "metadata").glob("part-*"))


def read_saved(folder: Path) -> Iterator[Finding | Problem]:
    """Yield the finding of a saved stage, and those of the stages within it, in the order in which they run."""
    part = min((folder / "metadata").glob("part-*"))
    try:
        metadata = _load(part)
    except (OSError, ValueError) as exc:
        yield Problem(Place(str(part)), f"is no metadata of a saved stage: {exc}")
        return
    class_name = str(metadata["class"])
    module, _, short = class_name.rpartition(".")
    remark = _remark(module, class_name)
    known = module.startswith(("pyspark.ml", "org.apache.spark.ml"))
    within = list(_within(folder))
    if known and short in CONTAINERS and within:
        remark = CONTAINER
    yield Finding(Place(str(folder)), str(metadata["uid"]), f"saved {short}", [remark])
    params = metadata.get("paramMap")
    uids = params.get("stageUids") if isinstance(params, dict) else None
    for index, uid in enumerate(uids if isinstance(uids, list) else []):
        if not any(path.name.endswith(f"_{uid}") for path in within):
            yield Problem(
                Place(str(folder)), f"stage {index} ({uid}) of the pipeline is not there: stages/{index}_{uid}"
            )
    for path in within:
        yield from read_saved(path)


def _load(part: Path) -> dict[str, object]:
    raw = part.read_bytes()
    text = (gzip.decompress(raw) if part.suffix == ".gz" else raw).decode("utf-8")
    metadata = json.loads(text)
    if not isinstance(metadata, dict) or not {"class", "uid"} <= metadata.keys():
        raise ValueError("it has no class and uid")
    return metadata


def _remark(module: str, class_name: str) -> Remark:
    if module.startswith(("pyspark.ml", "org.apache.spark.ml")):
        return STAYS
    if module.startswith("platform_plugin"):
        return ON_RAY
    if module in {"__main__", ""}:
        return MAIN
    if module.startswith(("com.", "org.", "ml.", "io.", "ai.")):
        return STAYS  # a class of the JVM
    return Remark(Verdict.NOTE, OWN.format(class_name, module))


def _within(folder: Path) -> Iterator[Path]:
    """Yield the stages that are saved below a stage: those of a pipeline in their order, the best model of a search."""

    def order(path: Path) -> tuple[int, str]:
        number = path.name.partition("_")[0]
        return (int(number) if number.isdigit() else 0, path.name)

    below = [path for path in (folder / "stages").glob("*") if is_saved(path)]
    yield from sorted(below, key=order)
    for path in sorted(path for path in folder.glob("*") if path.is_dir() and path.name not in {"metadata", "stages"}):
        if is_saved(path):
            yield path  # bestModel, estimator, evaluator, classifier, model_0
