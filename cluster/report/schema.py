"""The JSON contract: the name of every event, its JSON form, and its schema, all read off the dataclasses."""

import re
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cluster.model.events import Event

VERSION = 1
ENVELOPE = f"sparkctl/{VERSION}"
KINDS: tuple[type, ...] = get_args(Event)

_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_KEPT = ("type", "enum", "const", "items", "prefixItems", "anyOf", "$ref")


def event_name(kind: type) -> str:
    """`StageStarted` -> `stage-started`; a verb's report is named by what it reports: `StatusReport` -> `status`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__.removesuffix("Report")).lower()


def to_json(event: Event, at: datetime) -> dict[str, Any]:
    """The object that `--json` prints for an event; `at` is in UTC."""
    stamp = at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
    return {"schema": ENVELOPE, "event": event_name(type(event)), "time": stamp, **_plain(event)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no such number; servers report NaN for what they have not measured yet
    return value


def event_schema(kind: type) -> dict[str, Any]:
    """JSON Schema 2020-12 of one event with its envelope. New fields may come without a new version."""
    shapes: dict[str, Any] = {}
    body = _object(kind, shapes)
    envelope = {
        "schema": {"const": ENVELOPE},
        "event": {"const": event_name(kind)},
        "time": {"type": "string", "format": "date-time"},
    }
    clash = envelope.keys() & body["properties"].keys()
    if clash:
        raise TypeError(f"{kind.__name__} may not have the envelope's field {', '.join(sorted(clash))}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:sparkctl:schema:{VERSION}:{event_name(kind)}",
        "title": event_name(kind),
        **{key: body[key] for key in ("description",) if key in body},
        "type": "object",
        "properties": envelope | body["properties"],
        "required": [*envelope, *body["required"]],
        **({"$defs": dict(sorted(shapes.items()))} if shapes else {}),
    }


def any_event_schema() -> dict[str, Any]:
    """What one line of any verb's output is."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:sparkctl:schema:{VERSION}:any",
        "title": "any",
        "description": "One line of the output of `sparkctl --json VERB`.",
        "oneOf": [{"$ref": f"urn:sparkctl:schema:{VERSION}:{event_name(kind)}"} for kind in KINDS],
    }


def all_schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema."""
    named = {event_name(kind): event_schema(kind) for kind in KINDS} | {"any": any_event_schema()}
    return {f"{name}.schema.json": schema for name, schema in sorted(named.items())}


def _object(kind: type, shapes: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    properties = {one.name: _shape(hints[one.name], shapes) for one in fields(kind)}
    said = kind.__doc__ or ""
    # a dataclass without a docstring gets its own signature as one
    described = {} if said.startswith(f"{kind.__name__}(") else {"description": _flow(said)}
    return {**described, "type": "object", "properties": properties, "required": list(properties)}


def _flow(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(re.sub(r"  +", ": ", line) for line in lines if line)


def _shape(hint: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, UnionType):
        return _any_of([_shape(one, shapes) for one in args])
    if origin is tuple:
        return _array(args, shapes)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [one.value for one in hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        name = hint.__name__
        if name not in shapes:
            shapes[name] = {}  # a shape may hold itself
            shapes[name] = _object(hint, shapes)
        return {"$ref": f"#/$defs/{name}"}
    raise TypeError(f"an event may not hold {hint}: the contract knows no JSON form of it")


def _array(args: tuple[Any, ...], shapes: dict[str, Any]) -> dict[str, Any]:
    if len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": _shape(args[0], shapes)}
    places = [_shape(one, shapes) for one in args]
    return {"type": "array", "prefixItems": places, "items": False, "minItems": len(places)}


def _any_of(choices: list[dict[str, Any]]) -> dict[str, Any]:
    if all(choice.keys() == {"type"} for choice in choices):
        return {"type": [choice["type"] for choice in choices]}
    return {"anyOf": choices}


def breaks(old: Any, new: Any, path: str = "") -> list[str]:
    """What a reader of `old` could trip over in `new`: a field, a choice or a type that went away or changed."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [] if old == new else [f"{path} changed from {old} to {new}"]
    found: list[str] = []
    for name in old.get("properties", {}):
        if name not in new.get("properties", {}):
            found.append(f"{path}.{name} is gone".lstrip("."))
        else:
            found += breaks(old["properties"][name], new["properties"][name], f"{path}.{name}".lstrip("."))
    for name in old.get("$defs", {}):
        found += breaks(old["$defs"][name], new.get("$defs", {}).get(name, {}), name)
    if "enum" in old and "enum" in new:
        found += [f"{path} no longer is {choice!r}" for choice in old["enum"] if choice not in new["enum"]]
    else:
        found += [
            f"{path} changed its {key}"
            for key in _KEPT
            if key != "enum" and "properties" not in old and old.get(key) != new.get(key)
        ]
    return found
