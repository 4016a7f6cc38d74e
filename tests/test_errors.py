"""The exception tree: it is as drawn, and every error survives the way between processes."""

from __future__ import annotations

import builtins
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

from platform_plugin import errors
from platform_plugin.errors import (
    ConfigError,
    GateError,
    InvalidRowsError,
    MissingDependencyError,
    PlatformPluginError,
    SchemaError,
    near,
)

DRAWN = re.compile(r"^    (?P<branch>[│├└─ ]*)(?P<name>\w+Error)\b(?: \(also (?P<also>\w+)\))?", re.MULTILINE)
ARGUMENTS: dict[type[PlatformPluginError], tuple[Any, ...]] = {
    InvalidRowsError: ({"PromptTooLong": 2, "Timeout": 1}, ["row 7: 9000 tokens", "row 9: 600 s"]),
    GateError: (["short: macro_f1 = 0.41, wanted >= 0.6"],),
}


def tree(root: type[PlatformPluginError]) -> Iterator[type[PlatformPluginError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


# Those of this file only: a subclass that a test of another file makes is not part of the tree.
ERRORS = [cls for cls in tree(PlatformPluginError) if cls.__module__ == errors.__name__]


def test_the_docstring_draws_every_class_under_its_base() -> None:
    drawn: list[tuple[str, str | None, str | None]] = []
    path: list[str] = []
    for match in DRAWN.finditer(errors.__doc__ or ""):
        path[len(match["branch"]) // 4 :] = [match["name"]]
        drawn.append((match["name"], path[-2] if len(path) > 1 else None, match["also"]))
    assert sorted(name for name, _, _ in drawn) == sorted(cls.__name__ for cls in ERRORS)
    for name, base, also in drawn:
        cls = getattr(errors, name)
        assert base is None or cls.__bases__[0].__name__ == base
        assert tuple(b.__name__ for b in cls.__bases__[1:]) == ((also,) if also else ())
        assert also is None or hasattr(builtins, also)


@pytest.mark.parametrize("cls", ERRORS, ids=lambda cls: cls.__name__)
def test_error_pickles_with_its_type_and_text(cls: type[PlatformPluginError]) -> None:
    error = cls(*ARGUMENTS.get(cls, ("maxTokens=256 is not known.\nUse max_tokens.",)))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is cls
    assert str(back) == str(error) != ""
    assert back.args == error.args


def test_invalid_rows_error_counts_and_shows_what_failed() -> None:
    error = pickle.loads(pickle.dumps(InvalidRowsError(*ARGUMENTS[InvalidRowsError])))
    assert error.counts == {"PromptTooLong": 2, "Timeout": 1}
    assert str(error).startswith("3 rows have no answer (2 PromptTooLong, 1 Timeout)")
    assert "row 7: 9000 tokens" in str(error)
    assert 'handleInvalid to "keep"' in str(error)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [(ConfigError, ValueError), (SchemaError, ValueError), (MissingDependencyError, ImportError)],
)
def test_callers_can_catch_the_builtin(cls: type[PlatformPluginError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="what came"):
        raise cls("what came, what was wanted, what to do")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("maxTokens", "max_tokens"),
        ("topP", "top_p"),
        ("max_token", "max_tokens"),
        ("MAXTOKENS", "max_tokens"),
    ],
)
def test_near_finds_the_name_in_another_style(name: str, wanted: str) -> None:
    assert near(name, ["max_tokens", "top_p", "seed"]) == f" Did you mean {wanted!r}?"


def test_near_is_silent_where_nothing_is_near() -> None:
    assert near("xyzzy", ["max_tokens", "top_p"]) == ""
