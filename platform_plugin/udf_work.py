"""What a stage does with a UDF that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, StructField

from platform_plugin import named
from platform_plugin.named_udf import NamedUdf
from platform_plugin.schema import column
from platform_plugin.udf.counting import RunName
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf_rows import UdfRows

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class UdfWork:
    """Runs a UDF on actors. Runs on: driver."""

    udf: NamedUdf
    engine: str = "udf"

    @property
    def output(self) -> DataType:
        """The UDF's return type."""
        return self.udf.output

    @property
    def model(self) -> str:
        """The UDF's import path."""
        return self.udf.path

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the struct that the UDF returns as a frame."""
        return self.udf.fields

    def pool(self) -> str:
        """Return the name of the UDF's actors; another one once its module is written anew."""
        return f"udf {self.udf.path} {named.stamp(self.udf.path)}"

    def check(self, fields: Sequence[StructField], handle_invalid: str) -> None:
        """Raise ConfigError where the UDF does not take so many columns, or has no rows to mark."""
        self.udf.check(len(fields), handle_invalid)

    def column(
        self, fields: Sequence[StructField], options: UdfOptions, run: RunName, strict: bool
    ) -> tuple[Column, bool]:
        """Return the UDF's own column, as Spark would make it, where `strict`; else values with errors, and True."""
        arguments = [column(field.name) for field in fields]
        if strict:
            return self.udf.plain_column(arguments, options, run), False
        return self.udf.guarded_column(arguments, options, run), True

    def rows(self, inputs: tuple[str, ...]) -> Any:
        """Return the function of rows."""
        return UdfRows(self.udf.function, self.udf.kind, inputs, self.output, self.fields)
