"""vLLM behind the engine protocol: one `AsyncLLM` a replica, fed with token ids.

Not `ray.data.llm`: one bad row must stay one bad row, and good and bad rows have one schema. What vLLM says when it
fails is in `failures`; where the engine runs is `pool`.
"""

from __future__ import annotations

import asyncio
import copy
import math
import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from platform_plugin.arguments import SAMPLING_DEFAULTS, check_engine_args, check_sampling
from platform_plugin.chat import Message, Refusal, refused, to_messages
from platform_plugin.config import Ask, EngineConfig, Placement
from platform_plugin.engines import Engine, answer_schema, error_row
from platform_plugin.errors import (
    ConfigError,
    EngineDiedError,
    EngineStartError,
    MissingDependencyError,
    UnsupportedTaskError,
)
from platform_plugin.failures import FailureLog
from platform_plugin.meter import Meter
from platform_plugin.profiles import ModelProfile, resolve_profile
from platform_plugin.weights import ensure_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

OUTPUT = pa.string()
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size")


@dataclass(frozen=True)
class VllmSpec:
    """Describes a vLLM engine. Runs on: driver; vLLM is imported by `build` alone."""

    config: EngineConfig

    def profile(self) -> ModelProfile:
        """Return the profile of the model. Raises ConfigError for a model that is none."""
        return resolve_profile(self.config.model)

    def engine_args(self) -> dict[str, Any]:
        """Return the profile's engine arguments, overridden by the user's."""
        profile = self.profile()
        sizes = {name: getattr(profile, name) for name in PARALLEL}
        return {**sizes, **profile.engine_args, **self.config.engine_args}

    def check(self) -> None:
        """Raise ConfigError for an unknown model, or an engine argument that vLLM does not have."""
        check_engine_args(self.engine_args())

    def check_ask(self, ask: Ask) -> None:
        """Raise ConfigError for sampling keys, a template or a count of answers that cannot be served."""
        check_sampling(ask.sampling)
        if ask.sampling.get("n", 1) != 1:
            raise UnsupportedTaskError(f"samplingParams n={ask.sampling['n']!r}: a row has one answer; leave n out")
        if ask.chat_template not in ("auto", "none"):
            raise ConfigError(f'chatTemplate={ask.chat_template!r}: wanted "auto" or "none"')
        if ask.chat_template == "none" and (ask.messages or ask.system_prompt):
            given = "messages" if ask.messages else "a system prompt"
            raise ConfigError(f'chatTemplate="none" sends the bare text, and {given} need a template; use "auto"')

    def output_type(self, ask: Ask) -> pa.DataType:
        """Return string: the text of the one answer."""
        return OUTPUT

    def placement(self) -> Placement:
        """Return the profile's needs; with several workers on GPUs one bundle each, the engine beside the first."""
        profile, args = self.profile(), self.engine_args()
        workers = math.prod(args[name] for name in PARALLEL)
        if workers == 1 or not profile.num_gpus:
            return Placement(num_cpus=profile.num_cpus, num_gpus=profile.num_gpus)
        worker = {"GPU": profile.num_gpus}
        return Placement(bundles=({"CPU": profile.num_cpus, **worker}, *[worker] * (workers - 1)))

    def build(self) -> Engine:
        """Load the model, which takes about half a minute and a process of its own. Runs on: Ray actor."""
        try:
            model = ensure_weights(self.profile())
        except MissingDependencyError as exc:
            raise EngineStartError(str(exc)) from exc
        _quiet(model)
        log = FailureLog()
        args = {
            "model": model,
            "trust_remote_code": self.config.trust_remote_code,
            "disable_log_stats": False,
            "use_tqdm_on_load": False,
            **self.engine_args(),
        }
        if self.placement().bundles:
            args.setdefault("distributed_executor_backend", "ray")
        try:
            from vllm import AsyncEngineArgs
            from vllm.config.logging import LoggingConfig
            from vllm.v1.engine.async_llm import AsyncLLM

            args.setdefault("logging_config", LoggingConfig(pylogging_config_file=str(log.config)))
            llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
        except ModuleNotFoundError as exc:
            log.close()
            raise EngineStartError(
                f'engine "vllm" needs the package {exc.name}, which is not installed: '
                'pip install "platform-plugin[cpu]", or "platform-plugin[gpu]" where there are GPUs'
            ) from exc
        except Exception as exc:
            said = log.words(exc)
            log.close()
            raise EngineStartError(
                f"vLLM cannot start model {self.config.model!r}: {said}\n"
                f"engineArgs: {self.engine_args()}. Mend what vLLM names, or choose another model."
            ) from exc
        return VllmEngine(self.config.model, llm, log)


class VllmEngine:
    """Answers batches with one vLLM engine. Runs on: Ray actor."""

    def __init__(self, name: str, llm: AsyncLLM, log: FailureLog) -> None:
        self._name = name
        self._llm = llm
        self._log = log
        self._meter = Meter()
        self._max_model_len = llm.model_config.max_model_len
        # A copy of its own: a tokenizer may not be borrowed by two threads, and vLLM detokenizes with its one.
        self._tokenizer: Any = copy.deepcopy(llm.get_tokenizer())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenize")

    async def infer(self, batch: pa.Table, ask: Ask) -> pa.Table:
        """Answer every row, all rows at once; a cancelled call takes its requests back from the engine."""
        params = self._sampling(ask)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(p, ask, params)) for p in batch["prompt"].to_pylist()]
        except ExceptionGroup as lost:
            raise lost.exceptions[0] from lost.exceptions[0].__cause__
        keys = batch["key"].to_pylist()
        answers = [{"key": key, **task.result()} for key, task in zip(keys, tasks, strict=True)]
        return pa.Table.from_pylist(answers, schema=answer_schema(OUTPUT))

    def counters(self) -> Mapping[str, float]:
        """Return requests, failed, prompt_tokens, cached_tokens, output_tokens, busy_s and the gauge in_flight."""
        return self._meter.read()

    async def close(self) -> None:
        """Stop the engine's processes; requests in flight are lost."""
        await asyncio.to_thread(self._llm.shutdown)
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._log.close()

    async def _answer(self, prompt: str | None, ask: Ask, params: SamplingParams | Refusal) -> dict[str, Any]:
        """Return the answer of one row without its key."""
        with self._meter.flight():
            if refused(params):
                answer: dict[str, Any] = {"error": params}
            else:
                # Off the loop and row by row: the first rows compute while the last ones are tokenized.
                loop = asyncio.get_running_loop()
                ids = await loop.run_in_executor(self._thread, self._encode, prompt, ask)
                answer = {"error": ids} if refused(ids) else await self._generate(ids, params)
        self._meter.count(answer)
        return answer

    async def _generate(self, ids: list[int], params: SamplingParams) -> dict[str, Any]:
        request_id = uuid.uuid4().hex
        start = time.monotonic()
        try:
            async for result in self._llm.generate(  # noqa: B007 - the last one is the answer
                {"prompt_token_ids": ids}, params, request_id
            ):
                pass
        except asyncio.CancelledError:
            # vLLM takes back what it has begun to stream; a request cut off while it is handed in is ours.
            await self._llm.abort(request_id)
            raise
        except Exception as exc:
            if self._llm.errored:
                raise self._died() from exc
            # EngineGenerateError is an empty wrapper around the reason.
            return {"error": _engine_error(exc.__cause__ or exc)}
        answer = result.outputs[0]
        if answer.finish_reason in ("abort", "error"):
            if self._llm.errored:
                raise self._died()
            message = f"vLLM gave the request up (finish_reason {answer.finish_reason})"
            return {"error": error_row("engine", "RequestAborted", message, retryable=True)}
        return {
            "output": answer.text,
            "finish_reason": answer.finish_reason,
            "prompt_tokens": len(ids),
            "cached_tokens": result.num_cached_tokens or 0,
            "output_tokens": len(answer.token_ids),
            "truncated": False,
            "seconds": time.monotonic() - start,
        }

    def _encode(self, prompt: str | None, ask: Ask) -> list[int] | Refusal:
        """Return the token ids of a row, or why there are none. Runs on: the tokenizer's thread."""
        messages = to_messages(prompt, ask)
        if refused(messages):
            return messages
        try:
            ids = self._ids(cast("str", prompt), messages, ask)
        except Exception as exc:  # a template is a program: it raises what it likes
            return error_row("template", type(exc).__name__, str(exc))
        if len(ids) >= self._max_model_len:
            most = self._max_model_len - 1
            return error_row(
                "length",
                "PromptTooLong",
                f"{len(ids)} tokens, the model takes {most} (max_model_len {self._max_model_len} less one for the "
                "answer); shorten the prompt or raise max_model_len",
            )
        return ids

    def _ids(self, prompt: str, messages: list[Message], ask: Ask) -> list[int]:
        has_template = getattr(self._tokenizer, "chat_template", None) is not None
        if ask.chat_template == "none" or not (has_template or ask.messages or ask.system_prompt):
            return cast("list[int]", self._tokenizer.encode(prompt))
        # Rendered and tokenized in one call: the template's own BOS is then the only one.
        return cast(
            "list[int]",
            self._tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False),
        )

    def _sampling(self, ask: Ask) -> SamplingParams | Refusal:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        try:
            return SamplingParams(**{**SAMPLING_DEFAULTS, **ask.sampling}, output_kind=RequestOutputKind.FINAL_ONLY)
        except Exception as exc:
            return _engine_error(exc)

    def _died(self) -> EngineDiedError:
        said = self._log.words() or "its process ended without a word: killed, or out of memory"
        return EngineDiedError(f"the vLLM engine of model {self._name!r} is gone: {said}")


def _engine_error(exc: BaseException) -> Refusal:
    return error_row("engine", type(exc).__name__, str(exc) or "vLLM gave no reason")


def _quiet(model: str) -> None:
    """Set what vLLM and the hub client read once, when they are first imported."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if Path(model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


SPEC = VllmSpec
