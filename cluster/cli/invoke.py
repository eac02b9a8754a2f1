"""From options to a running verb: settings, reporter, the one error boundary, the exit code."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from cluster.cli.developer_log import keep_log
from cluster.cli.options import Options
from cluster.errors import Exit, SparkctlError
from cluster.model.events import Emit, Failed, Severity, Told
from cluster.model.need import Need
from cluster.model.settings import Settings
from cluster.report import Redactor, make_reporter

if TYPE_CHECKING:
    from cluster.app.session import OpenNode


@dataclass(frozen=True, slots=True)
class Call:
    """What a verb gets: settings with located nodes, where to report, how to open a node."""

    settings: Settings
    emit: Emit
    options: Options
    given: "OpenNode | None" = None

    @property
    def open_one(self) -> "OpenNode":
        from cluster.app.session import Access, open_with

        if self.given is not None:
            return self.given
        return open_with(Access(self.options.ssh_config, self.options.accept_new_host_key), self.emit)


ACTING = ("start", "restart", "stop")
Act = Callable[[Call], int | None]


def run(options: Options, act: Act, *, need: Need = Need.SERVE, starts: bool = False, watch: bool = False) -> NoReturn:
    """Do one verb. `starts`: also refuse settings that nothing would act on yet."""
    signal.signal(signal.SIGTERM, _terminated)
    given = click.get_current_context().obj
    keep_log(options.verbose)
    redactor = Redactor()
    with _hushed_pipe(Exit.INTERRUPTED if click.get_current_context().info_name in ACTING else Exit.DONE):
        reporter = make_reporter(
            options.json,
            options.quiet,
            options.verbose,
            options.color,
            sys.stdout,
            sys.stderr,
            watch=watch,
            redactor=redactor,
        )
        with reporter as emit:
            code = _guarded(
                emit, lambda: act(Call(_settings(options, emit, redactor, need, starts), emit, options, given))
            )
        sys.stdout.flush()
        sys.exit(code)
    sys.exit(Exit.DONE)


def _guarded(emit: Emit, act: Callable[[], int | None]) -> int:
    try:
        return act() or Exit.DONE
    except KeyboardInterrupt:
        emit(Failed("Interrupted", "interrupted", "", (), "", Exit.INTERRUPTED))
        return Exit.INTERRUPTED
    except SparkctlError as error:
        return _fail(emit, error)
    except BaseExceptionGroup as group:
        return _fail_all(emit, group)
    except BrokenPipeError:
        raise
    except Exception as error:  # the one boundary: a bug of ours is told as such
        return _bug(emit, error)


def _fail(emit: Emit, error: SparkctlError) -> int:
    emit(Failed(type(error).__name__, error.what, error.where, error.evidence, error.fix, error.exit))
    return error.exit


def _fail_all(emit: Emit, group: BaseExceptionGroup[BaseException]) -> int:
    """Every node's failure is told; the exit code is that of the first."""
    codes = []
    for error in group.exceptions:
        match error:
            case SparkctlError():
                codes.append(_fail(emit, error))
            case BaseExceptionGroup():
                codes.append(_fail_all(emit, error))
            case KeyboardInterrupt():
                codes.append(Exit.INTERRUPTED)
            case _:
                codes.append(_bug(emit, error))
    return codes[0]


def _bug(emit: Emit, error: BaseException) -> int:
    import logging
    import traceback

    logging.getLogger("cluster").error("bug", exc_info=error)
    frames = traceback.extract_tb(error.__traceback__)[-2:]
    seen = [f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames]
    emit(
        Failed(
            type(error).__name__,
            f"a bug in sparkctl: {type(error).__name__}: {error}",
            "",
            tuple(seen),
            "the whole trace is in the developer log (sparkctl -vv); please report it",
            Exit.BUG,
        )
    )
    return Exit.BUG


def _settings(options: Options, emit: Emit, redactor: Redactor, need: Need, starts: bool) -> Settings:
    from cluster.app.session import locate
    from cluster.config.load import load
    from cluster.config.resolve import settings_error
    from cluster.config.texts import Option
    from cluster.model.rules import unsupported
    from cluster.node.local import is_local_address

    resolved = load(
        Path.cwd(),
        environ=os.environ,
        env_file=options.env_file,
        config=options.config,
        options=[Option(*value) for value in options.values],
        recipe=options.recipe or None,
        need=need,
    )
    for secret in secrets_of(resolved.settings):
        redactor.add(secret)
    for caution in resolved.warnings:
        emit(Told(Severity.WARNING, str(caution)))
    if starts and (wrong := unsupported(resolved.settings, resolved.origins)):
        raise settings_error(wrong)
    if need is Need.NOTHING:
        return resolved.settings
    return locate(resolved.settings, is_local_address)


def secrets_of(settings: Settings) -> list[str]:
    from cluster.model.flags import value_of
    from cluster.model.settings import table
    from cluster.model.table import Secret

    values = (value_of(settings, row.key) for row in table() if not row.key.startswith("worker."))
    return [value.reveal() for value in values if isinstance(value, Secret)]


def _terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends us as Ctrl-C does, so that what must be undone is undone."""
    raise KeyboardInterrupt


class _hushed_pipe:  # noqa: N801  # reads as the context it is
    """`sparkctl logs | head` ends quietly, and so does `start --json` without a reader: but that one has not served."""

    def __init__(self, code: Exit) -> None:
        self._code = code

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, BrokenPipeError):
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(self._code)
