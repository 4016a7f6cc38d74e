"""What a Python worker knows of its Spark task, so that a function on an actor finds it as if it ran in the task."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil


@dataclass
class Task:
    """Partition, TaskContext, files, modules and broadcast variables of one Spark task. Pickles without values.

    Args:
        broadcasts: id -> the file that the executor keeps the value in.
        machine: id of the Ray node that the task runs on.
        contents: path -> bytes, of the files that an actor on another machine does not see.
    """

    split: int
    context: dict[str, Any] | None
    files: str
    modules: list[str]
    broadcasts: dict[int, str]
    folder: str
    process: tuple[int, float]
    machine: str = ""
    contents: dict[str, bytes] = field(default_factory=dict)

    @classmethod
    def of_worker(cls, split: int) -> Task:
        """Describe the task that this process works for. Runs on: Spark executor."""
        from pyspark.broadcast import _broadcastRegistry
        from pyspark.files import SparkFiles
        from pyspark.taskcontext import TaskContext

        context = TaskContext.get()
        root = SparkFiles._root_directory or ""
        own = psutil.Process()
        return cls(
            split=split,
            context=dict(context.__dict__) if context is not None else None,
            files=root,
            modules=[path for path in sys.path if root and path.startswith(root)],
            broadcasts={number: value._path for number, value in _broadcastRegistry.items()},
            folder=str(Path.cwd()),
            process=(own.pid, own.create_time()),
        )

    def with_contents(self) -> Task:
        """Return this task with the bytes of its files, for an actor on another machine. Runs on: Spark executor."""
        wanted = [Path(path) for path in self.broadcasts.values()]
        for path in map(Path, self.modules):
            wanted += [p for p in (path.rglob("*") if path.is_dir() else [path]) if p.is_file()]
        contents = {str(path): path.read_bytes() for path in wanted if path.is_file()}
        return Task(**{**self.__dict__, "contents": contents})

    def enter(self) -> None:
        """Make this process look like the task's Python worker. Runs on: Ray actor."""
        from pyspark.broadcast import Broadcast, _broadcastRegistry
        from pyspark.files import SparkFiles
        from pyspark.taskcontext import TaskContext

        self._write_contents()
        if self.context is None:
            TaskContext._taskContext = None
        else:
            context = object.__new__(TaskContext)
            context.__dict__.update(self.context)
            TaskContext._setTaskContext(context)
        SparkFiles._root_directory = self.files
        SparkFiles._is_running_on_worker = True
        fresh = [path for path in self.modules if path not in sys.path]
        if fresh:
            sys.path[1:1] = fresh
            importlib.invalidate_caches()
        for number, path in self.broadcasts.items():
            if number not in _broadcastRegistry:
                _broadcastRegistry[number] = Broadcast(path=path)
        if Path(self.folder).is_dir() and self.folder != str(Path.cwd()):
            os.chdir(self.folder)

    def _write_contents(self) -> None:
        for path, data in self.contents.items():
            if not Path(path).exists():
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(data)
        self.contents = {}


def lives(process: tuple[int, float]) -> bool:
    """Return whether that process of this machine still runs."""
    try:
        return psutil.Process(process[0]).create_time() == process[1]
    except psutil.Error:
        return False
