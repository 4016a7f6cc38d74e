"""What the rewriter is to change in one module. Made by `reading`, carried out by `rewriting`."""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst


@dataclass
class Plan:
    """Changes by the node that they concern; nodes are told apart by identity.

    An added import is (module, name, name in this module).
    """

    moved: dict[cst.ImportFrom, set[str]] = field(default_factory=dict)
    """Local names that an import statement hands over to ``udf_compat.functions``."""
    added: dict[cst.CSTNode, list[tuple[str, str, str]]] = field(default_factory=dict)
    """Imports to add after a statement."""
    first: list[tuple[str, str, str]] = field(default_factory=list)
    """Imports to add before the first statement."""
    renamed: dict[cst.BaseExpression, str] = field(default_factory=dict)
    """Uses such as ``F.udf`` that become a plain name."""
    wrapped: dict[cst.Arg, str] = field(default_factory=dict)
    """Arguments that become ``name(argument)``."""
    registered: dict[cst.Call, str] = field(default_factory=dict)
    """Calls ``register(name, function, type)`` that become ``register(name, udf(function, type))``."""

    def __bool__(self) -> bool:
        return any((self.moved, self.added, self.first, self.renamed, self.wrapped, self.registered))

    def add(self, after: cst.CSTNode | None, module: str, name: str, local: str) -> None:
        """Add an import after a statement, or before all of them; the same one only once."""
        wanted = self.first if after is None else self.added.setdefault(after, [])
        if (module, name, local) not in wanted:
            wanted.append((module, name, local))
