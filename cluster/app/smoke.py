"""Ask the served API questions with known answers, from the node it listens on."""

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.receipts import running
from cluster.app.session import OpenNode, Session
from cluster.errors import SettingsError
from cluster.model.events import SmokeCheck, SmokeReport
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.plan.card import WORD, png
from cluster.plan.launch import api_url, key_file

QUESTION = "What is 17*19? Reply with the integer only."
ANSWER = "323"
STRICT = {"language": "Python", "answer": 323, "valid": True}
STRICT_QUESTION = "Give the language Python, the answer to 17*19, and that it is valid."
THOUGHTS = 2048  # tokens for thinking about 17*19
CARD_QUESTION = "What does this picture show? Name every shape with its colour, and the word."
CARD_TOKENS = 400  # below 150 a model that thinks all the same is cut off
RECALL = 128  # tokens for a passphrase
SLOWEST = 100  # tokens of a prompt read in a second, at least


@dataclass(frozen=True, slots=True)
class Wanted:
    """Questions besides 17*19: a strict schema, thinking on and off, a test card, a passphrase at `depths` percent."""

    schema: bool = False
    thinking: bool = False
    vision: bool = False
    needle: int | None = None
    depths: tuple[int, ...] = (50,)


def smoke(settings: Settings, open_one: OpenNode, wanted: Wanted = Wanted()) -> SmokeReport:
    _must_fit(settings, wanted)
    with Session(settings, open_one) as session:
        settings = running(session.head, settings)
        checks = tuple(_checks(session.head, settings, wanted))
    return SmokeReport(settings.deployment, api_url(settings), _model(settings), all(one.ok for one in checks), checks)


def _model(settings: Settings) -> str:
    return settings.serve.served_model_name or settings.serve.model


def _must_fit(settings: Settings, wanted: Wanted) -> None:
    most = settings.serve.max_model_len
    if wanted.needle and most and wanted.needle + RECALL > most:
        raise SettingsError(
            f"a prompt of {wanted.needle} tokens and an answer of {RECALL} do not fit MAX_MODEL_LEN={most}",
            fix=f"--needle {most - RECALL} at most",
        )


def _checks(head: Node, settings: Settings, wanted: Wanted) -> Iterator[SmokeCheck]:
    answer = _ask(head, settings, thinks=False)
    yield SmokeCheck("17*19", is_right(answer["text"]), answer["seconds"], _detail(answer))
    if wanted.schema:
        yield _strict(_ask(head, settings, thinks=False, prompt=STRICT_QUESTION, max_tokens=64, form=_form()))
    if wanted.thinking:
        yield _thought(_ask(head, settings, thinks=False), thinks=False)
        yield _thought(_ask(head, settings, thinks=True, max_tokens=_thoughts(settings)), thinks=True)
    if wanted.vision:
        image = f"data:image/png;base64,{b64encode(png()).decode()}"
        yield _vision(_ask(head, settings, thinks=False, prompt=CARD_QUESTION, max_tokens=CARD_TOKENS, image=image))
    for depth in wanted.depths if wanted.needle else ():
        yield _needle(head, settings, wanted.needle or 0, depth)


def _ask(
    head: Node,
    settings: Settings,
    *,
    thinks: bool,
    prompt: str = QUESTION,
    max_tokens: int = 32,
    form: dict[str, Any] | None = None,
    needle: dict[str, Any] | None = None,
    image: str = "",
) -> dict[str, Any]:
    """The switch for thinking has two names, and a model ignores the one that it does not know."""
    limit = settings.watch.completion_timeout
    if needle:
        limit = max(limit, 60.0 + needle["tokens"] / SLOWEST)
    extra: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": thinks, "thinking": thinks}}
    want: dict[str, Any] = {
        "url": f"{api_url(settings)}/v1/chat/completions",
        "model": _model(settings),
        "prompt": prompt,
        "max_tokens": max_tokens,
        "limit": limit,
        "key_file": key_file(settings),
        "extra": extra | ({"response_format": form} if form else {}),
        **({"needle": needle} if needle else {}),
        **({"image": image} if image else {}),
    }
    found: dict[str, Any] = json.loads(told(head, head.run(agent("chat", want, (3 if needle else 1) * limit + 15))))
    return found


def is_right(text: str) -> bool:
    """The number, alone or in a sentence; 1323 is another one."""
    return re.search(rf"(?<!\d){ANSWER}(?!\d)", text) is not None


def _form() -> dict[str, Any]:
    """Every value is prescribed, so that only the form can be wrong."""
    schema = {
        "type": "object",
        "properties": {name: {"const": value} for name, value in STRICT.items()},
        "required": list(STRICT),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "smoke", "strict": True, "schema": schema}}


def _strict(answer: dict[str, Any]) -> SmokeCheck:
    try:
        same = json.loads(answer["text"]) == STRICT
    except ValueError:
        same = False
    return SmokeCheck("strict schema", same, answer["seconds"], _detail(answer))


def _thoughts(settings: Settings) -> int:
    """Half of a short context, so that the question has room beside them."""
    return min(THOUGHTS, (settings.serve.max_model_len or 2 * THOUGHTS) // 2)


def _thought(answer: dict[str, Any], *, thinks: bool) -> SmokeCheck:
    """On: thoughts come apart from the answer. Off: none come, neither apart nor within it."""
    thought = answer.get("reasoning") or ""
    mixed = "</think>" in answer["text"]
    name = f"thinking {'on' if thinks else 'off'}"
    ok = is_right(answer["text"]) and bool(thought) is thinks and not mixed
    kind = "within the answer" if mixed else f"{len(thought)} characters apart" if thought else "none"
    return SmokeCheck(name, ok, answer["seconds"], f"thoughts: {kind}; {_detail(answer)}")


def _vision(answer: dict[str, Any]) -> SmokeCheck:
    """All three things on the card, in whatever words; and how fast it was, image and all."""
    text = answer["text"].lower()
    missing = [word for word in ("red", "blue", WORD.lower()) if word not in text]
    tokens = (answer["usage"] or {}).get("completion_tokens")
    rate = f"; {tokens / answer['seconds']:.1f} tokens a second" if tokens and answer["seconds"] else ""
    wrong = f"not seen: {', '.join(missing)}; " if missing and not answer["error"] else ""
    return SmokeCheck("vision", not missing, answer["seconds"], f"{wrong}{_detail(answer)}{rate}")


def _needle(head: Node, settings: Settings, tokens: int, depth: int) -> SmokeCheck:
    phrase = f"{secrets.token_hex(2)}-{secrets.randbelow(9000) + 1000}-BLUE".upper()
    needle = {"tokens": tokens, "depth": depth, "seed": secrets.token_hex(8), "phrase": phrase}
    answer = _ask(head, settings, thinks=False, max_tokens=RECALL, needle=needle)
    usage = answer["usage"] or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    read = usage.get("prompt_tokens", answer.get("tokens"))
    wrong = [
        *([] if phrase in answer["text"] else ["the phrase is missing"]),
        *([] if answer["finish"] in ("stop", None) else [f"it ended by {answer['finish']}"]),
        *([f"{cached} tokens came from the cache"] if cached else []),
        *([] if read in (tokens, None) else [f"{read} tokens were read"]),
    ]
    at = f"needle at {depth} % of {tokens}"
    ok = not wrong and not answer["error"]
    return SmokeCheck(at, ok, answer["seconds"], "; ".join((*([] if answer["error"] else wrong), _detail(answer))))


def _detail(answer: dict[str, Any]) -> str:
    if answer["error"]:
        status = f"HTTP {answer['status']}: " if answer["status"] else ""
        return f"{status}{answer['error'][:300]}"
    usage = answer["usage"] or {}
    text = " ".join(answer["text"].split())
    shown = text if len(text) <= 80 else text[:77] + "..."
    first = f", first token after {answer['first_token']:.2f} s" if answer["first_token"] is not None else ""
    return f"answered “{shown}” ({usage.get('completion_tokens', '?')} tokens{first})"
