"""What a client of the API is told: where it is, which model, how long a context; in the forms that clients read."""

import json
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from cluster.model.rules import has_vision
from cluster.model.settings import Settings
from cluster.plan.launch import api_url, key_file

NO_KEY = "none"  # clients want some word, and the server takes any
KEY = "SPARKCTL_API_KEY"
MOST_ANSWER = 32768


class Form(StrEnum):
    """Who reads it: the pi agent's models.json, or a shell before a client that takes OpenAI's variables."""

    PI = "pi"
    ENV = "env"


@dataclass(frozen=True, slots=True)
class Served:
    """What the server itself says: the model's id, and its context where it tells one."""

    model: str
    context: int | None


def snippet(settings: Settings, served: Served, form: Form) -> str:
    """Made of the running deployment, so that id, context and port are those that answer."""
    match form:
        case Form.PI:
            provider = {f"{settings.deployment}-local": _pi(settings, served)}
            return json.dumps({"providers": provider}, indent=2) + "\n"
        case Form.ENV:
            return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in _variables(settings, served))
        case _:
            assert_never(form)


def _variables(settings: Settings, served: Served) -> tuple[tuple[str, str], ...]:
    url = f"{api_url(settings)}/v1"
    key = "" if key_file(settings) else NO_KEY
    keys = (('"OPENAI_API_KEY"', key),) if key else ()  # plain, the line would be masked as a secret's
    return (("OPENAI_BASE_URL", url), ("OPENAI_API_BASE_URL", url), *keys, ("OPENAI_MODEL", served.model))


def _pi(settings: Settings, served: Served) -> dict[str, Any]:
    context = served.context or settings.serve.max_model_len
    thinks = reasons(settings)
    model = {
        "id": served.model,
        "name": served.model,
        "reasoning": thinks,
        "input": ["text", "image"] if has_vision(settings) else ["text"],
        **({"contextWindow": context, "maxTokens": min(MOST_ANSWER, context // 2)} if context else {}),
        **({"thinkingLevelMap": _LEVELS} if thinks else {}),
        "compat": {
            "supportsDeveloperRole": False,
            "supportsReasoningEffort": thinks,
            "maxTokensField": "max_tokens",
            **({"requiresReasoningContentOnAssistantMessages": True, "thinkingFormat": "deepseek"} if thinks else {}),
        },
    }
    return {
        "baseUrl": f"{api_url(settings)}/v1",
        "api": "openai-completions",
        "apiKey": KEY if key_file(settings) else NO_KEY,
        "models": [model],
    }


_LEVELS = {"minimal": None, "low": None, "medium": None, "high": "high", "max": "max"}


def reasons(settings: Settings) -> bool:
    """Whether thoughts come apart from answers: vLLM with a parser for them, or an image that has one built in."""
    return "reasoning-parser" in dict(settings.serve.flags) or "DEFAULT_CHAT_TEMPLATE_KWARGS_THINKING" in dict(
        settings.launch.environment
    )


def hints(settings: Settings) -> tuple[str, ...]:
    """What a person must do besides."""
    told = []
    if key_file(settings):
        told.append(f"the key is in {key_file(settings)} on {settings.head.name}: put it where {KEY} or no key stands")
    url, head = api_url(settings), settings.head
    if "//127." in url and head.control not in ("", "local"):
        port = settings.serve.port
        tunnel = f"ssh -N -o ExitOnForwardFailure=yes -L {port}:127.0.0.1:{port} {head.control}"
        told.append(f"it listens on the loopback of {head.name} only: {tunnel}")
    return tuple(told)
