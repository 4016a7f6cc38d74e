"""How far a UDF reaches: its own body, and the functions and classes of the same module that it uses."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from udf_compat.inspector.names import Names

MOST = 200
"""Functions followed from one UDF; a bound for modules that are one large knot."""


class Uses(cst.CSTVisitor):
    """The names, attributes and calls of a piece of code, without its annotations and keywords."""

    def __init__(self) -> None:
        self.names: list[cst.Name] = []
        self.attributes: list[cst.Attribute] = []
        self.calls: list[cst.Call] = []

    @property
    def references(self) -> list[cst.Name | cst.Attribute]:
        """Names, and attributes of whatever."""
        return [*self.names, *self.attributes]

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.names.append(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        self.attributes.append(node)
        # The attribute's own name is no name of the module.
        node.value.visit(self)
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def visit_Param(self, node: cst.Param) -> bool:
        if node.default is not None:
            node.default.visit(self)
        return False

    def visit_Call(self, node: cst.Call) -> None:
        self.calls.append(node)


def uses(*nodes: cst.CSTNode) -> Uses:
    """Return what some nodes use."""
    found = Uses()
    for node in nodes:
        node.visit(found)
    return found


def reached(function: cst.CSTNode, names: Names) -> list[cst.CSTNode]:
    """Return the function, and all functions and classes of the module that it uses, directly or not."""
    seen: list[cst.CSTNode] = [function]
    for node in seen:  # grows while it is walked
        for local in _locals(node, names):
            if len(seen) < MOST and not any(local is one or inside(local, one, names) for one in seen):
                seen.append(local)
    return seen


def inside(node: cst.CSTNode, outer: cst.CSTNode, names: Names) -> bool:
    """Whether a node stands within another one."""
    return any(above is outer for above in names.above(node))


def _locals(node: cst.CSTNode, names: Names) -> Iterator[cst.CSTNode]:
    found = uses(node)
    for one in found.references:
        value = names.definition(one)
        if isinstance(value, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            yield value
