"""Integer expressions of axes (`resources: {nodes: "max(1, gpus // 4)"}`), checked and evaluated without `eval`.

Allowed: integers, names of axes and integer parameters, `+ - * //`, parentheses, `min(...)` and `max(...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ALLOWED = "an integer, `site`, or an expression of axes with + - * // ( ) min max"
MAX_VALUE = 10**12
MAX_LENGTH = 500

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; `names` are what it needs."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def value(self, names: Mapping[str, object]) -> int:
        """The value for one point. Raises ValueError: unknown or non-integer names, division by zero, too large."""
        return _value(self.tree, names)


def parse(text: str) -> Expression:
    """Parse an expression. Raises ValueError for anything that isn't allowed."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression has more than {MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"not an expression: {text!r}") from None
    return Expression(text, tree, frozenset(_names(tree)))


def _names(node: ast.expr) -> set[str]:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return set()
        case ast.Name(id=name):
            return {name}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _names(operand)
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return _names(left) | _names(right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and args:
            return set().union(*(_names(arg) for arg in args))
    raise ValueError(f"`{ast.unparse(node)}` is not allowed in an expression")


def _value(node: ast.expr, names: Mapping[str, object]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            result = value
        case ast.Name(id=name):
            result = _named(name, names)
        case ast.UnaryOp(op=operator, operand=operand):
            result = -_value(operand, names) if isinstance(operator, ast.USub) else _value(operand, names)
        case ast.BinOp(left=left, op=operator, right=right):
            first, second = _value(left, names), _value(right, names)
            if isinstance(operator, ast.FloorDiv) and second == 0:
                raise ValueError("division by zero")
            result = _OPERATORS[type(operator)](first, second)
        case ast.Call(func=ast.Name(id=name), args=args):
            # one argument: Python's min(5) would want something to iterate over
            values = [_value(arg, names) for arg in args]
            result = _FUNCTIONS[name](values)
        case _:  # pragma: no cover - parse() has refused it
            raise ValueError("not allowed")
    if abs(result) > MAX_VALUE:
        raise ValueError("the value is too large")
    return result


def _named(name: str, names: Mapping[str, object]) -> int:
    if name not in names:
        raise ValueError(f"unknown name `{name}`")
    value = names[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"`{name}` is {value!r}, not an integer")
    return value
