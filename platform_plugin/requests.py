"""From rows to requests, as Spark expressions: render, refuse, key, distinct, order. Nothing here
starts a Spark job but `Requests.count`.

The key of a request is a hash of what its answer depends on, so a row finds its answer however
often Spark recomputes it, and in whatever plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from platform_plugin import schema as columns
from platform_plugin.errors import ConfigError
from platform_plugin.schema import ERROR, ERROR_TYPE, KEY, PROMPT, SAMPLING
from platform_plugin.template import PromptTemplate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROLES = ("system", "user", "assistant", "tool")
_STAGE = "render"
_TEXT = r"\S"


@dataclass(frozen=True)
class Source:
    """Where a row's prompt comes from, exactly one of the first three, and its own sampling parameters if any."""

    input_col: str | None = None
    template: PromptTemplate | None = None
    messages_col: str | None = None
    sampling_col: str | None = None

    def __post_init__(self) -> None:
        given = {
            "inputCol": self.input_col,
            "promptTemplate": self.template,
            "messagesCol": self.messages_col,
        }
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise ConfigError(
                f"{' and '.join(named) or 'none'} of {', '.join(given)} is set; "
                "wanted exactly one. "
                f"{'Unset all but one.' if named else 'Set one.'}"
            )

    def check(self, schema: StructType) -> None:
        """Raise SchemaError where a column is absent or of another type than this source takes."""
        if self.input_col is not None:
            columns.check_prompt(schema, self.input_col)
        elif self.template is not None:
            self.template.check(schema)
        elif self.messages_col is not None:
            columns.check_messages(schema, self.messages_col)
        if self.sampling_col is not None:
            columns.check_sampling_column(schema, self.sampling_col)

    def prompt(self, schema: StructType) -> Column:
        """Return the prompt: text, or for messages a JSON array of {"role", "content"}."""
        if self.template is not None:
            return self.template.column(schema)
        if self.messages_col is not None:
            # One order of fields, so that equal conversations have equal texts.
            return F.to_json(
                F.transform(
                    columns.column(self.messages_col),
                    lambda m: F.struct(m["role"].alias("role"), m["content"].alias("content")),
                )
            )
        return columns.column(self.input_col or "")

    def content(self, schema: StructType) -> list[Column]:
        """Return everything that the answer depends on: PROMPT, and with a samplingParamsCol SAMPLING, a JSON text."""
        made = [self.prompt(schema).alias(PROMPT)]
        if self.sampling_col is not None:
            field = columns.find_field(schema, self.sampling_col, "samplingParamsCol")
            value = columns.column(field.name)
            text = F.to_json(value) if isinstance(field.dataType, StructType) else value
            made.append(text.alias(SAMPLING))
        return made

    def error(self) -> Column:
        """Return the error of a row that cannot be asked, else null; reads the column PROMPT."""
        if self.messages_col is not None:
            return _bad_messages(columns.column(self.messages_col))
        if self.template is not None:
            null = F.lit("a template field is null")
            for field in reversed(self.template.fields):
                name = F.lit(f"template field {field!r} is null")
                null = F.when(columns.column(field).isNull(), name).otherwise(null)
        else:
            null = F.lit(f"inputCol {self.input_col!r} is null")
        return (
            F.when(F.col(PROMPT).isNull(), _error("NullPrompt", null))
            .when(
                ~F.col(PROMPT).rlike(_TEXT),
                _error("EmptyPrompt", F.lit("the prompt has no text in it")),
            )
            .otherwise(F.lit(None))
            .cast(ERROR_TYPE)
        )


@dataclass(frozen=True)
class Counts:
    """Rows of the whole frame, and what of them was refused; `messages` has one example a type."""

    rows: int
    refused: Mapping[str, int]
    messages: Mapping[str, str]


@dataclass(frozen=True)
class Requests:
    """The two frames of a run.

    Args:
        keyed: the caller's frame, unchanged, + KEY (binary, never null) + PROMPT
            + ERROR (null for good rows).
        frame: `key`, `prompt` (and `sampling`) of the good rows, one a key; what crosses to Ray.
    """

    keyed: DataFrame
    frame: DataFrame

    @classmethod
    def build(
        cls,
        df: DataFrame,
        source: Source,
        *,
        deduplicate: bool = True,
        prefix_ordering: bool = True,
    ) -> Requests:
        """Plan both frames; Spark runs nothing yet. Runs on: driver.

        Args:
            deduplicate: ask equal prompts once. Without it every row is a request, which
                costs a shuffle of whole rows each time `keyed` is evaluated.
            prefix_ordering: sort requests by prompt, a common prefix in one partition;
                costs a sampling job.

        Raises:
            SchemaError: reserved or duplicate names; a column absent or of the wrong type.
        """
        columns.check_frame(df.schema)
        source.check(df.schema)
        row = F.xxhash64(*[_hashable(columns.column(f.name), f.dataType) for f in df.schema.fields])
        # A refused row has a key too short to meet an answer's, and spread, as all null prompts
        # would hash to one task.
        refused = F.encode(row.cast("string"), "UTF-8")
        good = F.col(ERROR).isNull()
        content = [PROMPT] if source.sampling_col is None else [PROMPT, SAMPLING]
        keyed = rendered(df, source).select("*", F.when(good, _content_key(content)).otherwise(refused).alias(KEY))
        if deduplicate:
            # Keyed after the distinct: fewer hashes, and a narrower shuffle.
            frame = keyed.where(good).select(*content).distinct().select(_content_key(content).alias("key"), *content)
        else:
            # Ordered by a hash of the row: any other order gives other numbers in another plan.
            occurrence = F.row_number().over(Window.partitionBy(KEY).orderBy(row)).cast("string")
            numbered = _sha256(F.concat(F.col(KEY), F.encode(occurrence, "UTF-8")))
            keyed = keyed.select(
                *[columns.column(name) for name in df.columns],
                *content,
                ERROR,
                F.when(good, numbered).otherwise(F.col(KEY)).alias(KEY),
            )
            frame = keyed.where(good).select(F.col(KEY).alias("key"), *content)
        frame = frame.select("key", *[F.col(name).alias(name.removeprefix(columns.PREFIX)) for name in content])
        if prefix_ordering:
            frame = frame.repartitionByRange("prompt").sortWithinPartitions("prompt")
        return cls(keyed, frame)

    def count(self) -> Counts:
        """Count the rows and the refused rows: one narrow Spark job, without the hashes.

        Not an Observation on `keyed`: with adaptive execution its metrics are lost where no request
        is left (its `get` then waits for ever), and a frame read through its RDD never fires it.
        """
        kind = F.col(ERROR)["type"]
        found = (
            self.keyed.groupBy(kind.alias("type"))
            .agg(F.count(F.lit(1)).alias("rows"), F.min(F.col(ERROR)["message"]).alias("message"))
            .collect()
        )
        bad = sorted((r for r in found if r["type"] is not None), key=lambda r: str(r["type"]))
        return Counts(
            # Spark Connect counts with numpy's integers, which JSON does not take.
            rows=sum(int(r["rows"]) for r in found),
            refused={r["type"]: int(r["rows"]) for r in bad},
            messages={r["type"]: r["message"] for r in bad},
        )


def rendered(df: DataFrame, source: Source) -> DataFrame:
    """Return the frame with PROMPT, SAMPLING where rows have their own, and ERROR, null for good rows, after it."""
    return df.select("*", *source.content(df.schema)).select("*", source.error().alias(ERROR))


def _content_key(content: list[str]) -> Column:
    """Return the hash of everything the answer depends on; binary(32), never null."""
    return _sha256(F.to_json(F.struct(*[F.col(name) for name in content])))


def _sha256(value: Column) -> Column:
    return F.unhex(F.sha2(value, 256))


def _error(kind: str, message: Column) -> Column:
    return F.struct(
        F.lit(_STAGE).alias("stage"),
        F.lit(kind).alias("type"),
        message.alias("message"),
        F.lit(False).alias("retryable"),
    )


def _bad_messages(messages: Column) -> Column:
    """Return the error of a conversation that no chat template could render, else null."""

    def strange(m: Column) -> Column:
        return ~F.coalesce(m["role"].isin(*ROLES), F.lit(False))

    role = F.coalesce(F.filter(messages, strange)[0]["role"], F.lit("null"))
    wrong = (
        F.when(messages.isNull(), "messages is null")
        .when(F.size(messages) == 0, "messages is empty")
        .when(F.exists(messages, lambda m: m.isNull()), "a message is null")
        .when(
            F.exists(messages, strange),
            F.concat(F.lit("role "), role, F.lit(f" is not one of {', '.join(ROLES)}")),
        )
        .when(F.exists(messages, lambda m: m["content"].isNull()), "a message has no content")
        .when(
            ~F.exists(messages, lambda m: (m["role"] == "user") & m["content"].rlike(_TEXT)),
            "no message of role user has text in it",
        )
    )
    return F.when(wrong.isNotNull(), _error("BadMessages", wrong)).otherwise(F.lit(None)).cast(ERROR_TYPE)


def _hashable(value: Column, kind: DataType) -> Column:
    """Return `value` with its maps as arrays of entries: xxhash64 takes no map."""
    if "map<" not in kind.simpleString():
        return value
    if isinstance(kind, MapType):
        entry = StructType().add("key", kind.keyType).add("value", kind.valueType)
        return _hashable(F.map_entries(value), ArrayType(entry))
    if isinstance(kind, ArrayType):
        item = kind.elementType
        return F.transform(value, lambda x: _hashable(x, item))
    if isinstance(kind, StructType):
        return F.struct(*[_hashable(value.getField(f.name), f.dataType) for f in kind.fields])
    return value
