"""Keep secrets out of everything that is shown: registered values, and what looks like a secret by its shape."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar
from urllib.parse import quote

MASK = "***"
T = TypeVar("T")

_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"',;]+)"""
_SHAPES = (
    re.compile(r"(?<![A-Za-z0-9_])()(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})"),
    re.compile(rf"(--(?:api-key|hf-token)(?:=|\s+)){_VALUE}"),
    re.compile(rf"""(?i)(\bauthorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?){_VALUE}"""),
    re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(rf"(\b[A-Z0-9_]*(?:API_KEY|TOKEN|PASSWORD|SECRET)=){_VALUE}"),
    re.compile(rf"""(\bapi_key["']?\s*[:=]\s*\[?){_VALUE}"""),
)
_SECRET_FLAG = re.compile(r"--(?:api-key|hf-token)")
_SECRET_NAME = re.compile(r"[A-Za-z0-9_]*(?:API_KEY|TOKEN|PASSWORD|SECRET)")


class Redactor:
    """Masks text. Values are added as soon as they are read, before anything that holds them can be shown."""

    def __init__(self, *secrets: str) -> None:
        self._known: tuple[re.Pattern[str], ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """From now on, mask this value, also in the forms that a shell, JSON or a URL gives it."""
        secret = secret.strip()
        if secret:
            forms = {secret, shlex.quote(secret), json.dumps(secret)[1:-1], quote(secret, safe="")}
            either = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
            # a very short value stands in half of all words; as a word of its own it is still masked
            pattern = rf"(?<![A-Za-z0-9])(?:{either})(?![A-Za-z0-9])" if len(secret) < 4 else either
            self._known += (re.compile(pattern),)

    def text(self, text: str) -> str:
        for known in self._known:
            text = known.sub(MASK, text)
        for shape in _SHAPES:
            text = shape.sub(rf"\g<1>{MASK}", text)
        return text

    def event(self, event: T) -> T:
        """The same event with every text in it masked."""
        return map_text(event, self.text)


def map_text(value: T, change: Callable[[str], str]) -> T:
    """The value with `change` applied to every plain text in it, however deep; choices (enums) stay as they are."""
    return _map(value, change)  # type: ignore[no-any-return]


def _map(value: Any, change: Callable[[str], str]) -> Any:
    if type(value) is str:
        return change(value)
    if isinstance(value, tuple):
        return tuple(_words(value, change))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{one.name: _map(getattr(value, one.name), change) for one in fields(value)})
    return value


def _words(words: tuple[Any, ...], change: Callable[[str], str]) -> Iterator[Any]:
    """As an argv or a (name, value) pair is read: a word can tell that the next one is a secret."""
    for before, word in zip(("", *words), words, strict=False):
        hide = isinstance(word, str) and isinstance(before, str) and _announces(before, is_pair=len(words) == 2)
        yield MASK if hide and word else _map(word, change)


def _announces(word: str, *, is_pair: bool) -> bool:
    return bool(_SECRET_FLAG.fullmatch(word) or (is_pair and _SECRET_NAME.fullmatch(word)))
