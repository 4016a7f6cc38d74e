"""What stages that map a function over rows on Ray actors have in common: params, checks, transform, online face."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.ml import Transformer
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql.types import StructField, StructType

from platform_plugin import local_ray, schema
from platform_plugin.errors import ConfigError
from platform_plugin.mapping import Mapping, Work, made_schema
from platform_plugin.report import RunReport
from platform_plugin.stages.given import GivenByName
from platform_plugin.stages.mapped_params import HasMapping
from platform_plugin.template import value_of
from platform_plugin.udf.online import Online
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.settings import options_with

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = collections.abc.Mapping[str, Any]


class MappedStage(GivenByName, HasMapping, Transformer, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A Spark ML Transformer that maps a function over rows, on Ray actors; lazy, in order. Runs on: driver."""

    def __init__(self, given: dict[str, Any], handle_invalid: str) -> None:
        super().__init__()
        self._mapping: Mapping | None = None
        self._report: RunReport | None = None
        self._setDefault(outputCol="prediction", handleInvalid=handle_invalid, onRay={})
        self._given(given)

    @property
    def lastReport(self) -> RunReport | None:
        """What the frame of the last transform has had so far, or None before one; each action on it adds its rows."""
        if self._mapping is not None:
            self._report = self._mapping.report(self._report, type(self).__name__)
        return self._report

    def work(self) -> Work:
        """Return what is done to the rows, checked. To be defined by the stage. Raises ConfigError."""
        raise NotImplementedError

    def transformSchema(self, schema_in: StructType) -> StructType:
        """Return the schema of the output; raise for everything that can be known without a cluster.

        Raises:
            SchemaError: a column is missing, of a wrong type, reserved, or already there.
            ConfigError: a param, an option or what the stage names is wrong.
        """
        return self._checked(schema_in)[3]

    def _checked(self, frame: StructType) -> tuple[Work, UdfOptions, Sequence[StructField], StructType]:
        schema.check_frame(frame)
        schema.check_outputs(frame, [self.getOutputCol(), self.getErrorCol()])
        fields = [schema.find_field(frame, name, "inputCols") for name in self._inputs()]
        work = self.work()
        work.check(fields, self.getHandleInvalid())
        made = made_schema(frame, self.getOutputCol(), self.getErrorCol(), work.output)
        return work, self._options(work), fields, made

    def _inputs(self) -> tuple[str, ...]:
        if not self.isDefined(self.inputCols) or not self.getInputCols():
            raise ConfigError(f"{type(self).__name__} has no inputCols; name the columns that it is given, in order.")
        return tuple(self.getInputCols())

    def _options(self, work: Work) -> UdfOptions:
        options = options_with(self.getOnRay())
        # Of one pool, whatever differs from transform to transform: what is loaded in an actor is found again.
        return options if options.pool is not None else options.model_copy(update={"pool": work.pool()})

    def _transform(self, df: DataFrame) -> DataFrame:
        work, options, fields, _ = self._checked(df.schema)
        local_ray.connect()
        self._mapping = Mapping(work, options, self.getOutputCol(), self.getErrorCol(), self.getHandleInvalid())
        self._report = None
        return self._mapping.frame(df, fields)

    def scoreInstance(self, row: Row) -> dict[str, Any]:
        """Return one row with its output and error; without Spark, by the actors that ``transform`` uses."""
        return self.scoreInstances([row])[0]

    def scoreInstances(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Return rows with output and error, in order. Runs on: any process connected to Ray.

        Values are as ``Row.asDict(recursive=True)`` gives them; whole numbers are taken for long, others for double.
        handleInvalid does not apply where the function has rows: every row comes back.

        Raises:
            SessionError: the process is not connected to Ray.
            SchemaError: a row lacks an input.
            UdfError: no actor could be started, or the rows made it end.
        """
        if not rows:
            return []
        asked, online = self._online(rows)
        return self._joined(rows, online.call(asked))

    async def ascoreInstance(self, row: Row) -> dict[str, Any]:
        """Do as `scoreInstance`, in an event loop."""
        return (await self.ascoreInstances([row]))[0]

    async def ascoreInstances(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """Do as `scoreInstances`, in an event loop."""
        if not rows:
            return []
        asked, online = self._online(rows)
        return self._joined(rows, await online.acall(asked))

    def _online(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], Online]:
        inputs = self._inputs()
        asked = [{name: value_of(row, name, "inputCols") for name in inputs} for row in rows]
        work = self.work()
        return asked, Online.of(work.rows(inputs), self._options(work), work.model)

    def _joined(self, rows: Sequence[Row], answers: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
        output, error = self.getOutputCol(), self.getErrorCol()
        return [{**row, output: value, error: bad} for row, (value, bad) in zip(rows, answers, strict=True)]
