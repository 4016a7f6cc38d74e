"""A streaming frame's answers: lazy, whole rows through Spark's own tasks; the report is live while the query runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, StructField, StructType

from platform_plugin import schema as columns
from platform_plugin.asker import Call
from platform_plugin.crossing import check_columns, no_arrow
from platform_plugin.inline import rows_inline
from platform_plugin.monitor import Standing, Watch
from platform_plugin.passage import Question
from platform_plugin.report import RunReport
from platform_plugin.schema import ANSWER, DETAILS_TYPE, ERROR_TYPE
from platform_plugin.whole_rows import Spending, WholeRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Stream:
    """One streaming transform. Runs on: driver.

    Args:
        question: what is asked, of the engine `app`.
        outputs: names of the output, the error and, or None, the details.
        output_type: of the output column; `parse` where the answers are JSON texts of it, or arrays of them.
    """

    app: str
    question: Question
    outputs: tuple[str, str, str | None]
    output_type: DataType
    parse: bool
    deduplicate: bool
    handle_invalid: str
    spending: Spending
    run: Watch = field(default_factory=Watch.start)

    def frame(self, rendered: DataFrame) -> DataFrame:
        """Return the rows with their answers; Spark runs nothing yet.

        Args:
            rendered: the caller's frame with PROMPT (SAMPLING) and ERROR after its columns; see `requests.rendered`.
        """
        output_col, error_col, details_col = self.outputs
        kept = [f for f in rendered.schema.fields if not f.name.startswith(columns.PREFIX)]
        raw = from_arrow_type(self.question.output)
        made = [StructField(ANSWER + "output", raw), StructField(ANSWER + "error", ERROR_TYPE)]
        made += [StructField(ANSWER + "details", DETAILS_TYPE)] if details_col is not None else []
        answer = WholeRows(
            output=self.question.output,
            deduplicate=self.deduplicate,
            details=details_col is not None,
            strict=self.handle_invalid == "error",
            spending=self.spending,
        )
        call = Call.of(self.run, self.app, self.question)
        rows = rows_inline(rendered, call, answer, StructType([*kept, *made]))
        named = [self._output().alias(output_col), F.col(ANSWER + "error").alias(error_col)]
        named += [F.col(ANSWER + "details").alias(details_col)] if details_col is not None else []
        found = rows.select(*[columns.column(f.name) for f in kept], *named)
        skips = self.handle_invalid == "skip"
        return found.where(columns.column(error_col).isNull()) if skips else found

    def _output(self) -> Column:
        output = F.col(ANSWER + "output")
        if not self.parse:
            return output
        kind: Any = self.output_type
        if isinstance(kind, ArrayType):
            item: Any = kind.elementType
            return F.transform(output, lambda text: F.from_json(text, item))
        return F.from_json(output, kind)

    def report(self, last: RunReport | None, stage: str, engine: str, model: str) -> RunReport | None:
        """Return what the query has done so far, or `last` where Ray has ended; what Spark did again is in it again."""
        import ray

        if not ray.is_initialized():
            return last
        try:
            standing: Standing = ray.get(self.run.tell("standing"))
        except (ray.exceptions.RayError, ValueError):  # another Ray than the one that the stream asked
            return last
        return RunReport.of(
            standing.tally,
            stage=stage,
            engine=engine,
            model=model,
            rows=standing.rows,
            distinct=standing.tally.done,
            refused=dict(standing.refused),
            seconds=standing.tally.seconds,
            engine_busy_share=standing.busy_share,
        )


def check_stream(schema: StructType) -> None:
    """Raise SchemaError for a column that cannot pass through a Spark Python task: the whole row does, in a stream."""
    check_columns(schema, no_arrow, "cannot pass through Spark's Python workers, as every row of a stream does")
