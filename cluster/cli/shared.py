"""The options that verbs share, made when one is asked for: the list of verbs needs none, and settings are slow."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

MARK = "takes_shared_options"


def shared(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb all shared options, as one `options` argument."""

    @wraps(command)
    def with_options(**given: Any) -> None:
        from cluster.cli.options import collect

        options, own = collect(given)
        command(options, **own)

    setattr(with_options, MARK, True)
    return with_options


class SharedCommand(click.Command):
    """A command whose shared options come after its own."""

    _params: list[click.Parameter]
    _is_whole = False

    @property
    def params(self) -> list[click.Parameter]:
        """Always the same list: click adds to it and takes away again."""
        if hasattr(self.callback, MARK) and not self._is_whole:
            from cluster.cli.options import shared_options

            self._is_whole = True
            self._params += shared_options()
        return self._params

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._params = own
