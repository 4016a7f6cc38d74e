"""How a module makes UDFs: which expressions are ``pandas_udf``, ``udf`` or ``predict_batch_udf``, and of what."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from udf_compat.inspector.catalogue import MAKERS, MOVED
from udf_compat.inspector.names import Names, dotted

DEPTH = 5
PARAMETER = {"pandas_udf": "f", "udf": "f", "predict_batch_udf": "make_predict_fn"}
"""The parameter that takes the function; it is the first."""


@dataclass
class Maker:
    """A maker of UDFs, perhaps with some of its arguments given already, as in ``double = pandas_udf("double")``."""

    name: str
    node: cst.BaseExpression
    moved: bool = False
    star: bool = False
    given: list[cst.Call] = field(default_factory=list)

    @property
    def function_type(self) -> cst.BaseExpression | None:
        """The legacy ``functionType``, by its keyword or in second place: ``PandasUDFType.SCALAR_ITER``."""
        for arg in (arg for call in self.given for arg in call.args):
            if (arg.keyword is not None and arg.keyword.value == "functionType") or (
                arg.keyword is None and "PandasUDFType" in dotted(arg.value)
            ):
                return arg.value
        return None

    def given_with(self, call: cst.Call) -> Maker:
        """Return this maker with the arguments of one more call."""
        return Maker(self.name, self.node, self.moved, self.star, [*self.given, call])


class Makers:
    """Finds the makers of one module."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._stars = bool(names.stars())

    def reference(self, node: cst.CSTNode) -> Maker | None:
        """Return the maker that a name or ``module.name`` is by the imports, None for anything else."""
        if not isinstance(node, cst.Name | cst.Attribute):
            return None
        full = self._names.qualified(node)
        moved = full & MOVED
        found = moved or full & MAKERS.keys()
        if found:
            # A fallback between PySpark's and ours counts as ours: somebody has thought about it.
            name = sorted(found)[0].rpartition(".")[2]
            return Maker(name, node, moved=bool(moved))
        if self._stars and isinstance(node, cst.Name) and node.value in PARAMETER and self._unbound(node):
            return Maker(node.value, node, star=True)
        return None

    def _unbound(self, node: cst.Name) -> bool:
        return self._names.scoped(node) and not self._names.bindings(node)

    def maker(self, node: cst.CSTNode | None, depth: int = DEPTH) -> Maker | None:
        """Return the maker that an expression stands for, through aliases, ``partial`` and calls without a function."""
        if node is None or depth == 0:
            return None
        found = self.reference(node)
        if found is not None:
            return found
        if isinstance(node, cst.Name):
            value = self._names.definition(node)
            return self.maker(value, depth - 1) if isinstance(value, cst.BaseExpression) else None
        if not isinstance(node, cst.Call):
            return None
        if "functools.partial" in self._names.qualified(node.func):
            inner = self.maker(node.args[0].value, depth - 1) if node.args else None
            rest = node.with_changes(args=node.args[1:])
            return None if inner is None or self.function(rest, inner) else inner.given_with(rest)
        inner = self.maker(node.func, depth - 1)
        return None if inner is None or self.function(node, inner) is not None else inner.given_with(node)

    def of_decorator(self, node: cst.Decorator) -> Maker | None:
        """Return the maker that decorates a function; whatever it is called with are types."""
        expression = node.decorator
        if isinstance(expression, cst.Call):
            maker = self.maker(expression.func)
            return maker.given_with(expression) if maker is not None else self.maker(expression)
        return self.maker(expression)

    def function(self, call: cst.Call, maker: Maker) -> cst.BaseExpression | None:
        """Return the function that a maker is called with; None where the call gives it types only."""
        parameter = PARAMETER[maker.name]
        for arg in call.args:
            if arg.keyword is not None and arg.keyword.value == parameter:
                return None if dotted(arg.value) == "None" else arg.value
        first = call.args[0] if call.args and call.args[0].keyword is None and not call.args[0].star else None
        if first is None or self._is_type(first.value):
            return None
        return first.value

    def _is_type(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is a return type: a DDL text, or something of ``pyspark.sql.types``."""
        if isinstance(node, cst.SimpleString | cst.ConcatenatedString | cst.FormattedString) or dotted(node) == "None":
            return True
        if isinstance(node, cst.Call):
            callee = node.func
            types = any(name.startswith("pyspark.sql.types.") for name in self._names.qualified(callee))
            return types or dotted(callee).rpartition(".")[2].endswith("Type")
        value = self._names.definition(node)
        if isinstance(value, cst.BaseExpression) and value is not node and not isinstance(value, cst.Name):
            return self._is_type(value)
        types = any(name.startswith("pyspark.sql.types.") for name in self._names.qualified(node))
        return types or (isinstance(node, cst.Attribute) and node.attr.value in {"schema", "dataType", "returnType"})
