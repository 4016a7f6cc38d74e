"""How a pipeline is written as an MLflow model: the flavour ``spark``, and ``python_function`` with our own loader.

MLflow calls `save_model` through ``Model.log``; users call ``tracking.log_model``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from platform_plugin.saved import FOLDER
from platform_plugin.tracking import references, requirements

LOADER = "platform_plugin.tracking.loader"
SPARKML = "sparkml"


def save_model(
    path: str,
    mlflow_model: Any,
    *,
    pipeline: Any,
    signature: Any,
    input_example: Any,
    columns: str,
    answers: str,
    copy_weights: bool,
    pip_requirements: list[str] | None,
    **ignored: Any,  # noqa: ARG001 - what Model.log passes on to every flavour
) -> None:
    """Write `pipeline` into the folder `path`, which is not there yet. Runs on: driver.

    Args:
        columns: the frame that the pipeline takes, as ``StructType.json()``.
        answers: the column that ``predict`` returns.
    """
    import mlflow.spark

    folder = Path(path)
    copy = pipeline.copy()
    known = []
    for stage in references.own_stages(copy):
        if copy_weights and stage.getOrDefault("engine") in requirements.ENGINES:
            known.append(references.copied(stage, folder / FOLDER))
            references.name_copy(stage, known[-1]["sha256"])
        else:
            known.append(references.reference(stage))
    pins = requirements.pinned(list(references.own_stages(pipeline))) if pip_requirements is None else pip_requirements
    mlflow_model.metadata = {
        **(mlflow_model.metadata or {}),
        "platform_plugin": {"columns": columns, "answers": answers, "weights": known},
    }
    mlflow.spark.save_model(
        copy,
        path,
        mlflow_model=mlflow_model,
        signature=signature,
        input_example=input_example,
        pip_requirements=pins,
    )
    if (folder / FOLDER).exists():
        (folder / FOLDER).rename(folder / SPARKML / FOLDER)
    if pip_requirements is None:
        requirements.write_wheel(folder / requirements.WHEELS)
    # MLflow's own loader starts a session in which no engine can be reached, and reads one column name only.
    mlflow_model.flavors["python_function"]["loader_module"] = LOADER
    mlflow_model.save(str(folder / "MLmodel"))
