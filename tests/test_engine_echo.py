from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from platform_plugin.config import Ask, EngineConfig
from platform_plugin.engines import find_engines, load_spec
from platform_plugin.errors import ConfigError, EngineStartError
from tests.answer_conformance import TICKET
from tests.asking import batch_of
from tests.engine_conformance import EngineConformance

ROOT = Path(__file__).parent.parent


def echo(**engine_args: object) -> EngineConfig:
    return EngineConfig(engine="echo", engine_args=engine_args)


class TestEchoConformance(EngineConformance):
    config = echo(max_model_len=64, delay_s=0.001)


@pytest.mark.parametrize("name", find_engines())
def test_every_engine_runs_the_conformance_suite(name: str) -> None:
    files = [ROOT / folder / f"test_engine_{name}.py" for folder in ("tests", "integration_tests")]
    assert any("(EngineConformance)" in f.read_text() for f in files if f.exists())


def test_echo_answers_with_the_last_user_message() -> None:
    talk = '[{"role": "user", "content": "first"}, {"role": "user", "content": "second  word"}]'
    engine = load_spec(echo()).build()
    (row,) = asyncio.run(engine.infer(batch_of(talk), Ask(messages=True))).to_pylist()
    assert (row["output"], row["finish_reason"], row["output_tokens"]) == (
        "second  word",
        "stop",
        2,
    )


def test_fail_on_fails_the_rows_that_hold_the_text() -> None:
    engine = load_spec(echo(fail_on="bad")).build()
    rows = asyncio.run(engine.infer(batch_of("good", "a bad one"), Ask())).to_pylist()
    assert [row["error"] and row["error"]["type"] for row in rows] == [None, "EchoFailure"]


def test_cut_on_and_garble_on_fail_shaped_answers_and_keep_their_text() -> None:
    engine = load_spec(echo(cut_on="long", garble_on="odd")).build()
    for shape in (Ask(choices=("card", "taxi")), Ask(output_type=TICKET)):
        batch = batch_of("a long one", "an odd one", "one")
        cut, odd, good = asyncio.run(engine.infer(batch, shape)).to_pylist()
        assert (cut["error"]["type"], odd["error"]["type"], good["error"]) == ("OutputCut", "OutputUnparsable", None)
        assert cut["raw_text"]
        assert odd["raw_text"].startswith("?")
    (free,) = asyncio.run(engine.infer(batch_of("a long one"), Ask())).to_pylist()
    assert (free["output"], free["finish_reason"]) == ("a lon", "length")


def test_shaped_answers_are_the_same_in_every_process_and_differ_by_prompt() -> None:
    asks = batch_of(*(f"prompt {i}" for i in range(20)))
    first, second = (
        asyncio.run(load_spec(echo()).build().infer(asks, Ask(choices=("a", "b", "c"))))["output"].to_pylist()
        for _ in range(2)
    )
    assert first == second
    assert first[:5] == ["c", "b", "b", "a", "a"]  # of another process
    assert set(first) == {"a", "b", "c"}


def test_prefixes_are_remembered_by_their_words() -> None:
    engine = load_spec(echo(prefix_words=2)).build()
    asyncio.run(engine.infer(batch_of("rule one of", "rule one  or", "rule two", "rule"), Ask()))
    assert engine.prefixes() == ["rule", "rule one", "rule two"]
    forgetful = load_spec(echo()).build()
    asyncio.run(forgetful.infer(batch_of("rule one"), Ask()))
    assert forgetful.prefixes() == []


def test_fail_start_is_what_the_user_reads() -> None:
    with pytest.raises(EngineStartError, match="no such weights"):
        load_spec(echo(fail_start="no such weights")).build()


def test_die_on_ends_the_process() -> None:
    program = (
        "import asyncio; from platform_plugin.config import Ask, EngineConfig; "
        "from platform_plugin.engines import load_spec; from tests.asking import batch_of; "
        "engine = load_spec(EngineConfig(engine='echo', engine_args={'die_on': 'poison'})).build(); "
        "asyncio.run(engine.infer(batch_of('fine'), Ask())); print('alive', flush=True); "
        "asyncio.run(engine.infer(batch_of('a poison pill'), Ask())); print('still alive', flush=True)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == ("alive\n", 1)


@pytest.mark.parametrize(
    ("engine_args", "words"),
    [
        ({"delay": 1}, r"'delay' is not known to engine 'echo'. Did you mean 'delay_s'"),
        ({"delay_s": -1}, r"delay_s=-1"),
        ({"delay_s": "long"}, r"delay_s='long'"),
        ({"max_model_len": 1}, r"max_model_len=1"),
        ({"max_model_len": 10.5}, r"max_model_len=10.5"),
        ({"fail_on": ""}, r"fail_on=''"),
        ({"prefix_words": -1}, r"prefix_words=-1"),
    ],
)
def test_bad_argument_is_refused_on_the_driver(engine_args: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_spec(echo(**engine_args)).check()


def test_pooling_echo_gives_vectors_of_length_one_near_for_near_texts() -> None:
    spec = load_spec(echo(runner="pooling"))
    spec.check_ask(Ask(task="embed"))
    assert spec.output_type(Ask(task="embed")) == pa.list_(pa.float32())
    texts = ("my card is lost", "my card is lost", "my card is gone", "where is she")
    made = asyncio.run(spec.build().infer(batch_of(*texts), Ask(task="embed")))
    first, same, near, far = (np.array(row["output"]) for row in made.to_pylist())
    assert (first == same).all()
    assert first @ first == pytest.approx(1)
    assert 1 > first @ near > first @ far
    assert {row["output_tokens"] for row in made.to_pylist()} == {0}


def test_engine_does_only_what_its_runner_does() -> None:
    with pytest.raises(ConfigError, match=r"embeds here.*LLMEmbedder"):
        load_spec(echo(runner="pooling")).check_ask(Ask())
    with pytest.raises(ConfigError, match=r"generates here.*LLMPredictor"):
        load_spec(echo()).check_ask(Ask(task="embed"))
