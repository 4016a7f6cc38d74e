"""``pandas_udf``, ``udf`` and ``predict_batch_udf`` with PySpark's own signatures: what they return runs on Ray actors.

Change ``from pyspark.sql.functions import pandas_udf`` to ``from udf_compat.functions import pandas_udf``, and no more.
Each takes one more argument, ``on_ray``: a dict of the options that `udf_compat.configure` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from platform_plugin.udf.moving import moved
from platform_plugin.udf.settings import options_with

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["pandas_udf", "predict_batch_udf", "udf"]


def pandas_udf(
    f: Any = None, returnType: Any = None, functionType: Any = None, *, on_ray: Mapping[str, Any] | None = None
) -> Any:
    """Make a pandas UDF that runs on Ray actors; see ``pyspark.sql.functions.pandas_udf``.

    Runs on: driver; the function on Ray actors, one batch, group or partition at a time, as in Spark's own worker.

    Raises:
        UnsupportedUdfError: the function uses what has no meaning on an actor; named, with the way out.
        ConfigError: an option of `on_ray` is not known or not valid.
    """
    from pyspark.sql.pandas.functions import pandas_udf as plain

    options = options_with(on_ray)
    return _move(plain(f, returnType, functionType), options)


def udf(
    f: Any = None,
    returnType: Any = None,
    *,
    useArrow: bool | None = None,
    on_ray: Mapping[str, Any] | None = None,
) -> Any:
    """Make a UDF, called row by row, that runs on Ray actors; see ``pyspark.sql.functions.udf``.

    Runs on: driver; the function on Ray actors. Raises as `pandas_udf`.
    """
    from pyspark.sql.functions import udf as plain
    from pyspark.sql.types import StringType

    options = options_with(on_ray)
    given = StringType() if returnType is None else returnType
    return _move(plain(f, given, useArrow=useArrow), options)


def predict_batch_udf(
    make_predict_fn: Callable[[], Any],
    *,
    return_type: DataType,
    batch_size: int,
    input_tensor_shapes: Any = None,
    on_ray: Mapping[str, Any] | None = None,
) -> Any:
    """Make a UDF of a model's batch predictions; see ``pyspark.ml.functions.predict_batch_udf``.

    Runs on: driver; `make_predict_fn` once an actor, what it returns on batches there. Raises as `pandas_udf`.
    """
    from pyspark.ml.functions import predict_batch_udf as plain

    options = options_with(on_ray)
    made: Any = plain(
        make_predict_fn, return_type=return_type, batch_size=batch_size, input_tensor_shapes=input_tensor_shapes
    )
    return _move(made, options)


def _move(made: Any, options: Any) -> Any:
    if hasattr(made, "asNondeterministic"):
        return moved(made, options)
    # The decorator form: what came is a maker of UDFs.
    return lambda function: moved(made(function), options)
