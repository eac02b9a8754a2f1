"""How a program that writes files out of others answers: JSON lines, and refusals by name. A part of several."""

from __future__ import annotations

import json
import sys
from typing import Any, NoReturn


class Refused(Exception):
    """What this one file cannot become; the others go on."""

    def __init__(self, fault: str, text: str) -> None:
        super().__init__(text)
        self.fault = fault


def refuse(fault: str, text: str) -> NoReturn:
    raise Refused(fault, text)


def say(kind: str, **values: Any) -> None:
    """One write for the whole line: several threads answer."""
    sys.stdout.write(json.dumps(dict(values, kind=kind)) + "\n")
    sys.stdout.flush()
