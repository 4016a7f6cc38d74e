"""What a Python worker of Spark's does once it has joined Ray."""

from __future__ import annotations

import gc
import sys
import zipfile
from pathlib import Path
from types import ModuleType
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
    monkeypatch.setattr(connection, "_settled_modules", 0)
    try:
        connection._settle()
    finally:
        gc.unfreeze()
    for name, finder in finders.items():
        archive(tmp_path / name, "new")
        finder.invalidate_caches()
        assert (finder.find_spec("new") is not None) == (name == "users.zip")


def test_what_is_imported_later_is_left_out_of_collections_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_settled_modules", 0)
    try:
        connection._settle()
        later = [{} for _ in range(10)]
        connection._settle()
        assert gc.is_tracked(later)
        assert any(one is later for one in gc.get_objects()), "a module or two are not worth a collection"
        with monkeypatch.context() as imported:
            for i in range(connection._MANY_MODULES):
                imported.setitem(sys.modules, f"imported_later_{i}", ModuleType(f"imported_later_{i}"))
            connection._settle()
        assert not any(one is later for one in gc.get_objects())
    finally:
        gc.unfreeze()
