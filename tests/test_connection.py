"""What a Python worker of Spark's does once it has joined Ray."""

from __future__ import annotations

import gc
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from platform_plugin import connection


def archive(path: Path, module: str) -> zipimporter:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{module}.py", "")
    return zipimporter(str(path))


def test_sparks_own_archives_are_read_once_and_the_users_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["spark-core_2.12-3.5.7.jar", "pyspark.zip", "py4j-0.10.9.7-src.zip", "users.zip"]
    finders = {name: archive(tmp_path / name, "old") for name in names}
    monkeypatch.setattr(sys, "path_importer_cache", {str(tmp_path / name): found for name, found in finders.items()})
    try:
        connection._settle()
    finally:
        gc.unfreeze()
    for name, finder in finders.items():
        archive(tmp_path / name, "new")
        finder.invalidate_caches()
        assert (finder.find_spec("new") is not None) == (name == "users.zip")
