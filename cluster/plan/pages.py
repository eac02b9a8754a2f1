"""The page cache of the weights as policy: what a runtime bears, what is evicted when, and what that costs."""

import json
from dataclasses import dataclass

from cluster.errors import Unreadable
from cluster.model.kit import PageCache
from cluster.model.nodes import NodeSettings
from cluster.model.settings import Settings
from cluster.model.units import format_bytes, format_duration
from cluster.plan.engram import source_folder
from cluster.plan.exl3_checks import keeps_pages
from cluster.plan.share import model_on


def policy(settings: Settings) -> PageCache:
    """Weights that a GPU reads in the page cache are never evicted; a rank that copied its own needs them no more."""
    if keeps_pages(settings):
        return PageCache.KEEP
    if settings.weights.page_cache is not PageCache.AUTO:
        return settings.weights.page_cache
    return PageCache.EVICT_CHECKPOINT if settings.tuning.drop_page_cache else PageCache.KEEP


def folders(settings: Settings, node: NodeSettings) -> tuple[str, ...]:
    """Whose files are evicted on a node. The head's are also those that it serves to the others: links share pages."""
    named = (model_on(node, settings), source_folder(settings, node))
    return tuple(dict.fromkeys(one for one in named if one))


@dataclass(frozen=True, slots=True)
class Evicted:
    """What an eviction did on a node. `resident_*` None where the kernel does not tell; `rate` in bytes a second."""

    files: int
    size: int
    free_before: int
    free_after: int
    resident_before: int | None
    resident_after: int | None
    kept: tuple[str, ...]
    rate: float | None


def parse_evicted(node: str, text: str) -> Evicted:
    try:
        said = json.loads(text)
        return Evicted(**(said | {"kept": tuple(said["kept"])}))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"cannot read what was evicted: {error}", where=node, evidence=[text[:200]]) from error


def price(done: Evicted, how: PageCache) -> str:
    """One sentence: what went, what it freed, and what reading it again will take."""
    what = "everybody's pages" if how is PageCache.EVICT_ALL else f"the pages of {done.files} files of weights"
    freed = max(0, done.free_after - done.free_before)
    told = f"evicted {what}; {format_bytes(freed)} came free"
    if done.resident_before is not None and done.resident_after is not None:
        gone = done.resident_before - done.resident_after
        told += f", {format_bytes(gone)} of them weights"
    if done.rate:
        told += f"; a load reads {format_bytes(done.size)} again, {format_duration(done.size / done.rate)} at "
        told += f"{format_bytes(int(done.rate))}/s"
    if done.kept:
        told += f"; {len(done.kept)} files are in use and keep {format_bytes(done.resident_after or 0)}"
    return told
