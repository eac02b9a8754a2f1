"""The program that writes files out of pieces, with some of its text changed."""

from collections.abc import Mapping

import pytest

from cluster.app import agents
from cluster.weights.assembly import ASSEMBLER


def change(monkeypatch: pytest.MonkeyPatch, changes: Mapping[bytes, bytes]) -> None:
    text = agents.program(*ASSEMBLER)
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    monkeypatch.setattr(agents, "program", lambda *parts: text)
