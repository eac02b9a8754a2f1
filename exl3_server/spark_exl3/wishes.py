"""What clients ask for: bodies of requests checked once, into values. What this server cannot do is refused by name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Asked for with another value than these, a client would take the answer for something that it is not.
ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "logit_bias": ({},),
    "prompt_logprobs": (),
}
ROLES = ("system", "developer", "user", "assistant")
THINKING = ("enable_thinking", "thinking")  # models differ in the name that their templates read


class Refused(Exception):
    """A request that gets an error instead of an answer, in OpenAI's form."""

    def __init__(self, status: int, message: str, *, parameter: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.parameter, self.code = status, message, parameter, code


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; `schema` is the JSON schema that the text must follow, `None` for any text."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    seed: int | None = None
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What both endpoints share. `most` is the limit of new tokens, `None` for all that the context has room for."""

    sampling: Sampling
    most: int | None
    stops: tuple[str, ...]
    streams: bool
    counts: bool


Body = Mapping[str, Any]


def asked(body: Body, name: str) -> Asked:
    """All that both endpoints share. Raises Refused."""
    if body.get("model", name) != name:
        raise Refused(
            404, f"there is no model {body['model']!r} here, only {name!r}", parameter="model", code="model_not_found"
        )
    for key, fine in ONLY.items():
        if body.get(key) is not None and body[key] not in fine:
            raise Refused(400, f"this server does not do {key}={body[key]!r}", parameter=key, code="unsupported")
    options = body.get("stream_options") or {}
    return Asked(
        _sampling(body), _most(body), _stops(body), bool(body.get("stream")), bool(options.get("include_usage"))
    )


def text_prompt(body: Body) -> str:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise Refused(400, "prompt must be one text", parameter="prompt")
    return prompt


def messages(body: Body) -> list[dict[str, str]]:
    """Texts alone: parts are joined, and an image is refused."""
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Refused(400, "messages must be a list with at least one message", parameter="messages")
    return [_message(one, f"messages[{number}]") for number, one in enumerate(given)]


def template_words(body: Body) -> dict[str, Any]:
    """What a chat template is given besides the messages; thinking under both of its names."""
    given = body.get("chat_template_kwargs") or {}
    if not isinstance(given, dict):
        raise Refused(400, "chat_template_kwargs must be an object", parameter="chat_template_kwargs")
    said = [given[key] for key in THINKING if key in given]
    if any(bool(one) != bool(said[0]) for one in said):
        raise Refused(400, f"{' and '.join(THINKING)} say different things", parameter="chat_template_kwargs")
    return dict(given) | {key: bool(said[0]) if said else False for key in THINKING}


def _message(given: Any, where: str) -> dict[str, str]:
    if not isinstance(given, dict) or given.get("role") not in ROLES:
        raise Refused(400, f"{where} must have a role: {', '.join(ROLES)}", parameter=where)
    content = given.get("content")
    if isinstance(content, list):
        content = "".join(_part(one, where) for one in content)
    if not isinstance(content, str):
        raise Refused(400, f"{where} must have a text as its content", parameter=where)
    role = "system" if given["role"] == "developer" else given["role"]
    return {"role": role, "content": content}


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise Refused(400, f"{where} has a part that is no text, and this server reads nothing else", parameter=where)
    text: str = part["text"]
    return text


def _sampling(body: Body) -> Sampling:
    return Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=_number(body, "top_p", 1.0, 0.0, 1.0),
        top_k=max(0, _whole(body, "top_k", -1, 1 << 20) or 0),
        min_p=_number(body, "min_p", 0.0, 0.0, 1.0),
        repetition=_number(body, "repetition_penalty", 1.0, 0.0, 2.0),
        frequency=_number(body, "frequency_penalty", 0.0, -2.0, 2.0),
        presence=_number(body, "presence_penalty", 0.0, -2.0, 2.0),
        seed=_whole(body, "seed", -(1 << 63), 1 << 63),
        schema=_schema(body),
    )


def _schema(body: Body) -> Mapping[str, Any] | None:
    form = body.get("response_format")
    match form:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case _:
            pass
    raise Refused(
        400, "response_format must be text, json_object, or json_schema with a schema", parameter="response_format"
    )


def _most(body: Body) -> int | None:
    key = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    return _whole(body, key, 1, 1 << 31)


def _stops(body: Body) -> tuple[str, ...]:
    given = body.get("stop")
    stops = [given] if isinstance(given, str) else given or []
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise Refused(400, "stop must be a text or a list of texts", parameter="stop")
    return tuple(stops)


def _number(body: Body, key: str, otherwise: float, low: float, high: float) -> float:
    given = body.get(key)
    if given is None:
        return otherwise
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise Refused(400, f"{key} must be a number", parameter=key)
    if not low <= given <= high:
        raise Refused(400, f"{key} must be from {low:g} to {high:g}, and is {given}", parameter=key)
    return float(given)


def _whole(body: Body, key: str, low: int, high: int) -> int | None:
    given = body.get(key)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise Refused(400, f"{key} must be a whole number of at least {low}, and is {given!r}", parameter=key)
    return given
