"""From messages to the text that a model goes on with: the pack's own template, or ours for packs that have none."""

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from spark_exl3.wishes import Refused

OURS = "deepseek_v41.jinja"
OPENED, CLOSED = "<think>", "</think>"


class Template:
    """Renders in a sandbox: a template is part of a download."""

    def __init__(self, text: str, source: str, words: Mapping[str, str]) -> None:
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        def refuse(message: str) -> None:
            raise Refused(400, f"the chat template refuses the messages: {message}", parameter="messages")

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = lambda value, **form: json.dumps(value, ensure_ascii=False, **form)
        environment.globals["raise_exception"] = refuse
        self._template, self.source, self._words = environment.from_string(text), source, dict(words)

    def render(self, messages: Sequence[Mapping[str, str]], words: Mapping[str, Any]) -> str:
        from jinja2 import TemplateError

        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **(self._words | dict(words)))
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:  # of its own text
            raise Refused(
                400, f"the chat template cannot render the messages: {error}", parameter="messages"
            ) from error


def template(folder: Path, instead: Path | None = None) -> Template:
    """`instead`, else the pack's `chat_template.jinja`, else the one in its tokenizer_config.json, else ours."""
    config = _json(folder / "tokenizer_config.json")
    words = {key: _token(config.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    for file in (*([instead] if instead else ()), folder / "chat_template.jinja"):
        if file.is_file() or file is instead:
            return Template(file.read_text(encoding="utf-8"), str(file), words)
    inside = config.get("chat_template")
    if isinstance(inside, list):  # several by name
        inside = next((one["template"] for one in inside if one.get("name") == "default"), None)
    if isinstance(inside, str):
        return Template(inside, "tokenizer_config.json", words)
    ours = resources.files("spark_exl3").joinpath(OURS).read_text(encoding="utf-8")
    return Template(ours, f"spark_exl3/{OURS}", words)


def opens_thought(prompt: str) -> bool:
    """Whether the answer begins inside a thought, whose end the model will say."""
    return prompt.rstrip().endswith(OPENED)


class Split:
    """Tells a thought from an answer while pieces arrive, wherever the mark between them is cut."""

    def __init__(self, thinking: bool) -> None:
        self._thinking, self._held = thinking, ""

    def take(self, piece: str) -> tuple[str, str]:
        """(thought, answer) of what is certain by now."""
        if not self._thinking:
            return "", piece
        self._held += piece
        thought, mark, answer = self._held.partition(CLOSED)
        if mark:
            self._thinking, self._held = False, ""
            return thought, answer
        certain = len(self._held) - _begun(self._held)
        told, self._held = self._held[:certain], self._held[certain:]
        return told, ""

    def end(self) -> str:
        """The rest of a thought that was never ended."""
        rest, self._held = self._held, ""
        return rest


def _begun(text: str) -> int:
    """How many characters at the end could be the beginning of the mark."""
    return next((size for size in range(min(len(text), len(CLOSED) - 1), 0, -1) if CLOSED.startswith(text[-size:])), 0)


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    read = json.loads(file.read_text(encoding="utf-8"))
    return read if isinstance(read, dict) else {}


def _token(given: Any) -> str:
    """A special token stands as its text, or as an object with it."""
    if isinstance(given, dict):
        given = given.get("content")
    return given if isinstance(given, str) else ""
