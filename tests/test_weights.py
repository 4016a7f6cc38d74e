"""Converted models: whole or absent, converted once, checked cheaply.

The real conversion is an integration test.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from platform_plugin import weights
from platform_plugin.errors import EngineStartError, MissingDependencyError, ProfileError
from platform_plugin.profiles import ModelProfile, Source
from platform_plugin.weights import (
    CACHE_VARIABLE,
    build,
    cache_dir,
    ensure_weights,
    verify,
    weights_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TENSORS = bytes(range(256)) * 40
PROFILE = ModelProfile(name="tiny", source=Source(package="tiny-model", file="tiny.gguf"))


class Converter:
    """A conversion of no time that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[Path] = []

    def __call__(self, gguf: Path, folder: Path) -> None:
        self.calls.append(gguf)
        assert list(folder.iterdir()) == []
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())
        (folder / "model.safetensors").chmod(0o600)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and the installed package tiny-model 1.5 that carries tiny.gguf."""
    site = tmp_path / "site-packages"
    info = site / "tiny_model-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.5\n")
    (info / "RECORD").write_text("tiny_model/tiny.gguf,,\ntiny_model-1.5.dist-info/METADATA,,\n")
    (site / "tiny_model").mkdir()
    (site / "tiny_model" / "tiny.gguf").write_bytes(TENSORS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Converter:
    """Converts in this process, where `ensure_weights` starts another."""
    converter = Converter()
    monkeypatch.setattr(weights, "_run_converter", lambda name: build(PROFILE, converter))
    return converter


def test_hub_id_and_folder_need_no_conversion(converter: Converter) -> None:
    assert ensure_weights(ModelProfile(name="a", source=Source(hub="owner/name"))) == "owner/name"
    assert ensure_weights(ModelProfile(name="a", source=Source(folder="/models/a"))) == "/models/a"
    assert converter.calls == []


def test_embedded_model_is_converted_once_and_says_so(cache: Path, converter: Converter) -> None:
    said: list[str] = []
    folder = ensure_weights(PROFILE, said.append)
    assert folder == str(cache / "models" / "tiny-1.5")
    assert (Path(folder) / "model.safetensors").read_bytes() == TENSORS
    assert [line.split()[0] for line in said] == ["converting", "converted"]
    assert ensure_weights(PROFILE, said.append) == folder
    assert len(converter.calls) == 1
    assert len(said) == 2


def test_converted_files_are_readable_by_others(converter: Converter) -> None:
    folder = Path(ensure_weights(PROFILE))
    assert (folder / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_cache_is_the_users_unless_the_variable_names_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir().is_relative_to(tmp_path)
    assert cache_dir().name == "platform-plugin"
    monkeypatch.setenv(CACHE_VARIABLE, "~/models")
    assert cache_dir() == tmp_path / "models"


def test_killed_conversion_leaves_nothing_behind(cache: Path, converter: Converter) -> None:
    partial = cache / "models" / "tiny-1.5.partial"
    partial.mkdir(parents=True)
    (partial / "model.safetensors").write_bytes(TENSORS[:100])
    folder = Path(ensure_weights(PROFILE))
    assert verify(PROFILE)
    assert not partial.exists()
    assert folder.is_dir()


def test_failed_conversion_leaves_no_model(cache: Path) -> None:
    def fail(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(TENSORS[:100])
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        build(PROFILE, fail)
    assert not (cache / "models" / "tiny-1.5").exists()


def test_two_at_once_convert_once(converter: Converter) -> None:
    together = threading.Barrier(4)

    def run() -> None:
        together.wait(timeout=10)
        build(PROFILE, converter)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert len(converter.calls) == 1
    assert verify(PROFILE)


def _truncate(file: Path) -> None:
    file.write_bytes(TENSORS[:-1])


def _corrupt(file: Path) -> None:
    file.write_bytes(TENSORS[::-1])


@pytest.mark.parametrize("damage", [_truncate, _corrupt, Path.unlink])
def test_damaged_model_is_converted_again(converter: Converter, damage: Callable[[Path], None]) -> None:
    file = Path(ensure_weights(PROFILE)) / "model.safetensors"
    damage(file)
    assert not verify(PROFILE)
    ensure_weights(PROFILE)
    assert file.read_bytes() == TENSORS
    assert len(converter.calls) == 2


def test_damage_behind_an_unchanged_time_is_seen_by_verify_only(converter: Converter) -> None:
    file = Path(ensure_weights(PROFILE)) / "model.safetensors"
    stat = file.stat()
    _corrupt(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    ensure_weights(PROFILE)
    assert len(converter.calls) == 1
    assert not verify(PROFILE)


def test_copied_cache_is_taken_over_by_its_checksums(converter: Converter) -> None:
    folder = Path(ensure_weights(PROFILE))
    shutil.copytree(folder, folder.with_name("copy"), copy_function=shutil.copyfile)
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    assert ensure_weights(PROFILE) == str(folder)
    assert ensure_weights(PROFILE) == str(folder)
    assert len(converter.calls) == 1


def test_model_that_was_never_converted_does_not_verify() -> None:
    assert not verify(PROFILE)
    assert not weights_dir(PROFILE).exists()


def test_absent_package_names_the_extra() -> None:
    absent = ModelProfile(name="tiny", source=Source(package="no-such-model", file="a.gguf"))
    with pytest.raises(MissingDependencyError, match=r"no-such-model.*platform-plugin\[demo\]"):
        ensure_weights(absent)


def test_absent_converter_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None if name == "gguf" else sys)
    with pytest.raises(MissingDependencyError, match=r"gguf.*platform-plugin\[demo\]"):
        ensure_weights(PROFILE)


def test_package_of_another_version_is_told_by_the_absent_file(converter: Converter) -> None:
    other = ModelProfile(name="tiny", source=Source(package="tiny-model", file="other.gguf"))
    with pytest.raises(ProfileError, match=r"'other.gguf'.*tiny-model 1\.5"):
        build(other, converter)


def test_failure_of_the_process_is_told_in_its_last_words() -> None:
    with pytest.raises(EngineStartError, match=r"(?s)exit code 1.*no profile 'tiny'.*PLATFORM_PLUGIN_CACHE"):
        ensure_weights(PROFILE)
