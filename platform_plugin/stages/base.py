"""What every stage that an engine answers has in common: check, hand over, infer, take back, rejoin, report.

A stage says where a row's request comes from and what is asked; this file is the order of the steps of the dataset
path, each of which lives in a module of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pyspark.ml import Transformer
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from platform_plugin import inference, pool, schema, session
from platform_plugin.bridges import Bridge, find_bridges, load_bridge
from platform_plugin.config import Ask, EngineConfig, Replicas
from platform_plugin.engines import EngineSpec, load_spec
from platform_plugin.errors import ConfigError, UnknownPluginError, near
from platform_plugin.progress import Progress
from platform_plugin.rejoin import rejoin
from platform_plugin.report import RunReport
from platform_plugin.requests import Counts, Requests
from platform_plugin.stages.params import DEFAULTS, HasModel, HasOutput, HasRun
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


@dataclass
class Steps:
    """Seconds that each step of a transform took, in order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time one step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


class AnsweredStage(HasModel, HasOutput, HasRun, Transformer, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A Spark ML Transformer whose output column an engine answers. Runs on: driver."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self._report: RunReport | None = None
        self._setDefault(**{k: v for k, v in DEFAULTS.items() if self.hasParam(k)})
        self._given(given)

    def _given(self, params: dict[str, Any]) -> Self:
        known = [p.name for p in self.params]
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__} has no param {name!r}.{near(name, known)} explainParams() lists them all."
                )
        return self._set(**{k: v for k, v in params.items() if v is not None})

    @property
    def lastReport(self) -> RunReport | None:
        """The report of the last transform that this stage ran, or None."""
        return self._report

    def requests(self, df: DataFrame) -> Requests:
        """Return the requests of a frame, as Spark expressions. To be defined by the stage."""
        raise NotImplementedError

    def ask(self) -> Ask:
        """Return what is asked of each request. To be defined by the stage."""
        raise NotImplementedError

    def check(self, columns: StructType) -> None:
        """Raise SchemaError or ConfigError for the stage's own params. To be defined by the stage."""
        raise NotImplementedError

    def spec(self) -> EngineSpec:
        """Return the checked description of the engine. Raises ConfigError."""
        config = EngineConfig.of(
            engine=self.getEngine(),
            model=self.getModel(),
            engine_args=self.getEngineArgs(),
            trust_remote_code=self.getTrustRemoteCode(),
        )
        spec = load_spec(config)
        spec.check()
        spec.check_ask(self.ask())
        return spec

    def replicas(self) -> Replicas:
        """Return the replica range. Raises ConfigError."""
        return Replicas.of(
            min_replicas=self.getMinReplicas(),
            max_replicas=self.getMaxReplicas(),
            idle_timeout_s=self.getIdleTimeout(),
            start_timeout_s=self.getStartTimeout(),
        )

    def transformSchema(self, schema_in: StructType) -> StructType:
        """Return the schema of the output; raise for everything that can be known without a cluster.

        Raises:
            SchemaError: a column is missing, of a wrong type, reserved, or already there.
            ConfigError: a param, a sampling key, an engine argument or a model is wrong.
        """
        return self._checked(schema_in)[1]

    def _checked(self, columns: StructType) -> tuple[EngineSpec, StructType]:
        details = [self.getDetailsCol()] if self.isDefined(self.detailsCol) else []
        schema.check_frame(columns)
        schema.check_outputs(columns, [self.getOutputCol(), self.getErrorCol(), *details])
        self.check(columns)
        self.replicas()
        self._bridge()
        spec = self.spec()
        output = from_arrow_type(spec.output_type(self.ask()))
        made = [
            StructField(self.getOutputCol(), output),
            StructField(self.getErrorCol(), schema.ERROR_TYPE),
        ]
        made += [StructField(name, schema.DETAILS_TYPE) for name in details]
        return spec, StructType([*columns.fields, *made])

    def _bridge(self) -> Bridge:
        name = self.getHandOff()
        if name == "auto":
            name = "raydp"
        try:
            return load_bridge(name)
        except UnknownPluginError as exc:
            words = ["auto", *find_bridges()]
            raise UnknownPluginError(
                f"handOff={name!r} is not known; one of {', '.join(words)} is wanted.{near(name, words)}"
            ) from exc

    def _deduplicates(self) -> bool:
        word = self.getDeduplicate()
        if word != "auto":
            return word == "true"
        sampling = self.ask().sampling
        return sampling.get("temperature", 0) == 0 or sampling.get("seed") is not None

    def _transform(self, df: DataFrame) -> DataFrame:
        steps, began = Steps(), time.monotonic()
        with steps.step("check"):
            spec, made = self._checked(df.schema)
            session.check(df.sparkSession)
            requests = self.requests(df)
        name = type(self).__name__
        logger.info("transform stage=%s engine=%s model=%s begins", name, self.getEngine(), self.getModel())
        with Progress(name) as progress:
            answered = self._answered(
                df,
                requests,
                spec,
                schema.answer_type(made[self.getOutputCol()].dataType),
                progress,
                steps,
            )
        result = rejoin(
            requests.keyed,
            answered.frame,
            output_col=self.getOutputCol(),
            error_col=self.getErrorCol(),
            details_col=self.getDetailsCol() if self.isDefined(self.detailsCol) else None,
            output_type=made[self.getOutputCol()].dataType,
            handle_invalid=self.getHandleInvalid(),
            answers_bytes=answered.size_bytes,
        )
        self._report = RunReport.of(
            answered.tally,
            stage=name,
            engine=self.getEngine(),
            model=self.getModel(),
            rows=answered.counts.rows,
            distinct=answered.asked,
            refused=dict(answered.counts.refused),
            seconds=time.monotonic() - began,
            engine_busy_share=answered.busy_share,
            steps=steps.seconds,
        )
        logger.info(
            "transform stage=%s engine=%s rows=%d seconds=%.1f rows_per_s=%.1f failed=%d refused=%d",
            name,
            self.getEngine(),
            answered.counts.rows,
            self._report.seconds,
            answered.counts.rows / self._report.seconds,
            sum(answered.tally.failed.values()),
            sum(answered.counts.refused.values()),
        )
        return result

    def _answered(
        self,
        df: DataFrame,
        requests: Requests,
        spec: EngineSpec,
        answer_type: StructType,
        progress: Progress,
        steps: Steps,
    ) -> Answered:
        """Take the requests through the dataset path: hand over, infer, take back."""
        bridge, ask = self._bridge(), self.ask()
        with ExitStack() as stack:
            # Counting costs a Spark job of its own; it runs beside the others, as only the report waits for it.
            counting = stack.enter_context(ThreadPoolExecutor(1, "platform-plugin-count"))
            with steps.step("hand over"):
                progress.phase("Spark prepares the requests")
                counts = counting.submit(requests.count)
                dataset = stack.enter_context(bridge.to_ray(requests.frame))
                asked = dataset.count()
            if not asked:
                empty = df.sparkSession.createDataFrame([], answer_type)
                return Answered(empty, counts.result(), Tally(), asked, 0, None)
            with steps.step("engine"):
                progress.phase(f"engine {self.getEngine()} with {self.getModel()} starts")
                app = pool.start(spec, self.replicas(), joined=session.joined())
            with steps.step("infer"):
                answers, standing = inference.infer(
                    dataset,
                    app,
                    ask,
                    spec.output_type(ask),
                    batch_size=self.getBatchSize(),
                    max_replicas=self.getMaxReplicas(),
                    watch=lambda s: progress.update(
                        s.tally.done,
                        total=asked,
                        tokens_per_s=s.tally.tokens_per_s,
                        failed=sum(s.tally.failed.values()),
                    ),
                )
            with steps.step("take back"):
                tally, size_bytes = inference.count(answers)
                # Each answer is counted once, where it lies; only the times are those of the run.
                tally.first_s, tally.last_s = standing.tally.first_s, standing.tally.last_s
                frame = bridge.to_spark(answers, answer_type, df.sparkSession)
            return Answered(frame, counts.result(), tally, asked, size_bytes, standing.busy_share)


@dataclass(frozen=True)
class Answered:
    """The answers of one run as a frame, and its figures."""

    frame: DataFrame
    counts: Counts
    tally: Tally
    asked: int
    size_bytes: int
    busy_share: float | None
