"""The `config` verb."""

import os
from pathlib import Path

from cluster.cli.invoke import Call, run
from cluster.cli.options import Options
from cluster.config.load import load
from cluster.config.resolve import DEFAULT
from cluster.config.show import MASK, masked
from cluster.config.texts import Option
from cluster.model.events import ConfigReport, SettingShown, Severity, Told
from cluster.model.need import Need


def show(options: Options, *, origin: bool, everything: bool) -> None:
    def act(call: Call) -> None:
        resolved = load(
            Path.cwd(),
            environ=os.environ,
            env_file=options.env_file,
            config=options.config,
            options=[Option(*value) for value in options.values],
            recipe=options.recipe or None,
            need=Need.NOTHING,
        )
        shown = tuple(
            SettingShown(
                one.key,
                one.value if options.json else one.text,
                one.origin if origin or options.json else "",
                secret=one.text == MASK,
            )
            for one in masked(resolved)
            if everything or options.json or one.origin != DEFAULT
        )
        if not shown:
            call.emit(Told(Severity.NOTE, "nothing is set; --all shows the defaults"))
        call.emit(ConfigReport(resolved.settings.deployment, resolved.settings.recipe, shown))

    run(options, act, need=Need.NOTHING)
