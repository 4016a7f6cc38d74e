"""The other side of the benches: vLLM's AsyncLLM alone, in this process, with the engine arguments of the profile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from platform_plugin.config import EngineConfig
from platform_plugin.engines import load_spec


class RawEngine:
    """One AsyncLLM with everything submitted at once, in the best order: what a program without Spark could reach."""

    def __init__(self, **engine_args: Any) -> None:
        self._loop = asyncio.new_event_loop()
        spec: Any = load_spec(EngineConfig(engine_args=engine_args))
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from platform_plugin.weights import ensure_weights

        args = AsyncEngineArgs(model=ensure_weights(spec.profile()), **spec.engine_args())
        self._llm = self._loop.run_until_complete(self._make(AsyncLLM, args))
        self._asked = 0

    async def _make(self, kind: Any, args: Any) -> Any:
        return kind.from_engine_args(args)

    def generate(self, system: str, prompts: list[str], **sampling: Any) -> tuple[float, int]:
        """Answer the prompts, sorted, with the model's chat template; return seconds and output tokens."""
        return self._loop.run_until_complete(self._generate(system, sorted(prompts), sampling))

    async def _generate(self, system: str, prompts: list[str], sampling: dict[str, Any]) -> tuple[float, int]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(**sampling, output_kind=RequestOutputKind.FINAL_ONLY)
        tokenizer: Any = self._llm.get_tokenizer()
        began = time.monotonic()

        async def one(prompt: str) -> int:
            messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
            ids = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
            self._asked += 1
            async for result in self._llm.generate({"prompt_token_ids": ids}, params, str(self._asked)):
                answer = result
            return len(answer.outputs[0].token_ids)

        tokens = await asyncio.gather(*[one(prompt) for prompt in prompts])
        return time.monotonic() - began, sum(tokens)

    def close(self) -> None:
        """Stop the engine's process."""
        self._llm.shutdown()
        self._loop.close()
