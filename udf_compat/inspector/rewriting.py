"""Carries out a plan: the module's text with its imports moved; every other byte stays as it is."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from udf_compat.inspector.catalogue import FUNCTIONS
from udf_compat.inspector.importing import added_imports, hand_over
from udf_compat.inspector.plan import Plan


def rewrite(module: cst.Module, plan: Plan, marker: str = "") -> str:
    """Return the text of a module after the changes of a plan.

    Args:
        marker: the beginning of comments that must stay before whatever is added at the module's beginning.
    """
    return module.visit(_Rewriting(plan, marker)).code if plan else module.code


class _Rewriting(cst.CSTTransformer):
    def __init__(self, plan: Plan, marker: str) -> None:
        super().__init__()
        self._plan = plan
        self._marker = marker

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return self._renamed(original_node, updated_node)

    def _renamed(self, original: cst.Name | cst.Attribute, updated: cst.Name | cst.Attribute) -> cst.BaseExpression:
        local = self._plan.renamed.get(original)
        return updated if local is None else cst.Name(local, lpar=updated.lpar, rpar=updated.rpar)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        wrapper = self._plan.wrapped.get(original_node)
        if wrapper is None:
            return updated_node
        return updated_node.with_changes(value=cst.Call(cst.Name(wrapper), [cst.Arg(updated_node.value)]))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        maker = self._plan.registered.get(original_node)
        if maker is None:
            return updated_node
        name, function, *rest = updated_node.args
        # The type goes along with its own comma, so that a comment between the two stays where it was.
        inner = [cst.Arg(function.value, comma=function.comma if rest else cst.MaybeSentinel.DEFAULT)]
        inner += [cst.Arg(arg.value, keyword=arg.keyword, equal=arg.equal) for arg in rest]
        outer = (rest or [function])[-1]
        udf = cst.Call(cst.Name(maker), inner)
        wrapped = outer.with_changes(value=udf, keyword=function.keyword, equal=function.equal)
        return updated_node.with_changes(args=[name, wrapped])

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.BaseStatement]:
        body = self._statements(original_node.body, updated_node.body)
        if len(original_node.body) > 1 or len(body) == 1:
            return updated_node.with_changes(body=_joined(body))
        first = updated_node.with_changes(body=body[:1])
        return cst.FlattenSentinel([first, *(cst.SimpleStatementLine([one]) for one in body[1:])])

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite:
        return updated_node.with_changes(body=_joined(self._statements(original_node.body, updated_node.body)))

    def _statements(
        self, original: Sequence[cst.BaseSmallStatement], updated: Sequence[cst.BaseSmallStatement]
    ) -> list[cst.BaseSmallStatement]:
        """Return the statements of one line, with those that come of them."""
        found: list[cst.BaseSmallStatement] = []
        for before, after in zip(original, updated, strict=True):
            if isinstance(before, cst.ImportFrom) and isinstance(after, cst.ImportFrom) and before in self._plan.moved:
                found += hand_over(after, self._plan.moved[before], FUNCTIONS)
            else:
                found.append(after)
            found += added_imports(self._plan.added.get(before, ()))
        return found

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if not self._plan.first:
            return updated_node
        lines = [cst.SimpleStatementLine([one]) for one in added_imports(self._plan.first)]
        body = list(updated_node.body)
        if body and self._marker:
            # Lines up to the last marker belong to cells before the one that the first statement is in.
            first = body[0]
            leading = list(first.leading_lines) if hasattr(first, "leading_lines") else []
            marks = [i for i, one in enumerate(leading) if one.comment and one.comment.value.startswith(self._marker)]
            cut = marks[-1] + 1 if marks else 0
            lines[0] = lines[0].with_changes(leading_lines=leading[:cut])
            body[0] = first.with_changes(leading_lines=leading[cut:])
        return updated_node.with_changes(body=[*lines, *body])


def _joined(body: list[cst.BaseSmallStatement]) -> list[cst.BaseSmallStatement]:
    """Return statements of one line with semicolons between them; those that are there stay as they are."""
    joined = []
    for index, one in enumerate(body):
        if index < len(body) - 1 and isinstance(one.semicolon, cst.MaybeSentinel):
            one = one.with_changes(semicolon=cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" ")))
        joined.append(one)
    return joined
