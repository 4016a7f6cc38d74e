"""The files of a model, ready for an engine. What an engine does with them does not belong here.

A model that a Python package carries as GGUF is converted once to safetensors, which vLLM reads on
every device:

    <cache>/models/<profile>-<package version>/
        config.json, model.safetensors, tokenizer, chat template
        manifest.json       size, modification time and sha256 of each of them

The conversion runs in a process of its own (``python -m platform_plugin.weights <profile>``), which
alone takes the lock: its memory is given back, and a killed caller leaves no lock, no half model.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
from filelock import FileLock

from platform_plugin.errors import EngineStartError, MissingDependencyError, ProfileError
from platform_plugin.profiles import ModelProfile, load_profile

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "PLATFORM_PLUGIN_CACHE"
_MANIFEST = "manifest.json"


def cache_dir() -> Path:
    """Return ``$PLATFORM_PLUGIN_CACHE``, or this project's folder in the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named or platformdirs.user_cache_dir("platform-plugin")).expanduser()


def ensure_weights(profile: ModelProfile, say: Callable[[str], object] = logger.info) -> str:
    """Return the folder or hub id that an engine loads; convert an embedded model first if need be.

    Runs on: driver or Ray actor; the folder is this machine's.

    Args:
        profile: of a hub id or a folder, which are returned as they are, or of an embedded model.
        say: told in one line that a conversion begins, and that it is done.

    Raises:
        MissingDependencyError: the package that carries the model, or one that converts it, is absent.
        EngineStartError: the conversion failed; carries its last lines.
    """
    if profile.source.hub:
        return profile.source.hub
    if profile.source.folder:
        return profile.source.folder
    folder = weights_dir(profile)
    if not _is_usable(profile):
        _check_converter(profile)
        say(f"converting {profile.name} to {folder} (once, about a minute)")
        _run_converter(profile.name)
        say(f"converted {profile.name}")
    return str(folder)


def weights_dir(profile: ModelProfile) -> Path:
    """Return the folder of an embedded model, which may not be there yet if it is converted."""
    if not _is_converted(profile):
        return _carried(profile).parent
    return cache_dir() / "models" / f"{profile.name}-{_carrier(profile).version}"


def verify(profile: ModelProfile) -> bool:
    """Return whether the converted files have their checksums. Reads them all: 0.2 s for 270 MB."""
    if not _is_converted(profile):
        return _carried(profile).is_file()
    folder = weights_dir(profile)
    manifest = _manifest(folder)
    return bool(manifest) and all(
        (folder / name).is_file() and _sha256(folder / name) == seen["sha256"] for name, seen in manifest.items()
    )


def build(profile: ModelProfile, convert: Callable[[Path, Path], None]) -> Path:
    """Convert an embedded model unless another process did; the folder appears whole or not at all.

    Args:
        profile: of an embedded model.
        convert: writes the model of a GGUF file into an empty folder.
    """
    folder = weights_dir(profile)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f"{folder.name}.partial")
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if _is_usable(profile):
            return folder
        shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
        partial.mkdir()
        convert(_carried(profile), partial)
        _write_manifest(partial)
        shutil.rmtree(folder, ignore_errors=True)  # damaged
        partial.replace(folder)
    return folder


def _carrier(profile: ModelProfile) -> importlib.metadata.Distribution:
    package = profile.source.package
    if package is None:
        raise ProfileError(f"profile {profile.name!r} has no package that carries the model.")
    try:
        return importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as exc:
        raise MissingDependencyError(_remedy(profile.name, package, "demo")) from exc


def _is_converted(profile: ModelProfile) -> bool:
    return (profile.source.file or "").endswith(".gguf")


def _carried(profile: ModelProfile) -> Path:
    carrier = _carrier(profile)
    for entry in carrier.files or ():
        if entry.match(profile.source.file or ""):
            return Path(str(carrier.locate_file(entry)))
    raise ProfileError(
        f"profile {profile.name!r} wants the file {profile.source.file!r}, "
        f"which {profile.source.package} {carrier.version} does not carry; "
        "install the version that does."
    )


def _check_converter(profile: ModelProfile) -> None:
    extras = {"gguf": "demo", "accelerate": "demo", "torch": "cpu", "transformers": "cpu"}
    for module, extra in extras.items():
        if importlib.util.find_spec(module) is None:
            raise MissingDependencyError(_remedy(profile.name, module, extra))


def _remedy(name: str, package: str, extra: str) -> str:
    return f'model {name!r} needs the package {package}, which is not installed: pip install "platform-plugin[{extra}]"'


def _run_converter(name: str) -> None:
    # A Ray worker finds this package through sys.path, which a child does not inherit.
    search = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, search))
    ran = subprocess.run(
        [sys.executable, "-m", "platform_plugin.weights", name],
        env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode != 0:
        last = "\n".join(ran.stderr.strip().splitlines()[-2:]) or "it said nothing"
        raise EngineStartError(
            f"model {name!r} could not be converted into {cache_dir()} "
            f"(exit code {ran.returncode}):\n{last}\n"
            f"It needs 600 MB of disk and 1.5 GB of memory; {CACHE_VARIABLE} sets the folder."
        )


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model of `gguf` into `folder`: bfloat16 safetensors, tokenizer and chat template."""
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
        path.chmod(0o644)  # safetensors writes 0600, unreadable for the others of a shared cache
        size, mtime_ns = path.stat().st_size, path.stat().st_mtime_ns
        manifest[path.name] = {"size": size, "mtime_ns": mtime_ns, "sha256": _sha256(path)}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def _is_usable(profile: ModelProfile) -> bool:
    """Return whether every file has the manifest's size, and its time or else its checksum."""
    folder = weights_dir(profile)
    if not _is_converted(profile):
        return True
    manifest = _manifest(folder)
    try:
        stats = {name: (folder / name).stat() for name in manifest}
    except FileNotFoundError:
        return False
    if any(stats[name].st_size != seen["size"] for name, seen in manifest.items()):
        return False
    if any(stats[name].st_mtime_ns != seen["mtime_ns"] for name, seen in manifest.items()):
        return verify(profile)  # a copied cache has other times
    return bool(manifest)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    build(load_profile(sys.argv[1]), _convert)
