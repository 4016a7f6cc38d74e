"""The stage of an existing UDF."""

from __future__ import annotations

from typing import Any, Self

from pyspark import keyword_only

from platform_plugin.errors import ConfigError
from platform_plugin.named_udf import NamedUdf
from platform_plugin.stages.mapped import MappedStage
from platform_plugin.stages.params import text
from platform_plugin.udf_work import UdfWork


class UDFPredictor(MappedStage):
    """A Spark ML Transformer that runs an existing UDF on Ray actors; lazy: it runs when Spark wants its rows.

    The rows stay as they are and in their order, in any session and in streams. What the function keeps in a global is
    loaded once an actor, for all transforms. Runs on: driver; the function on Ray actors.

    Args:
        function: "package.module:name" of what pandas_udf, udf or predict_batch_udf made, or of a plain function: a
            pandas UDF where its type hints say so, else called row by row. Driver and actors must be able to import it.
        returnType: of a plain function, as Spark DDL.
        inputCols: the function's columns, in order.
        outputCol, errorCol: "prediction", "<outputCol>_error".
        handleInvalid: "error": what the function raises ends the job, as on Spark. "keep", "skip": it is the error of
            its row; a batch that is raised for is given again in halves until the row is found.
        onRay: a dict of the actors' options, as `udf_compat.configure`, over what that set.

    Raises:
        ConfigError: a param, an option or the function is wrong; from ``transform`` and ``transformSchema``.
        SchemaError: a column that is missing, reserved or already there.
        UnsupportedUdfError: the function uses what has no meaning on an actor.

    Example:
        >>> from platform_plugin.stages import UDFPredictor
        >>> stage = UDFPredictor(function="math:sqrt", returnType="double", inputCols=["area"], outputCol="side")
        >>> stage.getErrorCol(), stage.getHandleInvalid()
        ('side_error', 'error')
    """

    function = text("function", "package.module:name of a UDF or of a plain function")
    returnType = text("returnType", "what a plain function returns, as Spark DDL")

    @keyword_only
    def __init__(
        self,
        *,
        function: str | None = None,
        returnType: str | None = None,
        inputCols: list[str] | None = None,
        outputCol: str | None = None,
        errorCol: str | None = None,
        handleInvalid: str | None = None,
        onRay: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(self._input_kwargs, handle_invalid="error")  # type: ignore[attr-defined]

    def getFunction(self) -> str:
        return self.getOrDefault(self.function)

    def setFunction(self, value: str) -> Self:
        return self._set(function=value)

    def getReturnType(self) -> str:
        return self.getOrDefault(self.returnType)

    def setReturnType(self, value: str) -> Self:
        return self._set(returnType=value)

    def work(self) -> UdfWork:
        """Return what is done to the rows, checked. Raises ConfigError."""
        if not self.isDefined(self.function):
            raise ConfigError("UDFPredictor has no function; name one: function='package.module:name'.")
        return_type = self.getReturnType() if self.isDefined(self.returnType) else None
        return UdfWork(NamedUdf.of(self.getFunction(), return_type))
