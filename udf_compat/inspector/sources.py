"""The files that paths stand for, and writing one so that nobody ever sees half of it."""

from __future__ import annotations

import codecs
import io
import os
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from udf_compat.inspector.finding import Place, Problem
from udf_compat.inspector.saved import is_saved

LEFT_OUT = {"__pycache__", "node_modules", "site-packages"}
"""Folders that hold no code of the user; those with a dot and virtual environments are left out as well."""


def collect(paths: Iterable[Path]) -> Iterator[Path | Problem]:
    """Yield the Python files, notebooks and folders of saved stages that paths stand for, each once.

    A file that is named itself is read whatever its name is.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            yield Problem(Place(str(path)), "no such file or folder")
            continue
        count = 0
        for found in _walk(path) if path.is_dir() else [path]:
            count += 1
            if isinstance(found, Problem):
                yield found
            elif (real := found.resolve()) not in seen:
                seen.add(real)
                yield found
        if not count:
            yield Problem(Place(str(path)), "holds no Python file, notebook or saved pipeline")


def _walk(folder: Path) -> Iterator[Path | Problem]:
    if is_saved(folder):
        yield folder
        return
    try:
        entries = sorted(folder.iterdir())
    except OSError as exc:
        yield Problem(Place(str(folder)), f"cannot be read: {exc.strerror}")
        return
    for path in entries:
        if path.is_dir():
            hidden = path.name.startswith(".") or path.name in LEFT_OUT or (path / "pyvenv.cfg").exists()
            if not hidden and not path.is_symlink():  # a link may lead back up
                yield from _walk(path)
        elif path.suffix in {".py", ".pyw", ".ipynb"}:
            yield path


@dataclass(frozen=True)
class Text:
    """The text of a file with what is needed to write it back as it was."""

    path: Path
    raw: bytes
    text: str
    encoding: str

    def encode(self, text: str) -> bytes:
        """Return another text as this file would hold it."""
        bom = codecs.BOM_UTF8 if self.raw.startswith(codecs.BOM_UTF8) else b""
        return bom + text.encode(self.encoding)


def load(path: Path) -> Text:
    """Read a file, with the encoding that it declares.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not text in its encoding.
    """
    raw = path.read_bytes()
    try:
        encoding = "utf-8" if path.suffix == ".ipynb" else tokenize.detect_encoding(io.BytesIO(raw).readline)[0]
    except SyntaxError as exc:
        raise ValueError(str(exc)) from exc
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    return Text(path, raw, raw.removeprefix(codecs.BOM_UTF8).decode(encoding), encoding)


def replace(source: Text, text: str) -> None:
    """Write another text in place of a file: at once, with its mode, line ends and encoding; a link stays a link.

    Raises:
        OSError: it cannot be written.
        ValueError: it has changed since it was read.
    """
    target = source.path.resolve()
    status = target.stat()
    if not os.access(target, os.W_OK):
        raise PermissionError(13, "the file is read-only")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(source.encode(text))
            file.flush()
            os.fsync(file.fileno())
        if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
            os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(status.st_mode & 0o7777)
        if target.read_bytes() != source.raw:
            raise ValueError("it has changed since it was read; run the command again")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
