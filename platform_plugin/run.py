"""A batch frame's requests, in order: hand over, start the engine, infer, take back; each step has its own module."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_type

from platform_plugin import pool, schema, session
from platform_plugin.budget import Budget
from platform_plugin.config import Ask, Replicas
from platform_plugin.engines import EngineSpec
from platform_plugin.hand_off import HandOff
from platform_plugin.listeners import Transform
from platform_plugin.monitor import Standing
from platform_plugin.passage import Question
from platform_plugin.progress import Progress
from platform_plugin.requests import Counts, Requests
from platform_plugin.supervision import Watcher
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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


@dataclass(frozen=True)
class Answered:
    """The answers of one run as a frame of ``schema.answer_type``, and its figures."""

    frame: DataFrame
    counts: Counts
    tally: Tally
    asked: int
    size_bytes: int = 0
    busy_share: float | None = None


@dataclass(frozen=True)
class Run:
    """How the requests of one transform are answered; see the params of the same names."""

    spec: EngineSpec
    ask: Ask
    hand_off: HandOff
    replicas: Replicas
    batch_rows: int
    max_error_rate: float
    strict: bool

    def answer(self, requests: Requests, progress: Progress, steps: Steps, told: Transform) -> Answered:
        """Answer every request; eager. Runs on: driver. Without a request no engine starts.

        `told` gets the course of the run, and a sample of it where a listener wants one.
        """
        spark = requests.keyed.sparkSession
        output = self.spec.output_type(self.ask)
        answer_type = schema.answer_type(from_arrow_type(output))
        with ExitStack() as stack:
            # Counting costs a Spark job of its own; it runs beside the others, as only the report waits for it.
            counting = stack.enter_context(ThreadPoolExecutor(1, "platform-plugin-count"))
            with steps.step("hand over"):
                progress.phase("Spark prepares the requests")
                counts = counting.submit(requests.count)
                passage = stack.enter_context(self.hand_off.passage(requests.frame))
                asked = passage.asked
            if not asked:
                return Answered(spark.createDataFrame([], answer_type), counts.result(), Tally(), asked)
            if told.sample_rows and told.sample_prompts:
                passage.draw_requests(told.sample_rows)
            with steps.step("engine"):
                config = self.spec.config
                progress.phase(f"engine {config.engine} with {config.model} starts")
                app = pool.start(self.spec, self.replicas, joined=session.joined())
            with steps.step("infer"):
                question = Question(self.ask, output, self.batch_rows, self.replicas.max_replicas)
                standing = passage.infer(app, question, self._watch(asked, progress, told))
            with steps.step("take back"):
                tally, size_bytes = passage.count()
                # Each answer is counted once, where it lies; only the times are those of the run.
                tally.first_s, tally.last_s = standing.tally.first_s, standing.tally.last_s
                if told.sample_rows:
                    told.sample = passage.sample(told.sample_rows)
                frame = passage.answers(answer_type)
            return Answered(frame, counts.result(), tally, asked, size_bytes, standing.busy_share)

    def _watch(self, asked: int, progress: Progress, told: Transform) -> Watcher:
        budget = Budget(
            asked=asked,
            max_error_rate=self.max_error_rate,
            strict=self.strict,
            request_timeout_s=self.ask.request_timeout_s,
            restart_s=self.replicas.start_timeout_s,
        )

        def watch(standing: Standing) -> None:
            tally = standing.tally
            progress.update(tally.done, total=asked, tokens_per_s=tally.tokens_per_s, failed=sum(tally.failed.values()))
            told.note(tally.done, tally.output_tokens)
            budget.check(standing)

        return watch
