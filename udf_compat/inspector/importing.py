"""Import statements: one made, and one parted in two with the comments of each name kept beside it."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from udf_compat.inspector.names import dotted


def added_imports(wanted: Iterable[tuple[str, str, str]]) -> list[cst.ImportFrom]:
    """Return one ``from module import name as local`` a module, for (module, name, local)."""
    modules: dict[str, list[cst.ImportAlias]] = {}
    for module, name, local in sorted(wanted):
        asname = cst.AsName(cst.Name(local)) if local != name else None
        modules.setdefault(module, []).append(cst.ImportAlias(cst.Name(name), asname))
    return [cst.ImportFrom(_path(module), aliases) for module, aliases in modules.items()]


def hand_over(statement: cst.ImportFrom, locals_: set[str], module: str) -> list[cst.ImportFrom]:
    """Return the statement with the given local names left to a second one, which imports them from `module`.

    Where no other name is left, the one statement imports from `module`, in the layout that it has.
    """
    assert not isinstance(statement.names, cst.ImportStar)
    moving = [one for one in statement.names if (one.evaluated_alias or one.evaluated_name) in locals_]
    staying = [one for one in statement.names if one not in moving]
    if not staying:
        return [statement.with_changes(module=_path(module))]
    if statement.lpar is None:
        staying[-1] = _bare(staying[-1])
        left = statement.with_changes(names=staying, semicolon=cst.MaybeSentinel.DEFAULT)
        right = cst.ImportFrom(_path(module), [_bare(one) for one in moving], semicolon=statement.semicolon)
        return [left, right]
    return _in_parentheses(statement, staying, moving, module)


def _in_parentheses(
    statement: cst.ImportFrom, staying: list[cst.ImportAlias], moving: list[cst.ImportAlias], module: str
) -> list[cst.ImportFrom]:
    assert statement.rpar is not None
    assert not isinstance(statement.names, cst.ImportStar)
    last = statement.names[-1]
    closing: cst.BaseParenthesizableWhitespace = statement.rpar.whitespace_before
    rpar = statement.rpar
    if isinstance(last.comma, cst.Comma):
        closing = _after(last.comma)
    else:
        # What follows the last name, perhaps with its comment, stands before the parenthesis: as if it had a comma.
        comma = cst.Comma(whitespace_after=closing)
        rpar = rpar.with_changes(whitespace_before=cst.SimpleWhitespace(""))
        staying = [one.with_changes(comma=comma) if one is last else one for one in staying]
        moving = [one.with_changes(comma=comma) if one is last else one for one in moving]
    left = statement.with_changes(names=_closed(staying, closing), rpar=rpar, semicolon=cst.MaybeSentinel.DEFAULT)
    right = cst.ImportFrom(_path(module), [_bare(one) for one in moving], semicolon=statement.semicolon)
    if any(_commented(one) for one in moving):
        opening = statement.lpar.whitespace_after if statement.lpar is not None else cst.SimpleWhitespace("")
        if isinstance(opening, cst.ParenthesizedWhitespace):
            opening = opening.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
        right = right.with_changes(
            lpar=cst.LeftParen(whitespace_after=opening), names=_closed(moving, closing), rpar=cst.RightParen()
        )
    return [left, right]


def _closed(aliases: list[cst.ImportAlias], closing: cst.BaseParenthesizableWhitespace) -> list[cst.ImportAlias]:
    """Return the names with the last one followed by what closes the parentheses, and by its own comment."""
    *most, last = aliases
    if not isinstance(last.comma, cst.Comma):
        return aliases
    own = _after(last.comma)
    if isinstance(own, cst.ParenthesizedWhitespace) and isinstance(closing, cst.ParenthesizedWhitespace):
        end = own.with_changes(indent=closing.indent, last_line=closing.last_line)
    elif isinstance(own, cst.ParenthesizedWhitespace):
        end = own.with_changes(last_line=cst.SimpleWhitespace(""), indent=own.indent)
    elif isinstance(closing, cst.ParenthesizedWhitespace):
        end = closing.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    else:
        return [*most, _bare(last)]
    return [*most, last.with_changes(comma=last.comma.with_changes(whitespace_after=end))]


def _after(comma: cst.Comma) -> cst.BaseParenthesizableWhitespace:
    return comma.whitespace_after


def _commented(alias: cst.ImportAlias) -> bool:
    after = alias.comma.whitespace_after if isinstance(alias.comma, cst.Comma) else None
    if not isinstance(after, cst.ParenthesizedWhitespace):
        return False
    return after.first_line.comment is not None or any(line.comment for line in after.empty_lines)


def _bare(alias: cst.ImportAlias) -> cst.ImportAlias:
    return alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)


def _path(module: str) -> cst.Attribute | cst.Name:
    path = cst.parse_expression(module)
    assert isinstance(path, cst.Attribute | cst.Name)
    assert dotted(path) == module
    return path
