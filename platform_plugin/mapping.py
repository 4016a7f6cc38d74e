"""A function's answers beside the rows of a frame, lazily; and the report of what it has had so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from platform_plugin import schema as columns
from platform_plugin.monitor import Standing, Watch
from platform_plugin.report import RunReport
from platform_plugin.schema import ANSWER, ERROR, ERROR_TYPE
from platform_plugin.udf.counting import RunName
from platform_plugin.udf.guarded import OUTPUT
from platform_plugin.udf.options import UdfOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Work(Protocol):
    """What a stage does to rows, once it is checked. Runs on: driver."""

    @property
    def output(self) -> DataType:
        """The type of the output column."""

    @property
    def engine(self) -> str:
        """What runs, for the report."""

    @property
    def model(self) -> str:
        """Which one, for the report and for messages."""

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the struct that stand by themselves beside the error; none where the output is one field."""

    def pool(self) -> str:
        """Return the name of the actors that do this work, whichever transform or caller it is for."""

    def check(self, fields: Sequence[StructField], handle_invalid: str) -> None:
        """Raise ConfigError or SchemaError where the columns do not fit."""

    def column(
        self, fields: Sequence[StructField], options: UdfOptions, run: RunName, strict: bool
    ) -> tuple[Column, bool]:
        """Return a column of structs (`fields`, or OUTPUT, and ERROR) and True; or the output itself and False.

        Args:
            strict: what is raised for a row ends the job.
        """

    def rows(self, inputs: tuple[str, ...]) -> Any:
        """Return a function from rows as dicts to (output, error) of each."""


@dataclass(frozen=True)
class Mapping:
    """One transform. Runs on: driver."""

    work: Work
    options: UdfOptions
    output_col: str
    error_col: str
    handle_invalid: str
    watch: Watch = field(default_factory=Watch.start)

    def frame(self, df: DataFrame, fields: Sequence[StructField]) -> DataFrame:
        """Return the rows with output and error; Spark runs nothing yet.

        Args:
            fields: of the input columns.
        """
        run = RunName(self.watch.run, self.watch.name)
        kept = [columns.column(name) for name in df.columns]
        answer, guarded = self.work.column(fields, self.options, run, self.handle_invalid == "error")
        if not guarded:
            no_error = F.lit(None).cast(ERROR_TYPE)
            return df.select(*kept, answer.alias(self.output_col), no_error.alias(self.error_col))
        error = F.col(f"{ANSWER}.{ERROR}")
        output = self._output(error).alias(self.output_col)
        found = df.select(*kept, answer.alias(ANSWER)).select(*kept, output, error.alias(self.error_col))
        return found.where(columns.column(self.error_col).isNull()) if self.handle_invalid == "skip" else found

    def _output(self, error: Column) -> Column:
        answer = columns.column(ANSWER)
        if not self.work.fields:
            return answer.getField(OUTPUT)
        whole = F.struct(*(answer.getField(name).alias(name) for name in self.work.fields))
        return F.when(error.isNull(), whole)

    def report(self, last: RunReport | None, stage: str) -> RunReport | None:
        """Return what the function has had so far, or `last` where Ray has ended; what ran twice counts twice."""
        import ray

        if not ray.is_initialized():
            return last
        try:
            standing: Standing = ray.get(self.watch.tell("standing"))
        except (ray.exceptions.RayError, ValueError):  # another Ray than the one of the transform
            return last
        return RunReport.of(
            standing.tally,
            stage=stage,
            engine=self.work.engine,
            model=self.work.model,
            rows=standing.rows,
            distinct=standing.rows,
            seconds=standing.tally.seconds,
        )


def made_schema(frame: StructType, output_col: str, error_col: str, output: DataType) -> StructType:
    """Return a frame's schema with output and error, whatever is done with invalid rows."""
    return StructType([*frame.fields, StructField(output_col, output), StructField(error_col, ERROR_TYPE)])
