"""From what was found in a module to the changes that move it."""

from __future__ import annotations

import itertools

import libcst as cst
from libcst.metadata import ImportAssignment

from udf_compat.inspector.catalogue import FUNCTIONS, MAKERS, MOVED, ON_RAY, PACKAGE
from udf_compat.inspector.makers import Maker, Makers
from udf_compat.inspector.names import Names, module_of
from udf_compat.inspector.plan import Plan
from udf_compat.inspector.reading import Found


def make_plan(names: Names, found: list[Found]) -> Plan:
    """Return the changes that move all that can move; what cannot keeps PySpark's own names."""
    return _Planning(names, found).plan


class _Planning:
    def __init__(self, names: Names, found: list[Found]) -> None:
        self.names = names
        self.plan = Plan()
        self._anchor = _last_leading_import(names.module)
        # The same maker may make one UDF that moves and another one that cannot: `double = udf("double")`.
        self._fixed = {one.maker.node for one in found if one.maker is not None and not one.movable}
        self._references = _References(names)
        names.module.visit(self._references)
        self._imports()
        self._stars()
        self._attributes()
        for one in found:
            if one.movable and one.argument is not None:
                self.plan.wrapped[one.argument] = self._leading(PACKAGE, "on_ray", ON_RAY)
            if one.movable and one.register is not None:
                self.plan.registered[one.register] = self._leading(FUNCTIONS, "udf", {f"{FUNCTIONS}.udf"})
        self._prune()

    def _imports(self) -> None:
        """Hand imports over; where one of the UDFs cannot move, import ours beside PySpark's under another name."""
        for statement in self._references.statements:
            for alias in statement.names if not isinstance(statement.names, cst.ImportStar) else ():
                full = f"{module_of(statement)}.{alias.evaluated_name}"
                local = alias.evaluated_alias or alias.evaluated_name
                if full not in MAKERS or self._fallback(statement, local):
                    continue
                users = [one for one in self._named(local) if self._binds(statement, one)]
                if all(one.node not in self._fixed for one in users):
                    self.plan.moved.setdefault(statement, set()).add(local)
                else:
                    self._rename([one for one in users if one.node not in self._fixed], statement, MAKERS[full])

    def _stars(self) -> None:
        """After a star import, import ours: it would take the place of what stands before it, too."""
        stars = self.names.stars()
        if not stars:
            return
        last = max(stars, key=self.names.line)
        for name in MOVED_NAMES:
            users = [one for one in self._references.makers if _name(one.node) == name]
            users = [one for one in users if one.star or self._overridden(one.node, last)]
            moving = [one for one in users if one.node not in self._fixed]
            provides = any(f"{module_of(star)}.{name}" in MAKERS for star in stars)
            if not moving or not provides:
                continue
            if len(moving) == len(users):
                self.plan.add(last, FUNCTIONS, name, name)
            else:
                self._rename(moving, last, name)

    def _attributes(self) -> None:
        """Turn ``F.udf`` into ``udf``, imported after what binds ``F``."""
        for one in self._references.makers:
            if not isinstance(one.node, cst.Attribute) or one.moved or one.node in self._fixed:
                continue
            statements = {binding.node for binding in self.names.imports(one.node)}
            local = self._local(one.name)
            self.plan.renamed[one.node] = local
            for statement in sorted(statements, key=self.names.line):
                if not self._provided(FUNCTIONS, one.name, local, statement):
                    self.plan.add(statement, FUNCTIONS, one.name, local)

    def _rename(self, users: list[Maker], after: cst.ImportFrom, name: str) -> None:
        for one in users:
            local = self._other(name)
            self.plan.renamed[one.node] = local
            self.plan.add(after, FUNCTIONS, name, local)

    def _leading(self, module: str, name: str, by: set[str]) -> str:
        """Return the local name of something that is imported with the first imports of the module."""
        local = self._local(name) if module == FUNCTIONS else self._free(name, by)
        if not self._provided(module, name, local, self._anchor):
            self.plan.add(self._anchor, module, name, local)
        return local

    def _local(self, name: str) -> str:
        """Return the local name of a maker: its own, unless something else has it."""
        stays = any(_name(node) == name for node in self._fixed)
        by = {full for full, maker in MAKERS.items() if maker == name} | {f"{FUNCTIONS}.{name}"}
        return self._other(name) if stays else self._free(name, by)

    def _free(self, name: str, by: set[str]) -> str:
        return self._other(name) if self.names.taken(name, by) else name

    def _other(self, name: str) -> str:
        by = {f"{FUNCTIONS}.{name}", f"{PACKAGE}.{name}"}
        for number in itertools.count(1):
            local = f"ray_{name}" if number == 1 else f"ray_{name}_{number}"
            if not self.names.taken(local, by):
                return local
        raise AssertionError

    def _provided(self, module: str, name: str, local: str, after: cst.CSTNode | None) -> bool:
        """Whether a statement of the module itself, at or above another one, imports a name as it is wanted."""
        limit = self.names.line(after) if after is not None else 0
        for line in self.names.module.body:
            for one in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if not isinstance(one, cst.ImportFrom) or isinstance(one.names, cst.ImportStar):
                    continue
                if self.names.line(one) > limit:
                    return False
                moves = self.plan.moved.get(one, set())
                for alias in one.names:
                    bound = alias.evaluated_alias or alias.evaluated_name
                    ours = module_of(one) == module or (module == FUNCTIONS and bound in moves)
                    if ours and bound == local and alias.evaluated_name == name:
                        return True
        return False

    def _prune(self) -> None:
        """Leave out what the module itself imports further up; after a star import it is wanted again."""
        level = {
            one for line in self.names.module.body if isinstance(line, cst.SimpleStatementLine) for one in line.body
        }
        stars = set(self.names.stars())
        have: set[tuple[str, str, str]] = set(self.plan.first)
        for statement in sorted(self.plan.added, key=self.names.line):
            wanted = self.plan.added[statement]
            if statement not in stars:
                wanted = [one for one in wanted if one not in have]
            self.plan.added[statement] = wanted
            have.update(wanted if statement in level else ())
        self.plan.added = {statement: wanted for statement, wanted in self.plan.added.items() if wanted}

    def _named(self, local: str) -> list[Maker]:
        return [one for one in self._references.makers if _name(one.node) == local and not one.star]

    def _binds(self, statement: cst.ImportFrom, maker: Maker) -> bool:
        return any(binding.node is statement for binding in self.names.imports(maker.node))

    def _fallback(self, statement: cst.ImportFrom, local: str) -> bool:
        """Whether the name is imported from ours as well, as in ``try: ... except ImportError: ...``."""
        for scope in self.names.scopes:
            found = [one for one in scope.assignments if one.name == local and isinstance(one, ImportAssignment)]
            if any(one.node is statement for one in found) and any(self.names.imported(one) & MOVED for one in found):
                return True
        return False

    def _overridden(self, node: cst.BaseExpression, star: cst.ImportFrom) -> bool:
        """Whether all that binds a name stands above the star import, which binds it again."""
        bound = self.names.imports(node)
        return bool(bound) and all(self.names.line(one.node) < self.names.line(star) for one in bound)


MOVED_NAMES = sorted(set(MAKERS.values()))


class _References(cst.CSTVisitor):
    """Collects every use of a maker, and the statements that import one."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._makers = Makers(names)
        self.makers: list[Maker] = []
        self.statements: list[cst.ImportFrom] = []

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        self.statements.append(node)
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self._see(node)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        if self._see(node):
            return False
        node.value.visit(self)  # the attribute's own name is no name of the module
        return False

    def visit_Arg(self, node: cst.Arg) -> bool:
        node.value.visit(self)
        return False

    def _see(self, node: cst.Name | cst.Attribute) -> bool:
        maker = self._makers.reference(node)
        # `F.udf = ...` puts another one in its place: that is no use of it.
        if maker is None or isinstance(self._names.parent(node), cst.AssignTarget | cst.Del):
            return False
        self.makers.append(maker)
        return True


def _name(node: cst.BaseExpression) -> str | None:
    return node.value if isinstance(node, cst.Name) else None


def _last_leading_import(module: cst.Module) -> cst.CSTNode | None:
    """Return the last statement of the imports that a module begins with, else its docstring, else None."""
    last: cst.CSTNode | None = None
    for index, line in enumerate(module.body):
        if not isinstance(line, cst.SimpleStatementLine):
            break
        docstring = index == 0 and module.get_docstring() is not None
        # A notebook's magics stand as `pass`.
        if not docstring and not all(isinstance(one, cst.Import | cst.ImportFrom | cst.Pass) for one in line.body):
            break
        if docstring or any(isinstance(one, cst.Import | cst.ImportFrom) for one in line.body):
            last = line.body[-1]
    return last
