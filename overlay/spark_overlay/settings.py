"""What the overlay is asked to do: everything from the environment, read once, refused when it cannot be meant."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_overlay.row_store import Engine, Options

PREFIX = "SPARK_OVERLAY_"


@dataclass(frozen=True)
class EngramSettings:
    """Where the tables lie. `packed` holds a rank's own files; `source` a checkpoint's shards, index and config."""

    packed: Path | None
    source: Path | None
    options: Options
    report_every: float


@dataclass(frozen=True)
class Settings:
    engram: EngramSettings | None
    memory_lines: bool
    drop_page_cache: bool
    staged_load: bool
    release_from_tokens: int  # 0: never
    release_below_bytes: int  # of available memory; 0: always


def read_settings(environment: Mapping[str, str]) -> Settings:
    """SPARK_OVERLAY_ENGRAM=file turns the tables on; every other name has a value that leaves the server as it is."""
    known = {
        *("ENGRAM", "ENGRAM_PACKED", "ENGRAM_SOURCE", "ENGRAM_ENGINE", "ENGRAM_DEPTH", "ENGRAM_CACHE_BYTES"),
        *("ENGRAM_RESIDENT_SCALES", "ENGRAM_CHECK_PAGES", "ENGRAM_REPORT_SECONDS"),
        *("MEMORY_LINES", "DROP_PAGE_CACHE", "STAGED_LOAD", "RELEASE_FROM_TOKENS", "RELEASE_BELOW_BYTES"),
    }
    given = {name[len(PREFIX) :]: value for name, value in environment.items() if name.startswith(PREFIX)}
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"{PREFIX}{unknown[0]} is no setting of the overlay")

    def number(name: str, default: int) -> int:
        text = given.get(name) or str(default)
        if not text.isdecimal():
            raise ValueError(f"{PREFIX}{name} must be a number, not {text!r}")
        return int(text)

    def switch(name: str, default: bool) -> bool:
        text = given.get(name) or str(int(default))
        if text not in ("0", "1"):
            raise ValueError(f"{PREFIX}{name} must be 0 or 1, not {text!r}")
        return text == "1"

    def folder(name: str) -> Path | None:
        return Path(given[name]) if given.get(name) else None

    kind = given.get("ENGRAM") or "memory"
    if kind not in ("memory", "file"):
        raise ValueError(f"{PREFIX}ENGRAM must be memory or file, not {kind!r}")
    engine = (given.get("ENGRAM_ENGINE") or "probe").upper()
    if engine not in Engine.__members__:
        names = ", ".join(name.lower() for name in Engine.__members__)
        raise ValueError(f"{PREFIX}ENGRAM_ENGINE must be one of {names}, not {engine.lower()!r}")
    packed, source = folder("ENGRAM_PACKED"), folder("ENGRAM_SOURCE")
    if kind == "file" and not (packed or source):
        raise ValueError(f"{PREFIX}ENGRAM=file needs {PREFIX}ENGRAM_PACKED or {PREFIX}ENGRAM_SOURCE")
    options = Options(
        engine=Engine[engine],
        depth=number("ENGRAM_DEPTH", 0),
        check=switch("ENGRAM_CHECK_PAGES", True),
        resident_scales=switch("ENGRAM_RESIDENT_SCALES", False),
        cache_bytes=number("ENGRAM_CACHE_BYTES", 0),
    )
    engram = EngramSettings(packed, source, options, float(number("ENGRAM_REPORT_SECONDS", 0)))
    return Settings(
        engram=engram if kind == "file" else None,
        memory_lines=switch("MEMORY_LINES", False),
        drop_page_cache=switch("DROP_PAGE_CACHE", False),
        staged_load=switch("STAGED_LOAD", False),
        release_from_tokens=number("RELEASE_FROM_TOKENS", 0),
        release_below_bytes=number("RELEASE_BELOW_BYTES", 0),
    )
