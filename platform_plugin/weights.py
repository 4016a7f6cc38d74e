"""The files of a model, ready for an engine. What an engine does with them does not belong here.

A model that a Python package carries as GGUF is converted once to safetensors, which vLLM reads on every device:

    <cache>/models/<profile>-<package version>/           config.json, model.safetensors, tokenizer, chat template
                                              manifest.json   size, modification time and sha256 of each file

The conversion runs in a process of its own (``python -m platform_plugin.weights <profile>``), which alone takes the
lock: the memory it needs is given back, and a caller that is killed leaves neither a lock nor half a model.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

from platform_plugin.errors import EngineStartError, MissingDependencyError, ProfileError
from platform_plugin.profiles import ModelProfile, load_profile

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "PLATFORM_PLUGIN_CACHE"
_MANIFEST = "manifest.json"


def cache_dir() -> Path:
    """Return the folder of converted models: ``$PLATFORM_PLUGIN_CACHE``, or the user's cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("platform-plugin")).expanduser()


def ensure_weights(profile: ModelProfile, say: Callable[[str], object] = logger.info) -> str:
    """Return the folder or the hub id that an engine loads, converting an embedded model first if need be.

    Runs on: driver or Ray actor; the folder is this machine's.

    Args:
        say: told in one line that a conversion begins, and that it is done.

    Raises:
        MissingDependencyError: the package that carries the model, or one that converts it, is not installed.
        EngineStartError: the conversion failed; carries its last lines.
    """
    if profile.source.hub:
        return profile.source.hub
    if profile.source.folder:
        return profile.source.folder
    folder = weights_dir(profile)
    if not _is_whole(folder):
        _check_converter(profile)
        say(f"converting {profile.name} to {folder} (once, about a minute)")
        _run_converter(profile.name)
        say(f"converted {profile.name}")
    return str(folder)


def weights_dir(profile: ModelProfile) -> Path:
    """Return the folder of an embedded model, which may not be there yet."""
    return cache_dir() / "models" / f"{profile.name}-{_carrier(profile).version}"


def verify(profile: ModelProfile) -> bool:
    """Return whether the converted files are there and have their checksums. Reads them all: 0.5 s for 270 MB."""
    folder = weights_dir(profile)
    manifest = _manifest(folder)
    return bool(manifest) and all(
        (folder / name).is_file() and _sha256(folder / name) == seen["sha256"] for name, seen in manifest.items()
    )


def build(profile: ModelProfile, convert: Callable[[Path, Path], None]) -> Path:
    """Convert an embedded model, unless another process just did; the folder appears whole or not at all.

    Args:
        convert: writes the model of a GGUF file into an empty folder.
    """
    folder = weights_dir(profile)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.partial")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if _is_whole(folder):
            return folder
        if verify(profile):  # the same files with other times: a copied cache
            _write_manifest(folder)
            return folder
        shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
        partial.mkdir()
        convert(_gguf(profile), partial)
        _write_manifest(partial)
        shutil.rmtree(folder, ignore_errors=True)  # damaged, or os.replace refuses it
        os.replace(partial, folder)
    return folder


def _carrier(profile: ModelProfile) -> importlib.metadata.Distribution:
    package = profile.source.package
    if package is None:
        raise ProfileError(f"profile {profile.name!r} has no package that carries the model.")
    try:
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as exc:
        raise MissingDependencyError(_remedy(profile.name, package, "demo")) from exc


def _gguf(profile: ModelProfile) -> Path:
    carrier = _carrier(profile)
    for entry in carrier.files or ():
        if entry.name == profile.source.file:
            return Path(str(carrier.locate_file(entry)))
    raise ProfileError(
        f"profile {profile.name!r} wants the file {profile.source.file!r}, "
        f"which {profile.source.package} {carrier.version} does not carry; install the version that does."
    )


def _check_converter(profile: ModelProfile) -> None:
    for module, extra in (("gguf", "demo"), ("accelerate", "demo"), ("torch", "cpu"), ("transformers", "cpu")):
        if importlib.util.find_spec(module) is None:
            raise MissingDependencyError(_remedy(profile.name, module, extra))


def _remedy(name: str, package: str, extra: str) -> str:
    return f'model {name!r} needs the package {package}, which is not installed: pip install "platform-plugin[{extra}]"'


def _run_converter(name: str) -> None:
    # A Ray worker finds this package through sys.path, which a child does not inherit.
    search = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search)), "HF_HUB_OFFLINE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "platform_plugin.weights", name],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode != 0:
        last = "\n".join(ran.stderr.strip().splitlines()[-2:]) or "it said nothing"
        raise EngineStartError(
            f"model {name!r} could not be converted into {cache_dir()} (exit code {ran.returncode}):\n{last}\n"
            f"It needs 600 MB of disk and 1.5 GB of memory; {CACHE_VARIABLE} names another folder."
        )


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model of `gguf` into `folder` as bfloat16 safetensors, with tokenizer and chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise RuntimeError(f"{gguf.name} carries no chat template")
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype="bfloat16",
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return manifest


def _write_manifest(folder: Path) -> None:
    manifest = {}
    for path in sorted(folder.iterdir()):
        if path.name == _MANIFEST:
            continue
        path.chmod(0o644)  # safetensors writes 0600, which other users of a shared cache cannot read
        stat = path.stat()
        manifest[path.name] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": _sha256(path)}
    partial = folder / f"{_MANIFEST}.partial"
    partial.write_text(json.dumps(manifest, indent=1))
    os.replace(partial, folder / _MANIFEST)


def _is_whole(folder: Path) -> bool:
    """Return whether every file has the size and the time of the manifest: cheap, so asked at every start."""
    manifest = _manifest(folder)
    for name, seen in manifest.items():
        try:
            stat = (folder / name).stat()
        except FileNotFoundError:
            return False
        if (stat.st_size, stat.st_mtime_ns) != (seen["size"], seen["mtime_ns"]):
            return False
    return bool(manifest)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    build(load_profile(sys.argv[1]), _convert)
