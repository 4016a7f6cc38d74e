"""From the expression that a UDF is made of to the function itself, and its name in a report."""

from __future__ import annotations

import libcst as cst

from udf_compat.inspector.catalogue import ON_RAY
from udf_compat.inspector.kind import last_name
from udf_compat.inspector.names import Names, dotted

DEPTH = 5


def body_of(node: cst.CSTNode | None, names: Names, depth: int = DEPTH) -> cst.FunctionDef | cst.Lambda | None:
    """Return the FunctionDef or Lambda behind an expression, None where its source is not in this module.

    It is followed through names, ``partial``, objects with ``__call__``, and functions that return a function.
    """
    if isinstance(node, cst.FunctionDef | cst.Lambda):
        return node
    if node is None or depth == 0:
        return None
    if isinstance(node, cst.ClassDef):
        return _method(node, "__call__")
    if isinstance(node, cst.Name | cst.Attribute):
        value = names.definition(node)
        return None if isinstance(value, cst.ClassDef | cst.Param) else body_of(value, names, depth - 1)
    if not isinstance(node, cst.Call):
        return None
    if "functools.partial" in names.qualified(node.func):
        return body_of(node.args[0].value, names, depth - 1) if node.args else None
    made_by = names.definition(node.func)
    if isinstance(made_by, cst.FunctionDef):
        returned = _Returned()
        made_by.body.visit(returned)
        found = (body_of(value, names, depth - 1) for value in returned.values)
        return next((body for body in found if body is not None), None)
    return body_of(made_by, names, depth - 1) if isinstance(made_by, cst.ClassDef) else None


class _Returned(cst.CSTVisitor):
    """Collects what a function returns, not what the functions within it do."""

    def __init__(self) -> None:
        self.values: list[cst.BaseExpression] = []

    def visit_Return(self, node: cst.Return) -> None:
        if node.value is not None:
            self.values.append(node.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False

    def visit_Lambda(self, node: cst.Lambda) -> bool:
        return False


def _method(owner: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    methods = (one for one in owner.body.body if isinstance(one, cst.FunctionDef))
    return next((one for one in methods if one.name.value == name), None)


def name_of(function: cst.BaseExpression, names: Names) -> str:
    """Return the name of a function as a report shows it."""
    if isinstance(function, cst.Lambda):
        return "<lambda>"
    return dotted(function) or names.code(function)


def target_of(call: cst.CSTNode, names: Names) -> str | None:
    """Return the name that the value of an expression is assigned to: ``f`` in ``f = udf(g).asNondeterministic()``."""
    parent = names.parent(call)
    while isinstance(parent, cst.Attribute) or (
        isinstance(parent, cst.Call) and isinstance(parent.func, cst.Attribute)
    ):
        if isinstance(parent, cst.Call) and parent.func is not call:
            return None
        if isinstance(parent, cst.Attribute) and parent.attr.value != "asNondeterministic":
            return None
        call, parent = parent, names.parent(parent)
    if isinstance(parent, cst.Assign) and len(parent.targets) == 1:
        return dotted(parent.targets[0].target) or None
    if isinstance(parent, cst.AnnAssign | cst.NamedExpr):
        return dotted(parent.target) or None
    return None


def decorated(call: cst.CSTNode, names: Names) -> str | None:
    """Return the name of the function or class that an expression decorates."""
    decorator = names.parent(call)
    target = names.parent(decorator) if isinstance(decorator, cst.Decorator) else None
    return target.name.value if isinstance(target, cst.FunctionDef | cst.ClassDef) else None


def plain(node: cst.CSTNode | None) -> cst.CSTNode | None:
    """Return the UDF below ``.asNondeterministic()``."""
    while (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and last_name(node.func) == "asNondeterministic"
    ):
        node = node.func.value
    return node


def unwrapped(function: cst.BaseExpression, names: Names) -> cst.BaseExpression:
    """Return `f` for ``on_ray(f)`` and ``on_ray(shared_prologue=True)(f)``, written there or assigned before."""
    for one in (function, names.definition(function)):
        if isinstance(one, cst.Call) and one.args:
            callee = one.func.func if isinstance(one.func, cst.Call) else one.func
            if names.qualified(callee) & ON_RAY:
                return one.args[0].value
    return function


def marked(function: cst.BaseExpression, names: Names) -> bool:
    """Whether a function is defined under ``@on_ray``."""
    body = names.definition(function)
    if not isinstance(body, cst.FunctionDef):
        return False
    marks = (one.decorator.func if isinstance(one.decorator, cst.Call) else one.decorator for one in body.decorators)
    return any(names.qualified(mark) & ON_RAY for mark in marks)
