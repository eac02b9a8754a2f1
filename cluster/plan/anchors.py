"""Find a place in source text by its structure: a Python statement, whatever its layout, or lines of another language.

In a pattern `...` stands for any expression; as an argument of a call for all further ones, as a body for any body.
"""

import ast
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

_IGNORED = frozenset({"ctx", "type_comment", "kind", "type_ignores"})
_OPTIONAL = frozenset(
    {"decorator_list", "returns", "annotation", "type_params"}
)  # when a pattern has none, any will do


class NotPython(Exception):
    """Source or pattern that does not parse; `line` is in the source."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class Anchor:
    """A statement, found where its pattern fits.

    within  qualified name of the function or class it is in, `*` for any name: `*.load_weights`; empty for anywhere
    then    pattern of the statement that must follow at once; empty for any
    lines   the pattern is not Python, but lines that must be equal but for their indentation
    """

    find: str
    within: str = ""
    then: str = ""
    lines: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Lines `first` to `last`, counted from 1, indented by `indent` characters."""

    first: int
    last: int
    indent: str


def places(source: str, anchor: Anchor) -> tuple[Place, ...]:
    """Every place that fits, from top to bottom. NotPython when the source or a pattern does not parse."""
    if anchor.lines:
        return tuple(_line_places(source.splitlines(), textwrap.dedent(anchor.find).strip().splitlines()))
    find, then = _pattern(anchor.find), _pattern(anchor.then) if anchor.then else None
    found = []
    text = source.splitlines()
    for qualified, body in _bodies(parse(source)):
        if anchor.within and not fnmatchcase(qualified, anchor.within):
            continue
        for number, statement in enumerate(body):
            follows = body[number + 1] if number + 1 < len(body) else None
            if _fits(find, statement) and (then is None or (follows is not None and _fits(then, follows))):
                found.append(_place(statement, text))
    return tuple(sorted(found, key=lambda one: one.first))


def has_top_level(source: str, pattern: str) -> bool:
    wanted = _pattern(pattern)
    return any(_fits(wanted, one) for one in parse(source).body)


def parse(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise NotPython(error.msg if isinstance(error, SyntaxError) else str(error), line or 0) from error


def nearest(source: str, anchor: Anchor, most: int = 3) -> tuple[str, ...]:
    """The lines that are most like the anchor's first one, with their numbers: what it may have become."""
    first = next((line.strip() for line in anchor.find.splitlines() if line.strip()), "").replace("...", "")
    rows = [(number, line.strip()) for number, line in enumerate(source.splitlines(), 1) if line.strip()]
    scored = sorted(
        ((difflib.SequenceMatcher(None, first, line).ratio(), number, line) for number, line in rows if first),
        key=lambda one: (-one[0], one[1]),
    )
    return tuple(f"line {number}: {line}" for score, number, line in scored[:most] if score > 0.5)


def _bodies(module: ast.Module) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    """Every list of statements with the qualified name of what it is in."""
    stack: list[tuple[str, ast.AST]] = [("", module)]
    while stack:
        name, node = stack.pop()
        for field, value in ast.iter_fields(node):
            if not isinstance(value, list) or not value:
                if isinstance(value, ast.AST):
                    stack.append((name, value))
                continue
            if isinstance(value[0], ast.stmt) and field in ("body", "orelse", "finalbody"):
                yield name, value
            for child in value:
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    stack.append((f"{name}.{child.name}" if name else child.name, child))
                elif isinstance(child, ast.AST):
                    stack.append((name, child))


def _place(statement: ast.stmt, text: Sequence[str]) -> Place:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(one.lineno for one in decorators)])
    line = text[first - 1]
    return Place(first, statement.end_lineno or first, line[: len(line) - len(line.lstrip())])


def _line_places(rows: Sequence[str], wanted: Sequence[str]) -> Iterator[Place]:
    plain = [row.strip() for row in rows]
    want = [row.strip() for row in wanted]
    for number in range(len(plain) - len(want) + 1):
        if plain[number : number + len(want)] == want:
            first = rows[number]
            yield Place(number + 1, number + len(want), first[: len(first) - len(first.lstrip())])


def _pattern(text: str) -> ast.stmt:
    """One statement; `return` and `continue` may stand alone, a header without its body gets any body."""
    plain = textwrap.dedent(text).strip()
    if plain.endswith(":"):
        plain += " ..."
    body = parse(f"def _():\n{textwrap.indent(plain, ' ')}").body[0]
    assert isinstance(body, ast.FunctionDef)
    if len(body.body) != 1:
        raise NotPython(f"a pattern is one statement, not {len(body.body)}: {plain}", 0)
    return body.body[0]


def _fits(pattern: object, node: object) -> bool:
    if _is_any(pattern):
        return True
    if isinstance(pattern, ast.Call) and isinstance(node, ast.Call) and any(map(_is_any, pattern.args)):
        return _fits(pattern.func, node.func) and _open_call_fits(pattern, node)
    if isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and all(
            _fits(value, getattr(node, field, None))
            for field, value in ast.iter_fields(pattern)
            if field not in _IGNORED and (value or field not in _OPTIONAL)
        )
    if isinstance(pattern, list):
        if len(pattern) == 1 and _is_any_statement(pattern[0]):
            return True
        return isinstance(node, list) and len(pattern) == len(node) and all(map(_fits, pattern, node))
    return pattern == node


def _open_call_fits(pattern: ast.Call, node: ast.Call) -> bool:
    """Arguments before `...` in their order; named ones of the pattern among those of the call."""
    fixed = pattern.args[: next(number for number, one in enumerate(pattern.args) if _is_any(one))]
    named = {one.arg: one.value for one in node.keywords}
    return (
        len(node.args) >= len(fixed)
        and all(map(_fits, fixed, node.args))
        and all(one.arg in named and _fits(one.value, named[one.arg]) for one in pattern.keywords)
    )


def _is_any(pattern: object) -> bool:
    return isinstance(pattern, ast.Constant) and pattern.value is ...


def _is_any_statement(pattern: object) -> bool:
    return isinstance(pattern, ast.Expr) and _is_any(pattern.value)
