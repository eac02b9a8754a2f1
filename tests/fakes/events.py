"""Events of every kind, each text in them the same: what a reporter does to text is then seen everywhere."""

from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_SCALARS: dict[Any, Any] = {int: 2, float: 1.5, bool: True}


def filled(kind: type, text: str, depth: int = 2) -> Any:
    """An event of this kind in which nothing is empty; what may hold itself does so `depth` times."""
    hints = get_type_hints(kind)
    return kind(**{one.name: _value(hints[one.name], text, depth) for one in fields(kind)})


def _value(hint: Any, text: str, depth: int) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if hint is str:
        return text
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Literal:
        return args[0]
    if origin in (Union, UnionType):
        return _value(next(one for one in args if one is not NoneType), text, depth)
    if origin is tuple and args[-1] is Ellipsis:
        return (_value(args[0], text, depth - 1),) * 2 if depth else ()
    if origin is tuple:
        return tuple(_value(one, text, depth) for one in args)
    if is_dataclass(hint) and isinstance(hint, type):
        return filled(hint, text, depth)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    raise TypeError(f"no example of {hint}")
