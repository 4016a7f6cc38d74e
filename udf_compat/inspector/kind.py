"""The kind of a pandas UDF, by its type hints or by ``functionType``, as PySpark decides it."""

from __future__ import annotations

import libcst as cst

LEGACY = {
    "SCALAR": "scalar",
    "SCALAR_ITER": "scalar iterator",
    "GROUPED_AGG": "grouped aggregate",
    "GROUPED_MAP": "grouped map",
}
UNHINTED = "scalar (no type hints)"
UNKNOWN = "unknown"
COLUMNS = {"Series", "DataFrame"}


def pandas_kind(function: cst.CSTNode | None, function_type: cst.BaseExpression | None) -> str:
    """Return the kind of a pandas UDF, `UNKNOWN` where PySpark refuses the hints or they cannot be seen.

    Args:
        function: the FunctionDef or Lambda, None where its source is elsewhere.
        function_type: what ``functionType=`` was given.
    """
    if function_type is not None:
        return LEGACY.get(last_name(function_type), UNKNOWN)
    if isinstance(function, cst.Lambda):
        return UNHINTED
    if not isinstance(function, cst.FunctionDef):
        return UNKNOWN
    returns = _annotation(function.returns)
    hints = [_annotation(param.annotation) for param in _parameters(function)]
    if returns is None and not any(hints):
        return UNHINTED
    if returns is None or not all(hints):
        return UNKNOWN
    return _kind(returns, [hint for hint in hints if hint is not None])


def _kind(returns: cst.BaseExpression, hints: list[cst.BaseExpression]) -> str:
    names = [last_name(hint) for hint in hints]
    if last_name(returns) == "Iterator":
        if names != ["Iterator"]:
            return UNKNOWN
        inner = _item(hints[0])
        return "iterator of tuples" if inner is not None and last_name(inner).lower() == "tuple" else "scalar iterator"
    if names and not set(names) <= COLUMNS:
        return UNKNOWN
    if last_name(returns) in COLUMNS:
        return "scalar"
    # Anything that is no column is a value a group, as in PySpark; Generator and the like are not.
    unfit = {"Generator", "Iterable", "AsyncIterator", "Tuple", "tuple"}
    return UNKNOWN if last_name(returns) in unfit else "grouped aggregate"


def last_name(expression: cst.BaseExpression) -> str:
    """Return "Series" for ``pd.Series`` and "Iterator" for ``typing.Iterator[pd.Series]``; "" for no name."""
    if isinstance(expression, cst.Subscript):
        return last_name(expression.value)
    if isinstance(expression, cst.Attribute):
        return expression.attr.value
    return expression.value if isinstance(expression, cst.Name) else ""


def _item(hint: cst.BaseExpression) -> cst.BaseExpression | None:
    if isinstance(hint, cst.Subscript) and isinstance(hint.slice[0].slice, cst.Index):
        return _unquoted(hint.slice[0].slice.value)
    return None


def _annotation(annotation: cst.Annotation | None) -> cst.BaseExpression | None:
    return None if annotation is None else _unquoted(annotation.annotation)


def _unquoted(hint: cst.BaseExpression) -> cst.BaseExpression:
    """Return the expression in a hint that is written as a string."""
    if isinstance(hint, cst.SimpleString) and isinstance(hint.evaluated_value, str):
        try:
            return cst.parse_expression(hint.evaluated_value)
        except cst.ParserSyntaxError:
            return hint
    return hint


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    params = function.params
    star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
    named = [*params.posonly_params, *params.params, *star, *params.kwonly_params]
    # The first argument of a method is the object.
    return named[1:] if named and named[0].name.value in {"self", "cls"} else named
