"""The phases of a worker's life, and what may be done around them: each aid is a module of its own, with its switch."""

import functools
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from spark_overlay.anchors import Unsupported
from spark_overlay.settings import Settings

BOOT = ("init_device", "load_model", "determine_available_memory", "initialize_from_config", "compile_or_warm_up_model")
STEP = "execute_model"


class Aid(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def phases(self) -> tuple[str, ...]: ...

    def around(self, worker: Any, phase: str, arguments: tuple[Any, ...]) -> AbstractContextManager[None]: ...


def wanted(settings: Settings) -> tuple[Aid, ...]:
    from spark_overlay.memory_lines import MemoryLines
    from spark_overlay.page_cache import PageCacheDrop
    from spark_overlay.release import Release
    from spark_overlay.staged_load import StagedLoad

    aids: list[Aid] = []
    if settings.memory_lines:
        aids.append(MemoryLines())
    if settings.drop_page_cache:
        aids.append(PageCacheDrop())
    if settings.staged_load:
        aids.append(StagedLoad())
    if settings.release_from_tokens:
        aids.append(Release(settings.release_from_tokens, settings.release_below_bytes))
    return tuple(aids)


def install(worker: type, aids: tuple[Aid, ...]) -> None:
    """Wrap the methods of the worker's class; a method that is gone is fatal, twice is as good as once."""
    if getattr(worker, "_spark_overlay_aids", None):
        return
    phases = sorted({phase for aid in aids for phase in aid.phases})
    if missing := [phase for phase in phases if not callable(getattr(worker, phase, None))]:
        raise Unsupported(f"{worker.__name__} has no {' or '.join(missing)}: not the worker that spark_overlay knows")
    for phase in phases:
        setattr(worker, phase, _wrapped(getattr(worker, phase), phase, [aid for aid in aids if phase in aid.phases]))
    worker._spark_overlay_aids = aids  # type: ignore[attr-defined]


def _wrapped(method: Any, phase: str, aids: list[Aid]) -> Any:
    @functools.wraps(method)
    def call(worker: Any, *arguments: Any, **more: Any) -> Any:
        with ExitStack() as stack:
            for aid in aids:
                stack.enter_context(aid.around(worker, phase, arguments))
            return method(worker, *arguments, **more)

    return call
