"""The judge: an LLM that scores answers by a rubric, or says which of two is better."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from pyspark import keyword_only
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, IntegerType, StringType, StructField, StructType

from platform_plugin import schema
from platform_plugin.config import Ask, TooLong
from platform_plugin.errors import ConfigError
from platform_plugin.output import NARROW
from platform_plugin.report import RunReport
from platform_plugin.requests import Source
from platform_plugin.scoring import Fields
from platform_plugin.stages import rubric
from platform_plugin.stages.base import AnsweredStage
from platform_plugin.stages.judge_params import JUDGE_DEFAULTS, HasJudge
from platform_plugin.template import PromptTemplate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Order = Literal["first", "swapped"]

_REASON = StructField("reason", StringType(), metadata={NARROW: {"maxLength": 300}})
_SCORE = StructType([_REASON, StructField("score", IntegerType(), metadata={NARROW: {"enum": [1, 2, 3, 4, 5]}})])
_CHOICE = StructType([_REASON, StructField("better", StringType(), metadata={NARROW: {"enum": ["A", "B", "tie"]}})])
_WINNER = StructType(
    [
        StructField("winner", StringType()),
        StructField("consistent", BooleanType()),
        StructField("reason", StringType()),
        StructField("reason_swapped", StringType()),
    ]
)


class LLMJudge(HasJudge, AnsweredStage):
    """A Spark ML Transformer that asks an LLM what an answer is worth; eager, with the contract of LLMPredictor.

    With mode="score", `outputCol` is a struct of reason and score, 1 to 5. With mode="pairwise" every pair is asked
    twice, the second time with the answers swapped; the struct says the winner ("prediction", "other" or "tie"),
    whether both orders agreed (where they do not, it is a tie), and the reason of each order. Decoding is held to the
    shape; a judgement that is none (cut, say) is a row with its reason in `errorCol`. Runs on: driver.

    Args:
        rubric: what a good answer is, in words.
        mode: "score" or "pairwise".
        predictionCol, otherCol: the answer, and in pairs the one that it is compared with.
        inputCol: what was asked; labelCol: a reference answer. Both are shown to the judge where they are set.
        humanCol: a person's score, for ``evaluate`` to compare the judge with.
        outputCol, errorCol, detailsCol: "judgement", "<outputCol>_error", and none; details are of the first order.

    All other params are those of LLMPredictor.

    Example:
        >>> from platform_plugin.stages import LLMJudge
        >>> judge = LLMJudge(inputCol="message", predictionCol="reply", rubric="Polite, and answers the question.")
        >>> judge.getOutputCol(), judge.getErrorCol()
        ('judgement', 'judgement_error')
    """

    _order: Order | None = None

    @keyword_only
    def __init__(
        self,
        *,
        rubric: str | None = None,
        mode: str | None = None,
        predictionCol: str | None = None,
        otherCol: str | None = None,
        inputCol: str | None = None,
        labelCol: str | None = None,
        humanCol: str | None = None,
        outputCol: str | None = None,
        errorCol: str | None = None,
        detailsCol: str | None = None,
        model: str | None = None,
        engine: str | None = None,
        engineArgs: dict[str, Any] | None = None,
        samplingParams: dict[str, Any] | None = None,
        **other: Any,
    ) -> None:
        given = {**self._input_kwargs}  # type: ignore[attr-defined]
        super().__init__({})
        self._setDefault(**JUDGE_DEFAULTS)
        self._given(given)

    @property
    def pairwise(self) -> bool:
        """Whether it compares two answers."""
        return self.getMode() == "pairwise"

    @property
    def lastReport(self) -> RunReport | None:
        """The report of the last transform, or None; in pairs, of both orders together."""
        return super().lastReport

    def ask(self) -> Ask:
        """Return what is asked of each request."""
        return Ask(
            chat_template=self.getChatTemplate(),
            chat_template_kwargs=self.getChatTemplateKwargs(),
            sampling=self.getSamplingParams(),
            prompt_too_long=cast("TooLong", self.getPromptTooLong()),
            output_type=(_CHOICE if self.pairwise else _SCORE).jsonValue(),
            request_timeout_s=self.getRequestTimeout(),
        )

    def answer_struct(self) -> StructType:
        """Return the struct of `outputCol`."""
        if self.pairwise and self._order is None:
            return _WINNER
        asked = _CHOICE if self.pairwise else _SCORE
        return StructType([StructField(field.name, field.dataType) for field in asked.fields])

    def check(self, columns: StructType) -> None:
        """Raise SchemaError for a column that the judge needs and the frame does not have, ConfigError for the rest."""
        if not self.getRubric().strip():
            raise ConfigError("rubric is empty; say in words what a good answer is.")
        if int(self.getSamplingParams().get("n") or 1) != 1:
            raise ConfigError("a judge gives one judgement a row; leave n out of samplingParams.")
        for param in self._columns():
            schema.find_field(columns, self.getOrDefault(param), param)
        self.source().check(columns)

    def fields(self) -> Fields:
        """Return where a row's request is and where its judgement goes."""
        return Fields(
            output=self.getOutputCol(),
            error=self.getErrorCol(),
            details=self._details_col(),
            template=self.source().template,
        )

    def score(self) -> Column:
        """Return the score of a judged row: 1 to 5, or in pairs 1 a win, 0.5 a tie, 0 a loss; null without one."""
        output = schema.column(self.getOutputCol())
        if not self.pairwise:
            return output["score"].cast("double")
        return (
            F.when(output["winner"] == "prediction", 1.0)
            .when(output["winner"] == "other", 0.0)
            .when(output["winner"] == "tie", 0.5)
        )

    def scoreInstances(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return rows with their judgements, or their errors, in order. Runs on: any process connected to Ray."""
        if not self.pairwise:
            return super().scoreInstances(rows)
        first, swapped = (self._half(order)._scorer().score(rows) for order in ("first", "swapped"))
        return [self._joined(row, a, b) for row, a, b in zip(rows, first, swapped, strict=True)]

    async def ascoreInstances(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Do as `scoreInstances`, in an event loop."""
        if not self.pairwise:
            return await super().ascoreInstances(rows)
        first, swapped = [await self._half(order)._scorer().ascore(rows) for order in ("first", "swapped")]
        return [self._joined(row, a, b) for row, a, b in zip(rows, first, swapped, strict=True)]

    def _transform(self, df: DataFrame) -> DataFrame:
        if not self.pairwise or self._order is not None:
            return super()._transform(df)
        self._checked(df.schema)
        first, swapped = self._half("first"), self._half("swapped")
        swapped.clear(swapped.detailsCol)
        joined = swapped.transform(first.transform(df))
        one, two = schema.column(first.getOutputCol()), schema.column(swapped.getOutputCol())
        wrong = F.coalesce(schema.column(first.getErrorCol()), schema.column(swapped.getErrorCol()))
        one_wins = F.when(one["better"] == "A", "prediction").when(one["better"] == "B", "other").otherwise("tie")
        two_wins = F.when(two["better"] == "B", "prediction").when(two["better"] == "A", "other").otherwise("tie")
        winner = F.when(one_wins == two_wins, one_wins).otherwise("tie")
        made = F.struct(
            winner.alias("winner"),
            (one_wins == two_wins).alias("consistent"),
            one["reason"].alias("reason"),
            two["reason"].alias("reason_swapped"),
        ).cast(_WINNER)
        details = [schema.column(self.getDetailsCol())] if self.isDefined(self.detailsCol) else []
        kept = [schema.column(name) for name in df.columns]
        result = joined.select(
            *kept, F.when(wrong.isNull(), made).alias(self.getOutputCol()), wrong.alias(self.getErrorCol()), *details
        )
        self._result = result.where(wrong.isNull()) if self.getHandleInvalid() == "skip" else result
        reports = [half.lastReport for half in (first, swapped)]
        self._report = _both(*[report for report in reports if report is not None])
        return self._result

    def _half(self, order: Order) -> Self:
        """Return the judge that asks every pair once, in one order."""
        made = self.copy()
        made._order = order
        made._set(outputCol=f"{self.getOutputCol()}_{order}", errorCol=f"{self.getErrorCol()}_{order}")
        # A row that fails in one order must be there for the other.
        return made if self.getHandleInvalid() == "error" else made._set(handleInvalid="keep")

    def _joined(self, row: Mapping[str, Any], first: dict[str, Any], swapped: dict[str, Any]) -> dict[str, Any]:
        halves = [self._half(order) for order in ("first", "swapped")]
        one, two = (answer[half.getOutputCol()] for answer, half in zip((first, swapped), halves, strict=True))
        wrong = first[halves[0].getErrorCol()] or swapped[halves[1].getErrorCol()]
        made = {**row, self.getOutputCol(): None, self.getErrorCol(): wrong}
        if self.isDefined(self.detailsCol):
            made[self.getDetailsCol()] = first[self.getDetailsCol()]
        if wrong is None:
            winners = [
                {"A": sides[0], "B": sides[1], "tie": "tie"}[answer["better"]]
                for answer, sides in ((one, ("prediction", "other")), (two, ("other", "prediction")))
            ]
            agreed = winners[0] == winners[1]
            made[self.getOutputCol()] = {
                "winner": winners[0] if agreed else "tie",
                "consistent": agreed,
                "reason": one["reason"],
                "reason_swapped": two["reason"],
            }
        return made

    def _columns(self) -> list[str]:
        """Return the params that name columns it reads."""
        read = ["predictionCol", *(["otherCol"] if self.pairwise else [])]
        return read + [name for name in ("inputCol", "labelCol") if self.isDefined(name)]

    def source(self) -> Source:
        """Return where a row's prompt comes from."""
        names = {param: self.getOrDefault(param) for param in self._columns()}
        text = rubric.prompt(
            self.getRubric(),
            asked=names.get("inputCol"),
            reference=names.get("labelCol"),
            answers=[names["predictionCol"], *([names["otherCol"]] if self.pairwise else [])],
            swapped=self._order == "swapped",
        )
        return Source(template=PromptTemplate.parse(text))


def _both(*reports: RunReport) -> RunReport | None:
    """Return one report of both orders: sums, and the seconds of one after the other."""
    if len(reports) < 2:
        return reports[0] if reports else None
    one, two = reports
    one.latency.merge(two.latency)
    summed = ("distinct", "seconds", "truncated", "prompt_tokens", "cached_tokens", "output_tokens", "answering_s")
    return dataclasses.replace(
        one,
        **{name: getattr(one, name) + getattr(two, name) for name in summed},
        failed=dict(Counter(one.failed) + Counter(two.failed)),
        steps={name: seconds + two.steps.get(name, 0.0) for name, seconds in one.steps.items()},
    )
