"""What one line of the settings table says, and the value types that only settings have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NewType, get_type_hints

Gid = NewType("Gid", int)


class Secret:
    """A text that no print, log, format or comparison of reprs can show."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))


@dataclass(frozen=True, slots=True)
class Meta:
    """What the table says about one field besides its type and default.

    env        bare name in `.env`; with the prefix SPARKCTL_ in the process environment
    aliases    further names of the same setting in the published kits
    flag       the `vllm serve` flag it becomes, when set
    variable   the environment variable of every rank it becomes, when set
    low, high  inclusive bounds for numbers; `above` an exclusive lower one; `step` what it must be a multiple of
    pattern    what the whole text must match, and `allowed` how to say that to a person
    unless     key of a switch that, when on, makes this setting say nothing to vLLM
    not_yet    the part of sparkctl that would act on it and does not exist yet
    """

    help: str
    env: str = ""
    aliases: tuple[str, ...] = ()
    flag: str = ""
    variable: str = ""
    low: float | None = None
    high: float | None = None
    above: float | None = None
    step: int | None = None
    pattern: str = ""
    allowed: str = ""
    unless: str = ""
    is_path: bool = False
    not_yet: str = ""


def setting(default: Any, help: str, **more: Any) -> Any:  # noqa: A002  # reads as the table it is
    return field(default=default, metadata={"setting": Meta(help=help, **more)})


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the settings table: `key` is dotted, `kind` the field's type."""

    key: str
    kind: Any
    default: Any
    meta: Meta


def rows_of(section: str, cls: type, env: Mapping[str, str] | None = None) -> Iterator[Row]:
    """The lines of one section. `env` renames the fields it lists, for the nodes share one class."""
    hints = get_type_hints(cls)
    for one in fields(cls):
        meta: Meta = one.metadata["setting"]
        if env is not None:
            meta = replace(meta, env=env.get(one.name, ""))
        yield Row(f"{section}.{one.name}", hints[one.name], one.default, meta)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in the settings: where it was written, what is wrong, what to write instead."""

    where: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.fix}" if self.fix else text


@dataclass(frozen=True, slots=True)
class Caution:
    """Something in the settings that a person should know once. `code` is stable, e.g. `crlf`."""

    code: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text
