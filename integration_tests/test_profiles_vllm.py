"""Profiles against the installed vLLM: its names, and its own validation of each profile.

Needs vllm; no hub, no GPU. vLLM inspects each architecture once in a process of its own, half a minute on two
cores, and keeps what it found.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from platform_plugin.arguments import OWNED_ENGINE_ARGS, OWNED_SAMPLING, installed_arguments
from platform_plugin.profiles import ModelProfile, conf_dir, find_profiles, load_profile
from platform_plugin.weights import ensure_weights, verify

pytest.importorskip("vllm", reason="needs vllm: platform-plugin[cpu] or [gpu]")
pytestmark = pytest.mark.vllm

LAYERS = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "dtype": "bfloat16",
}


@pytest.fixture(scope="module")
def embedded() -> Path:
    """The folder of the embedded model, converted if this machine has none yet."""
    return Path(ensure_weights(load_profile("smollm2-135m")))


@pytest.fixture(scope="module")
def folders(embedded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder a profile: its model's shapes and a tokenizer; only the embedded ones have weights."""
    from transformers import LlamaConfig, MixtralConfig

    configs = {
        "llama-3.1-8b": LlamaConfig(
            architectures=["LlamaForCausalLM"],
            vocab_size=128256,
            max_position_embeddings=131072,
            **LAYERS,
        ),
        "mixtral-8x7b": MixtralConfig(
            architectures=["MixtralForCausalLM"],
            vocab_size=32000,
            max_position_embeddings=32768,
            num_local_experts=8,
            num_experts_per_tok=2,
            **LAYERS,
        ),
    }
    folders = {"smollm2-135m": embedded, "minilm-l6-v2": Path(ensure_weights(load_profile("minilm-l6-v2")))}
    for name, config in configs.items():
        folders[name] = tmp_path_factory.mktemp(name)
        config.save_pretrained(folders[name])
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(embedded / file, folders[name])
    return folders


def engine_config(profile: ModelProfile, folder: Path, **overrides: Any) -> Any:
    """Return vLLM's own configuration of `profile`, which raises where vLLM refuses it."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    sizes = {
        "tensor_parallel_size": profile.tensor_parallel_size,
        "pipeline_parallel_size": profile.pipeline_parallel_size,
    }
    return AsyncEngineArgs(**{"model": str(folder), **sizes, **profile.engine_args, **overrides}).create_engine_config()


def test_arguments_file_says_what_the_installed_vllm_takes() -> None:
    written = yaml.safe_load((conf_dir() / "vllm_arguments.yaml").read_text())
    assert written == installed_arguments()


def test_names_that_are_not_the_users_are_names_of_vllm() -> None:
    import dataclasses

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import SamplingParams

    assert OWNED_ENGINE_ARGS.keys() <= {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    assert OWNED_SAMPLING.keys() <= set(SamplingParams.__struct_fields__)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", find_profiles())
def test_vllm_accepts_the_profile(name: str, folders: dict[str, Path]) -> None:
    profile = load_profile(name)
    config = engine_config(profile, folders[name])
    wanted = profile.engine_args
    assert config.model_config.max_model_len == wanted.get("max_model_len", config.model_config.max_model_len)
    assert config.model_config.runner_type == wanted.get("runner", "generate")
    assert config.parallel_config.tensor_parallel_size == profile.tensor_parallel_size
    assert config.cache_config.enable_prefix_caching is wanted.get("enable_prefix_caching", False)


@pytest.mark.timeout(300)
def test_mixtral_fits_pipeline_and_expert_parallel(folders: dict[str, Path]) -> None:
    config = engine_config(load_profile("mixtral-8x7b"), folders["mixtral-8x7b"], pipeline_parallel_size=2)
    assert config.parallel_config.world_size == 4
    assert config.parallel_config.enable_expert_parallel is True


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"tensor_parallel_size": 3}, "divisible by tensor parallel size"),
        ({"enable_expert_parallel": True, "tensor_parallel_size": 2}, "experts"),
    ],
)
def test_vllm_refuses_what_does_not_fit_the_model(
    folders: dict[str, Path], overrides: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        engine_config(load_profile("llama-3.1-8b"), folders["llama-3.1-8b"], **overrides)


def test_embedded_model_keeps_its_chat_template(embedded: Path) -> None:
    from transformers import AutoTokenizer

    assert verify(load_profile("smollm2-135m"))
    tokenizer = AutoTokenizer.from_pretrained(embedded)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    end = json.loads((embedded / "config.json").read_text())["eos_token_id"]
    assert tokenizer.convert_ids_to_tokens(end) == "<|im_end|>"
