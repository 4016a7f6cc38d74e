"""The UDFs and stages of one module: what makes them, their kind, and whether they move."""

from __future__ import annotations

import builtins
import sys
from dataclasses import dataclass

import libcst as cst

from udf_compat.inspector import driver, loading
from udf_compat.inspector.bodies import body_of, decorated, marked, name_of, plain, target_of, unwrapped
from udf_compat.inspector.catalogue import FRAME_METHODS, OTHER_MAKERS, STATEFUL_METHODS
from udf_compat.inspector.finding import Finding, Place, Remark, Verdict
from udf_compat.inspector.kind import UNKNOWN, last_name, pandas_kind
from udf_compat.inspector.makers import Maker, Makers
from udf_compat.inspector.names import Names, dotted
from udf_compat.inspector.stages import class_finding, stage_finding

ALREADY = Remark(Verdict.UNCHANGED, "runs on Ray already")
IMPORT = Remark(Verdict.UNCHANGED, "with one changed import")
ON_RAY_WRAP = Remark(Verdict.UNCHANGED, "with on_ray(...) around the function")
REGISTER_WRAP = Remark(Verdict.UNCHANGED, "with udf(...) of udf_compat.functions around the function")
REGISTER_BY_HAND = Remark(
    Verdict.NOTE, "if it is a plain function: register udf(f, type) of udf_compat.functions instead"
)
STAR = Remark(Verdict.NOTE, "comes by a star import: the import from udf_compat.functions must stand after it")
HINTS = Remark(Verdict.NOTE, "has type hints that PySpark takes for no kind of pandas UDF")
ELSEWHERE = "calls {}, whose source is not in this file: give its file to migrate too"
SQL = "registers {} for SQL"


@dataclass
class Found:
    """A finding with the nodes that rewriting needs."""

    finding: Finding
    maker: Maker | None = None
    argument: cst.Arg | None = None
    """The function of a frame's method, to be wrapped."""
    register: cst.Call | None = None
    """A call of ``spark.udf.register`` with a plain function."""

    @property
    def movable(self) -> bool:
        """Whether it may be rewritten."""
        return self.finding.verdict is not Verdict.CANNOT


class Reading(cst.CSTVisitor):
    """Visits a module and collects what it finds."""

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.found: list[Found] = []
        self.names = names
        self.makers = Makers(names)
        self._decorators: set[cst.CSTNode] = set()
        self._udfs: dict[cst.CSTNode, Found] = {}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Find decorators that make a UDF of the function."""
        for decorator in node.decorators:
            maker = self.makers.of_decorator(decorator)
            if maker is not None:
                self._decorators.add(decorator.decorator)
                self._udf(node, node, node.name.value, maker)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        """Find classes of stages."""
        finding = class_finding(node, self.names, self._at(node))
        if finding is not None:
            self.found.append(Found(finding))

    def leave_Call(self, node: cst.Call) -> None:  # inner calls first: register(name, udf(f))
        """Find calls that make, apply or register a UDF, or make a stage."""
        if node in self._decorators:
            return
        last, full = last_name(node.func), self.names.qualified(node.func)
        other = next((remark for name, remark in OTHER_MAKERS.items() if name in full), STATEFUL_METHODS.get(last))
        maker = self.makers.maker(node.func)
        if other is not None:
            name = target_of(node, self.names) or decorated(node, self.names) or self._argument_name(node)
            self.found.append(Found(Finding(self._at(node), name, last, [Remark(*other)])))
        elif isinstance(node.func, cst.Attribute) and last in FRAME_METHODS:
            self._frame(node, node.func)
        elif isinstance(node.func, cst.Attribute) and last == "register" and last_name(node.func.value) == "udf":
            self._register(node)
        elif maker is not None:
            function = self.makers.function(node, maker)
            if function is not None:
                name = target_of(node, self.names) or name_of(function, self.names)
                self._udf(node, function, name, maker.given_with(node))
        else:
            finding = stage_finding(full, self._at(node))
            if finding is not None:
                self.found.append(Found(finding))

    def _udf(self, node: cst.CSTNode, function: cst.CSTNode, name: str, maker: Maker) -> None:
        body = body_of(function, self.names)
        kind = {"udf": "row", "predict_batch_udf": "predict_batch"}.get(maker.name)
        kind = kind or pandas_kind(body, maker.function_type)
        remarks = [ALREADY if maker.moved else STAR if maker.star else IMPORT]
        if maker.name == "pandas_udf" and kind == UNKNOWN and body is not None:
            remarks.append(HINTS)
        remarks += self._remarks(function, body, kind)
        found = Found(Finding(self._at(node), name, kind, remarks), maker)
        self._udfs[node] = found
        self.found.append(found)

    def _frame(self, node: cst.Call, method: cst.Attribute) -> None:
        """Record a function that a frame's method applies."""
        unbound = any(name.startswith("pyspark.") for name in self.names.qualified(method))  # DataFrame.mapInPandas
        argument = _argument(node, "func", 1 if unbound else 0)
        if argument is None:
            return
        kind = FRAME_METHODS[method.attr.value]
        if kind == "grouped map" and self._cogrouped(method.value):
            kind = "cogrouped map"
        function = unwrapped(argument.value, self.names)
        moved = function is not argument.value or marked(function, self.names)
        remarks = [ALREADY if moved else ON_RAY_WRAP]
        remarks += self._remarks(function, body_of(function, self.names), kind)
        finding = Finding(self._at(node), name_of(function, self.names), kind, remarks)
        self.found.append(Found(finding, argument=None if moved else argument))

    def _cogrouped(self, node: cst.BaseExpression) -> bool:
        value = self.names.definition(node) if isinstance(node, cst.Name) else node
        return isinstance(value, cst.Call) and last_name(value.func) == "cogroup"

    def _register(self, node: cst.Call) -> None:
        """Record ``spark.udf.register(name, f, returnType)``, where `f` is a UDF or a plain function."""
        argument = _argument(node, "f", 1)
        if argument is None:
            return
        name = self._argument_name(node)
        made = plain(argument.value)
        made = made if made in self._udfs else plain(self.names.definition(argument.value))
        udf = self._udfs.get(made) if made is not None else None
        if udf is not None:
            remarks = [one for one in udf.finding.remarks if one not in (IMPORT, STAR)]
            remarks.append(Remark(Verdict.UNCHANGED, SQL.format(udf.finding.name)))
            self.found.append(Found(Finding(self._at(node), name, "registered", remarks)))
            return
        body = body_of(argument.value, self.names)
        remarks = self._remarks(argument.value, body, "row")
        # PySpark takes a type with a plain function only.
        function = body is not None or _argument(node, "returnType", 2) is not None
        ordered = [arg.keyword.value if arg.keyword else None for arg in node.args[1:]]
        # Only the usual order is rewritten; the two arguments stay side by side.
        usual = ordered in ([None], ["f"], [None, None], [None, "returnType"], ["f", "returnType"])
        remarks.insert(0, REGISTER_WRAP if function and usual else REGISTER_BY_HAND)
        wrap = node if function and usual else None
        self.found.append(Found(Finding(self._at(node), name, "registered", remarks), register=wrap))

    def _remarks(self, function: cst.CSTNode, body: cst.FunctionDef | cst.Lambda | None, kind: str) -> list[Remark]:
        if body is None:
            if not isinstance(function, cst.BaseExpression) or self._of_python(function):
                return []
            return [Remark(Verdict.NOTE, ELSEWHERE.format(name_of(function, self.names)))]
        return [*driver.remarks(body, self.names), *loading.remarks(body, kind, self.names)]

    def _of_python(self, function: cst.BaseExpression) -> bool:
        """Whether a function is of Python itself: ``len``, ``str.upper``, ``math.sqrt``."""
        full = self.names.qualified(function)
        if full:
            return {name.partition(".")[0] for name in full} <= sys.stdlib_module_names
        first = dotted(function).partition(".")[0]
        return hasattr(builtins, first) and not self.names.known(first)

    def _argument_name(self, node: cst.Call) -> str:
        """Return the first argument as a name: the text of a string, or the code."""
        first = node.args[0].value if node.args else node.func
        text = first.evaluated_value if isinstance(first, cst.SimpleString) else None
        return text if isinstance(text, str) else name_of(first, self.names)

    def _at(self, node: cst.CSTNode) -> Place:
        # The line of `.mapInPandas`, not that of the first link of a chain over many lines; `def`, not the decorator.
        if isinstance(node, cst.Call):
            node = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        elif isinstance(node, cst.FunctionDef | cst.ClassDef):
            node = node.name
        return self.names.place(node)


def _argument(call: cst.Call, keyword: str, position: int) -> cst.Arg | None:
    """Return the argument of a call by its keyword or its position; None where it is not to be seen (``*args``)."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
    args = call.args[: position + 1]
    if len(args) <= position or any(arg.star or arg.keyword is not None for arg in args):
        return None
    return args[position]


def read(names: Names) -> list[Found]:
    """Return what a module holds, in the order of its lines."""
    reading = Reading(names)
    names.module.visit(reading)
    return sorted(reading.found, key=lambda one: (one.finding.place.cell or 0, one.finding.place.line or 0))
