"""What a Dockerfile says before it is built: what it wants to be told, what it starts from, which files it takes."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Known to every builder without being told.
_GIVEN = re.compile(r"(TARGET|BUILD)(PLATFORM|OS|ARCH|VARIANT)|(https?|ftp|no|all)_proxy", re.IGNORECASE)
_SECRET = re.compile(r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|KEY|CREDENTIALS?)($|_)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_QUOTES = "\"'"
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Argument:
    """One ARG. `reason` is the comment right above it; a default of None means that it has to be given."""

    name: str
    default: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """`copied` are the folders and files of the context that it takes; None when that can be any of them."""

    arguments: tuple[Argument, ...]
    bases: tuple[str, ...]
    copied: tuple[str, ...] | None


def read_dockerfile(text: str) -> Dockerfile:
    arguments: list[Argument] = []
    bases: list[str] = []
    stages: set[str] = set()
    copied: list[str] | None = []
    for word, rest, comment in _instructions(text):
        match word:
            case "ARG":
                arguments += [_argument(one, comment) for one in rest.split()]
            case "FROM":
                words = [one for one in rest.split() if not one.startswith("--")]
                bases += [words[0]] if words[0] not in stages else []
                stages |= {words[2]} if len(words) > 2 else set()
            case "COPY" | "ADD":
                sources = _sources(rest)
                copied = None if copied is None or sources is None else [*copied, *sources]
            case "RUN" if "type=bind" in rest:
                copied = None
    return Dockerfile(tuple(arguments), tuple(bases), None if copied is None else tuple(dict.fromkeys(copied)))


def _instructions(text: str) -> Iterable[tuple[str, str, str]]:
    """Word, rest, and the comment above: comments within continued lines are none of that."""
    comment: list[str] = []
    whole = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment += [] if whole else [line.strip().lstrip("#").strip()]
            continue
        if not line.strip():
            comment = [] if not whole else comment
            continue
        whole += line.rstrip().removesuffix("\\") + " "
        if line.rstrip().endswith("\\"):
            continue
        word, _, rest = whole.strip().partition(" ")
        yield word.upper(), rest.strip(), _last_paragraph(comment)
        whole, comment = "", []


def _last_paragraph(comment: list[str]) -> str:
    """A line of `#` alone parts what is said of the whole file from what is said of the next line."""
    start = max((at + 1 for at, line in enumerate(comment) if not line), default=0)
    return " ".join(comment[start:])


def _argument(text: str, comment: str) -> Argument:
    name, sign, default = text.partition("=")
    return Argument(name, default.strip(_QUOTES) if sign else None, comment)


def _sources(rest: str) -> tuple[str, ...] | None:
    """Of one COPY or ADD. None when it takes the whole context, or what cannot be known here."""
    flags = [one for one in rest.split() if one.startswith("--")]
    if any(one.startswith("--from=") for one in flags):
        return ()
    words = (
        re.findall(r'"([^"]*)"', rest)
        if "[" in rest
        else [one.strip(_QUOTES) for one in rest.split() if one not in flags]
    )
    found = []
    for source in words[:-1]:
        if source.startswith("<<") or "://" in source:
            continue
        plain = _WILD.split(source)[0]
        folder = plain if plain == source else plain.rpartition("/")[0]
        folder = folder.removeprefix("./").strip("/")
        if folder in ("", ".") or "$" in folder:
            return None
        found.append(folder)
    return tuple(found)


def takes(file: Dockerfile, name: str, path: str) -> bool:
    """Whether the file `path` of the context matters to the Dockerfile called `name`."""
    if file.copied is None or path == name:
        return True
    return any(path == one or path.startswith(f"{one}/") for one in file.copied)


def read_given(words: Iterable[str]) -> dict[str, str]:
    """`NAME=value` words."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def faults(file: Dockerfile, given: Mapping[str, str]) -> tuple[str, ...]:
    """Why it cannot be built with these arguments, one sentence each; none when it can."""
    known = {one.name for one in file.arguments}
    wanting = (
        f"{one.name} is not given: {one.reason or 'it has no default'}"
        for one in file.arguments
        if one.default is None and one.name not in given and not _GIVEN.fullmatch(one.name)
    )
    told = []
    for name, value in given.items():
        if _SECRET.search(name):
            told.append(f"{name} looks like a secret: everybody who has the image can read its arguments")
        elif name not in known and not _GIVEN.fullmatch(name):
            told.append(f"{name} is no argument of it; it has {', '.join(sorted(known)) or 'none'}")
        elif name.endswith("_COMMIT") and not _COMMIT.fullmatch(value):
            told.append(f"{name}={value} is not a whole commit of 40 digits")
    return (*dict.fromkeys(wanting), *told)


def unpinned(file: Dockerfile, given: Mapping[str, str]) -> tuple[str, ...]:
    """Bases that may be another image at the next build; an image that was made here has no digest."""
    values = {one.name: one.default or "" for one in file.arguments} | dict(given)
    bases = (_VARIABLE.sub(lambda found: values.get(found[1], ""), base) for base in file.bases)
    return tuple(base for base in bases if "@sha256:" not in base and base != "scratch")


@dataclass(frozen=True, slots=True)
class BuildStep:
    """Step `at` of `total` has begun."""

    at: int
    total: int
    text: str


_STEPS = (
    re.compile(r"#\d+ \[(?:[\w.-]+ )?(?P<at>\d+)/(?P<total>\d+)\] (?P<text>.+)"),
    re.compile(r"Step (?P<at>\d+)/(?P<total>\d+) : (?P<text>.+)"),
)


def build_step(line: str) -> BuildStep | None:
    """Of BuildKit's plain progress, or of the older builder's."""
    found = next((match for one in _STEPS if (match := one.match(line))), None)
    return BuildStep(int(found["at"]), int(found["total"]), found["text"]) if found else None
