"""What every stage that an engine answers has in common: check, hand over, infer, take back, rejoin, report.

A stage says where a row's request comes from and what is asked; this file is the order of the steps of the dataset
path, each of which lives in a module of its own.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.ml import Transformer
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from platform_plugin import hand_off, listeners, pool, schema, session
from platform_plugin.config import Ask, EngineConfig, Replicas
from platform_plugin.engines import EngineSpec, load_spec
from platform_plugin.errors import InvalidRowsError
from platform_plugin.hand_off import HandOff
from platform_plugin.passage import Question
from platform_plugin.preflight import Preflight, preflight
from platform_plugin.progress import Progress
from platform_plugin.rejoin import rejoin
from platform_plugin.report import RunReport
from platform_plugin.requests import Requests, Source, rendered
from platform_plugin.run import Run, Steps
from platform_plugin.scoring import Fields, Scorer
from platform_plugin.stages.engine_params import HasModel, HasRun
from platform_plugin.stages.given import GivenByName
from platform_plugin.stages.params import DEFAULTS, HasOutput
from platform_plugin.stages.reader import StageReader
from platform_plugin.stream import Stream, check_stream
from platform_plugin.whole_rows import Spending

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class AnsweredStage(
    GivenByName, HasModel, HasOutput, HasRun, Transformer, DefaultParamsReadable[Any], DefaultParamsWritable
):
    """A Spark ML Transformer whose output column an engine answers. Runs on: driver."""

    ENGINE_ARGS: ClassVar[dict[str, Any]] = {}
    """What the stage needs of its engine; engineArgs go over them."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__()
        self._report: RunReport | None = None
        self._result: DataFrame | None = None
        self._stream: Stream | None = None
        self._setDefault(**{k: v for k, v in DEFAULTS.items() if self.hasParam(k)})
        self._given(given)

    @property
    def lastReport(self) -> RunReport | None:
        """The report of the last transform that this stage ran, or None; of a stream, what it has done so far."""
        if self._stream is not None:
            self._report = self._stream.report(self._report, type(self).__name__, self.getEngine(), self.getModel())
        return self._report

    @property
    def lastResult(self) -> DataFrame | None:
        """The frame of the last transform, or None; with handleInvalid="error" it keeps what was answered."""
        return self._result

    @classmethod
    def read(cls) -> StageReader[Any]:
        """Return what reads a saved stage; it finds weights that were saved with the pipeline."""
        return StageReader(cls)

    def preflight(self, df: DataFrame) -> Preflight:
        """Return what ``transform`` would ask: rows, requests, tokens, memory; no engine starts."""
        spec, _ = self._checked(df.schema)
        return preflight(self.requests(df), spec, self.ask())

    def scoreInstance(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return one row with its answer, or its error; without Spark, by the engine that ``transform`` uses."""
        return self.scoreInstances([row])[0]

    def scoreInstances(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return rows with their answers, or their errors, in order. Runs on: any process connected to Ray.

        Values are as ``Row.asDict(recursive=True)`` gives them. handleInvalid does not apply: every row comes back.

        Raises:
            SessionError: the process is not connected to Ray.
            SchemaError: a row lacks a field, or has one of another type than its column takes; names the row.
        """
        return self._scorer().score(rows)

    async def ascoreInstance(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Do as `scoreInstance`, in an event loop."""
        return (await self.ascoreInstances([row]))[0]

    async def ascoreInstances(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Do as `scoreInstances`, in an event loop."""
        return await self._scorer().ascore(rows)

    def fields(self) -> Fields:
        """Return where a row's request is and where its answer goes. To be defined by the stage."""
        raise NotImplementedError

    def _scorer(self) -> Scorer:
        return Scorer(self.spec(), self.ask(), self.replicas(), self.fields())

    def source(self) -> Source:
        """Return where a row's prompt comes from. To be defined by the stage."""
        raise NotImplementedError

    def requests(self, df: DataFrame) -> Requests:
        """Return the requests of a frame, as Spark expressions."""
        return Requests.build(
            df, self.source(), deduplicate=self._deduplicates(), prefix_ordering=self.getPrefixOrdering()
        )

    def ask(self) -> Ask:
        """Return what is asked of each request. To be defined by the stage."""
        raise NotImplementedError

    def answer_struct(self) -> StructType | None:
        """Return the struct that the engine's JSON text holds, or None where the text is the answer."""
        return None

    def shaped(self, answers: DataFrame) -> DataFrame:
        """Return the frame with the answers in the type that the stage promises; the engine's own, if not defined."""
        return answers

    def shaped_type(self, answer: DataType) -> DataType:
        """Return the type that `shaped` makes of an answer's."""
        return answer

    def check(self, columns: StructType) -> None:
        """Raise SchemaError or ConfigError for the stage's own params. To be defined by the stage."""
        raise NotImplementedError

    def spec(self) -> EngineSpec:
        """Return the checked description of the engine. Raises ConfigError."""
        sizes = {
            name: self.getOrDefault(param)
            for name, param in (
                ("tensor_parallel_size", self.tensorParallelSize),
                ("pipeline_parallel_size", self.pipelineParallelSize),
            )
            if self.isDefined(param)
        }
        config = EngineConfig.of(
            engine=self.getEngine(),
            model=self.getModel(),
            engine_args={**self.ENGINE_ARGS, **self.getEngineArgs(), **sizes},
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
        hand_off.check_word(self.getHandOff(), self._hand_off_dir())
        spec = self.spec()
        made = [
            StructField(self.getOutputCol(), self.shaped_type(self._answer_type(spec))),
            StructField(self.getErrorCol(), schema.ERROR_TYPE),
        ]
        made += [StructField(name, schema.DETAILS_TYPE) for name in details]
        return spec, StructType([*columns.fields, *made])

    def _answer_type(self, spec: EngineSpec) -> DataType:
        output: DataType = from_arrow_type(spec.output_type(self.ask()))
        struct = self.answer_struct()
        if struct is None:
            return output
        return ArrayType(struct) if isinstance(output, ArrayType) else struct

    def _details_col(self) -> str | None:
        return self.getDetailsCol() if self.isDefined(self.detailsCol) else None

    def _hand_off_dir(self) -> str | None:
        return self.getHandOffDir() if self.isDefined(self.handOffDir) else None

    def _deduplicates(self) -> bool:
        word = self.getDeduplicate()
        if word != "auto":
            return word == "true"
        sampling = self.ask().sampling
        if self.hasParam("samplingParamsCol") and self.isDefined("samplingParamsCol"):
            return False  # a row's own temperature may be above 0
        return sampling.get("temperature", 0) == 0 or sampling.get("seed") is not None

    def _transform(self, df: DataFrame) -> DataFrame:
        if df.isStreaming:
            return self._stream_of(df)
        with listeners.told(self, df.schema) as told:
            return self._answer(df, told)

    def _stream_of(self, df: DataFrame) -> DataFrame:
        spec, _ = self._checked(df.schema)
        check_stream(df.schema)
        HandOff.of(self.getHandOff(), self._hand_off_dir(), df).check_session(df.sparkSession)
        prompts = rendered(df, self.source())
        ask, replicas = self.ask(), self.replicas()
        self._stream = Stream(
            app=pool.start(spec, replicas, joined=session.joined()),
            question=Question(ask, spec.output_type(ask), self.getBatchSize(), replicas.max_replicas),
            outputs=(self.getOutputCol(), self.getErrorCol(), self._details_col()),
            output_type=self._answer_type(spec),
            parse=self.answer_struct() is not None,
            deduplicate=self._deduplicates(),
            handle_invalid=self.getHandleInvalid(),
            spending=Spending(self.getMaxErrorRate(), ask.request_timeout_s, replicas.start_timeout_s),
        )
        self._result = self.shaped(self._stream.frame(prompts))
        return self._result

    def _answer(self, df: DataFrame, told: listeners.Transform) -> DataFrame:
        steps, began = Steps(), time.monotonic()
        with steps.step("check"):
            spec, _ = self._checked(df.schema)
            way = HandOff.of(self.getHandOff(), self._hand_off_dir(), df)
            way.check_session(df.sparkSession)
            requests = self.requests(df)
        run = Run(
            spec=spec,
            ask=self.ask(),
            hand_off=way,
            replicas=self.replicas(),
            batch_rows=self.getBatchSize(),
            max_error_rate=self.getMaxErrorRate(),
            strict=self.isSet(self.maxErrorRate),
        )
        name = type(self).__name__
        logger.info("transform stage=%s engine=%s model=%s begins", name, self.getEngine(), self.getModel())
        with Progress(name) as progress:
            answered = run.answer(requests, progress, steps, told)
        rows = rejoin(
            requests.keyed,
            answered.frame,
            output_col=self.getOutputCol(),
            error_col=self.getErrorCol(),
            details_col=self._details_col(),
            output_type=self._answer_type(spec),
            parse=self.answer_struct() is not None,
            handle_invalid=self.getHandleInvalid(),
            answers_bytes=answered.size_bytes,
        )
        self._result = self.shaped(rows)
        self._stream = None
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
        told.report = self._report
        bad = Counter(answered.tally.failed) + Counter(answered.counts.refused)
        logger.info(
            "transform stage=%s engine=%s rows=%d seconds=%.1f rows_per_s=%.1f failed=%d",
            name,
            self.getEngine(),
            answered.counts.rows,
            self._report.seconds,
            answered.counts.rows / self._report.seconds,
            bad.total(),
        )
        if bad and self.getHandleInvalid() == "error":
            messages = [*answered.tally.messages, *answered.counts.messages.values()]
            raise InvalidRowsError(bad, messages[:5])
        return self._result
