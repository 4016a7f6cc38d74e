"""Imports go one way and heavy packages keep to their homes: in the source, then in a process."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform_plugin"

LAYERS = [
    "errors",
    "config profiles arguments schema double_text template tally report progress view jdk meter failures connection "
    "measure classes overlap rouge prices actors footprint listeners crossing remote "
    "halving named ddl known",
    "bridges engines chat output ask prompting rows keeper monitor replica routing deployment pool session spark_conf "
    "shipping weights saved credentials udf metrics k8s local_ray probe predictors tensors arrays",
    "supervision passage asker hand_off whole_rows stream requests budget forwarder direct inference run scoring "
    "preflight inline rejoin store answers sample files tracking "
    "named_udf udf_rows udf_work model_rows model_work mapping",
    "stages evaluation doctor cli predict demo __main__",
]
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names.split()}

PLUGIN_FOLDERS = {"bridges", "engines", "metrics", "predictors", "udf.kinds"}
"""One plugin a file: it can be taken out without breaking the one beside it."""

HOMES = {
    "vllm": {"engines.vllm", "arguments"},
    "raydp": {"bridges.raydp", "session"},
    "mlflow": {"tracking", "evaluation", "predictors.mlflow_model"},
    "ray.serve": {"pool", "deployment", "routing"},
    "torch": {"engines", "weights", "chat", "tensors", "predictors"},
    "transformers": {"engines", "weights", "chat"},
}
HEAVY = ["ray", "vllm", "torch", "mlflow", "transformers"]


def module_name(path: Path) -> str:
    """Return "engines.vllm" for engines/vllm.py and "engines" for engines/__init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = [name for name in FILES if name]  # the package itself holds the public names and no code


def imported(source: str, package: str) -> Iterator[str]:
    """Yield the full name of all that `source`, a module in `package`, imports at any level."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"}:
                yield str(node.args[0].value)


def imports_of(module: str) -> list[str]:
    path = FILES[module]
    parents = path.parent.relative_to(ROOT).parts
    return list(imported(path.read_text(encoding="utf-8"), ".".join(parents)))


def own_imports(module: str) -> list[str]:
    """Return what `module` imports of this package, without its prefix."""
    prefix = PACKAGE.name + "."
    return [name.removeprefix(prefix) for name in imports_of(module) if name.startswith(prefix)]


def home_file(name: str) -> str:
    """Return the module that `name` (a module, or something in one) is found in."""
    while name and name not in FILES:
        name = name.rpartition(".")[0]
    return name


def layer(name: str) -> int:
    """Return the layer of a module or of something in it; what has none is above them all."""
    return LAYER.get(name.split(".")[0], len(LAYERS))


def within(name: str, home: str) -> bool:
    return f"{name}.".startswith(f"{home}.")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import ray.serve as s", ["ray.serve"]),
        ("from ray import serve, data", ["ray.serve", "ray.data"]),
        ("def f():\n    if x:\n        import vllm", ["vllm"]),
        ("from . import raydp", ["platform_plugin.bridges.raydp"]),
        ("from .raydp import Raydp", ["platform_plugin.bridges.raydp.Raydp"]),
        ("from ..pool import Pool", ["platform_plugin.pool.Pool"]),
        ("importlib.import_module('torch.nn')", ["torch.nn"]),
        ("importlib.metadata.version('torch')", []),
    ],
)
def test_the_reader_of_imports_sees(source: str, names: list[str]) -> None:
    assert list(imported(source, "platform_plugin.bridges")) == names


@pytest.mark.parametrize("module", MODULES)
def test_module_has_a_layer(module: str) -> None:
    assert module.split(".")[0] in LAYER, f"{FILES[module]} is in no layer; give it one in LAYERS"


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_nothing_from_above(module: str) -> None:
    level = layer(module)
    above = [name for name in own_imports(module) if layer(name) > level]
    assert not above, f"{module} (layer {level}) imports {above}, of a higher layer or of none"
    assert not [name for name in imports_of(module) if within(name, "udf_compat")], "udf_compat sits above"


def test_no_two_modules_import_each_other() -> None:
    needs = {module: {home_file(name) for name in own_imports(module)} - {module} for module in MODULES}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError with the cycle


@pytest.mark.parametrize("module", [m for m in MODULES if m.rpartition(".")[0] in PLUGIN_FOLDERS])
def test_plugin_does_not_import_its_siblings(module: str) -> None:
    folder = module.rpartition(".")[0]
    siblings = {m for m in MODULES if m.rpartition(".")[0] == folder} - {module}
    taken = [name for name in own_imports(module) if any(within(name, sibling) for sibling in siblings)]
    assert not taken, f"{module} imports {taken}; move what they share below {folder}"


@pytest.mark.parametrize("module", FILES, ids=lambda name: name or "platform_plugin")
def test_heavy_packages_are_imported_in_their_homes_only(module: str) -> None:
    strays = [
        name
        for name in imports_of(module)
        for heavy, homes in HOMES.items()
        if within(name, heavy) and not any(within(module, home) for home in homes)
    ]
    assert not strays, f"{module or 'platform_plugin'} imports {strays}; their homes are {HOMES}"


@pytest.mark.parametrize(
    "statement",
    [
        "import platform_plugin",
        # A spec describes an engine on the driver, where the engine's packages need not be.
        "import importlib, platform_plugin.engines as e\n"
        "for name in e.find_engines(): importlib.import_module(f'{e.__name__}.{name}')",
    ],
    ids=["package", "engines"],
)
def test_clean_process_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
