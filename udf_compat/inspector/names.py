"""What the names of one module stand for: libcst's scopes, asked the questions that the inspector has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst
from libcst.metadata import (
    Assignment,
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    QualifiedNameSource,
    Scope,
    ScopeProvider,
)

from udf_compat.inspector.catalogue import STAR_MODULES
from udf_compat.inspector.finding import Place


class Names:
    """The names of a module, by where they are bound. A notebook is one module: its cells share their names."""

    def __init__(self, module: cst.Module, place: Callable[[int], Place]) -> None:
        """Take a parsed module, and a function that gives the place of one of its lines."""
        # Without a copy the nodes stay the same, so that a plan can name them to the rewriter.
        wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = wrapper.module
        self._place = place
        self._scopes = wrapper.resolve(ScopeProvider)
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self.loading: dict[tuple[cst.CSTNode, int], bool] = {}
        """What `loading.loads` knows already."""
        self.scopes: set[Scope] = {scope for scope in self._scopes.values() if scope is not None}

    def line(self, node: cst.CSTNode) -> int:
        """Return the line of the module, from 1, that a node begins in."""
        return int(self._positions[node].start.line)

    def place(self, node: cst.CSTNode) -> Place:
        """Return where a node stands for a reader."""
        return self._place(self.line(node))

    def where(self, node: cst.CSTNode) -> str:
        """Return where a node stands within its file: "line 7", or "cell 3, line 7"."""
        place = self.place(node)
        cell = "" if place.cell is None else f"cell {place.cell}, "
        return f"{cell}line {place.line}"

    def code(self, node: cst.CSTNode) -> str:
        """Return a node as it is written, on one line and not too long."""
        text = " ".join(self.module.code_for_node(node).split())
        return text if len(text) <= 60 else text[:57] + "..."

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the node that holds this one, None for the module."""
        return self._parents.get(node)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield what holds a node, innermost first."""
        while (parent := self.parent(node)) is not None:
            yield parent
            node = parent

    def qualified(self, node: cst.CSTNode) -> set[str]:
        """Return the full names that an expression may stand for by the imports: "pyspark.sql.functions.udf"."""
        scope = self._scopes.get(node)
        if scope is None:
            return set()
        found = scope.get_qualified_names_for(node)
        return {name.name for name in found if name.source is QualifiedNameSource.IMPORT}

    def scoped(self, node: cst.CSTNode) -> bool:
        """Whether a node is code that reads or binds names; the names within an import statement are not."""
        return self._scopes.get(node) is not None

    def bindings(self, node: cst.Name) -> set[Assignment]:
        """Return the places that bind a name, as seen from where it is used; none where nothing in here does."""
        scope = self._scopes.get(node)
        if scope is None:
            return set()
        return {found for found in scope[node.value] if isinstance(found, Assignment)}

    def imports(self, node: cst.BaseExpression) -> list[ImportAssignment]:
        """Return the imports that bind the first part of ``a.b.c``."""
        while isinstance(node, cst.Attribute):
            node = node.value
        bound = self.bindings(node) if isinstance(node, cst.Name) else set()
        return [found for found in bound if isinstance(found, ImportAssignment)]

    def definition(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return what a name stands for: a FunctionDef, ClassDef or Param, or the expression that it was assigned.

        Of several, the last one above the use counts. ``self.f`` is the method `f` of the class around it.
        """
        if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value in {"self", "cls"}:
            return self._member(node)
        if not isinstance(node, cst.Name):
            return None
        found = [value for one in self.bindings(node) if (value := self._value(one)) is not None]
        found.sort(key=self.line)
        before = [value for value in found if self.line(value) <= self.line(node)]
        usable = before or found
        return usable[-1] if usable else None

    def _value(self, binding: Assignment) -> cst.CSTNode | None:
        node = binding.node
        if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Param):
            return node
        parent = self.parent(node)
        if isinstance(parent, cst.AssignTarget):
            assign = self.parent(parent)
            return assign.value if isinstance(assign, cst.Assign) else None
        if isinstance(parent, cst.AnnAssign | cst.NamedExpr):
            return parent.value
        return None

    def _member(self, node: cst.Attribute) -> cst.CSTNode | None:
        """Return the method or attribute that ``self.x`` stands for."""
        owner = next((above for above in self.above(node) if isinstance(above, cst.ClassDef)), None)
        if owner is None:
            return None
        found: list[cst.CSTNode] = []

        class Members(cst.CSTVisitor):
            def visit_FunctionDef(self, method: cst.FunctionDef) -> None:
                if method.name.value == node.attr.value:
                    found.append(method)

            def visit_Assign(self, assign: cst.Assign) -> None:
                for target in (one.target for one in assign.targets):
                    if dotted(target) == f"self.{node.attr.value}":
                        found.append(assign.value)

        owner.body.visit(Members())
        return found[0] if found else None

    def known(self, name: str) -> bool:
        """Whether anything in the module binds a name."""
        return self.taken(name, set())

    def taken(self, name: str, by: set[str]) -> bool:
        """Whether anything in the module but an import of one of the full names `by` binds a name."""
        for scope in self.scopes:
            for binding in scope.assignments:
                if binding.name != name:
                    continue
                if not isinstance(binding, ImportAssignment) or not self.imported(binding) & by:
                    return True
        return False

    def imported(self, binding: ImportAssignment) -> set[str]:
        """Return the full names that an import binds."""
        return {found.name for found in binding.get_qualified_names_for(binding.name)}

    def stars(self) -> list[cst.ImportFrom]:
        """Return the star imports that bring makers of UDFs, in order."""
        found: list[cst.ImportFrom] = []

        class Stars(cst.CSTVisitor):
            def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
                if isinstance(node.names, cst.ImportStar) and module_of(node) in STAR_MODULES:
                    found.append(node)

        self.module.visit(Stars())
        return found


def module_of(node: cst.ImportFrom) -> str:
    """Return the module that names are imported from, "" for a relative import."""
    if node.relative or node.module is None:
        return ""
    return dotted(node.module)


def dotted(node: cst.CSTNode) -> str:
    """Return "a.b.c" for an expression of names, "" for any other."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""
