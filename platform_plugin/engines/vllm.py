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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin.arguments import SAMPLING_DEFAULTS, check_engine_args
from platform_plugin.ask import bad_sampling, check_ask, check_task, timed_out
from platform_plugin.chat import refused
from platform_plugin.config import Ask, EngineConfig, Placement
from platform_plugin.engines import Engine, error_row
from platform_plugin.errors import EngineDiedError, EngineStartError, MissingDependencyError
from platform_plugin.failures import FailureLog
from platform_plugin.footprint import Footprint, of_folder
from platform_plugin.meter import Meter
from platform_plugin.output import VECTOR, json_schema, output_type, to_answer
from platform_plugin.profiles import ModelProfile, resolve_profile
from platform_plugin.prompting import Prompt, Prompter, count_tokens
from platform_plugin.rows import answer_rows
from platform_plugin.weights import ensure_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm import PoolingParams
    from vllm.v1.engine.async_llm import AsyncLLM

COMPACT = {"backend": "xgrammar", "disable_any_whitespace": True}
"""How JSON is written: without white space, of which a small model may write one line after another."""
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
        """Raise ConfigError for what no row can be asked with."""
        check_ask(ask)
        check_task(ask, self.engine_args().get("runner", "auto"), self.config.model)

    def output_type(self, ask: Ask) -> pa.DataType:
        """Return string, where n > 1 a list of strings, or a vector's list of floats."""
        return output_type(ask)

    def count_tokens(self, prompts: list[str], ask: Ask) -> list[int]:
        """Return the tokens of each prompt by the model's own tokenizer, template included."""
        from transformers import AutoTokenizer

        load: Any = AutoTokenizer.from_pretrained
        tokenizer = load(ensure_weights(self.profile()), trust_remote_code=self.config.trust_remote_code)
        return count_tokens(tokenizer, prompts, ask)

    def footprint(self) -> Footprint:
        """Return what the model's files tell, where they are in a folder."""
        return of_folder(ensure_weights(self.profile()), self.engine_args())

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
            from vllm.config import StructuredOutputsConfig
            from vllm.config.logging import LoggingConfig
            from vllm.v1.engine.async_llm import AsyncLLM

            args.setdefault("logging_config", LoggingConfig(pylogging_config_file=str(log.config)))
            shape = args.get("structured_outputs_config") or COMPACT
            if isinstance(shape, dict):
                args["structured_outputs_config"] = StructuredOutputsConfig(**shape)
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
        return VllmEngine(self.profile(), llm, log)


class VllmEngine:
    """Answers batches with one vLLM engine. Runs on: Ray actor."""

    def __init__(self, profile: ModelProfile, llm: AsyncLLM, log: FailureLog) -> None:
        self._profile = profile
        self._llm = llm
        self._log = log
        self._meter = Meter()
        # A copy of its own: a tokenizer may not be borrowed by two threads, and vLLM detokenizes with its one.
        self._prompter = Prompter(copy.deepcopy(llm.get_tokenizer()), llm.model_config.max_model_len)

    async def infer(self, batch: pa.Table, ask: Ask) -> pa.Table:
        """Answer every row, all rows at once; a cancelled call takes its requests back from the engine."""
        return await answer_rows(batch, ask, self._meter, self._answer)

    def counters(self) -> Mapping[str, float]:
        """Return requests, failed, prompt_tokens, cached_tokens, output_tokens, busy_s and the gauge in_flight."""
        return self._meter.read()

    async def close(self) -> None:
        """Stop the engine's processes; requests in flight are lost."""
        await asyncio.to_thread(self._llm.shutdown)
        self._prompter.close()
        self._log.close()

    async def _answer(self, text: str | None, ask: Ask) -> dict[str, Any]:
        """Return the answer of one row without its key."""
        try:
            params = _params(ask)
        except Exception as exc:
            return {"error": bad_sampling(str(exc) or type(exc).__name__)}
        prompt = await self._prompter.prompt(text, ask)
        if refused(prompt):
            return {"error": prompt}
        try:
            async with asyncio.timeout(ask.request_timeout_s):
                if ask.task == "embed":
                    return await self._embed(prompt, params)
                return await self._generate(prompt, ask, params)
        except TimeoutError:
            return {"error": timed_out(ask)}

    async def _embed(self, prompt: Prompt, params: PoolingParams) -> dict[str, Any]:
        start = time.monotonic()
        result = await self._last(self._llm.encode, prompt, params)
        if refused(result):
            return {"error": result}
        return {
            "output": result.outputs.data.float().tolist(),
            **VECTOR,
            "prompt_tokens": len(prompt.tokens),
            "truncated": prompt.truncated,
            "seconds": time.monotonic() - start,
        }

    async def _last(self, ask_vllm: Callable[..., Any], prompt: Prompt, params: Any) -> Any:
        """Return the last result that vLLM gives of a request, or the error of a request that it refused."""
        request_id = uuid.uuid4().hex
        try:
            async for result in ask_vllm({"prompt_token_ids": list(prompt.tokens)}, params, request_id):
                last = result
            return last
        except asyncio.CancelledError:
            # vLLM takes back what it has begun to stream; a request cut off while it is handed in is ours.
            await self._llm.abort(request_id)
            raise
        except Exception as exc:
            if self._llm.errored:
                raise self._died() from exc
            # EngineGenerateError is an empty wrapper around the reason.
            reason = exc.__cause__ or exc
            return error_row("engine", type(reason).__name__, str(reason) or "vLLM gave no reason")

    async def _generate(self, prompt: Prompt, ask: Ask, params: Any) -> dict[str, Any]:
        start = time.monotonic()
        result = await self._last(self._llm.generate, prompt, params)
        if refused(result):
            return {"error": result}
        reasons = [answer.finish_reason or "error" for answer in result.outputs]
        if "abort" in reasons or "error" in reasons:
            if self._llm.errored:
                raise self._died()
            message = f"vLLM gave the request up (finish_reason {', '.join(reasons)})"
            return {"error": error_row("engine", "RequestAborted", message, retryable=True)}
        marks = self._profile.reasoning
        opened = marks[0] if marks and self._prompter.ends_with(marks[0], prompt) else ""
        return {
            **to_answer([opened + answer.text for answer in result.outputs], reasons, ask, marks),
            "prompt_tokens": len(prompt.tokens),
            "cached_tokens": result.num_cached_tokens or 0,
            "output_tokens": sum(len(answer.token_ids) for answer in result.outputs),
            "truncated": prompt.truncated,
            "seconds": time.monotonic() - start,
        }

    def _died(self) -> EngineDiedError:
        said = self._log.words() or "its process ended without a word: killed, or out of memory"
        return EngineDiedError(f"the vLLM engine of model {self._profile.name!r} is gone: {said}")


def _params(ask: Ask) -> Any:
    """Return vLLM's own parameters. Raises what vLLM raises on a value that it does not take."""
    import msgspec
    from vllm import PoolingParams, SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    if ask.task == "embed":
        return PoolingParams(task="embed", **ask.pooling)
    given = {**SAMPLING_DEFAULTS, **ask.sampling}
    if given.get("logit_bias"):  # JSON has string keys only
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    if ask.choices:
        given["structured_outputs"] = StructuredOutputsParams(choice=list(ask.choices))
    elif ask.output_type is not None:
        given["structured_outputs"] = StructuredOutputsParams(json=json_schema(ask.output_type))
    params = SamplingParams(**given, output_kind=RequestOutputKind.FINAL_ONLY)
    # As the engine core will: what it cannot decode ends its input thread, and every later request waits for ever.
    msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    return params


def _quiet(model: str) -> None:
    """Set what vLLM and the hub client read once, when they are first imported."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    if Path(model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


SPEC = VllmSpec
