"""Answers of the program that imports what a server would."""

import pytest

from cluster.errors import Unreadable
from cluster.probe.imports import Imported, ImportsSeen, parse_imports


def test_steps_keep_their_order_and_what_they_say():
    text = """{"python": "3.12.3", "died": "signal 11", "steps": [
        {"name": "torch", "ok": true, "told": {"version": "2.11.0"}},
        {"name": "vllm", "ok": false, "told": {"error": "ImportError: no"}}]}"""
    steps = (Imported("torch", {"version": "2.11.0"}), Imported("vllm", {}, "ImportError: no"))
    assert parse_imports(text) == ImportsSeen("3.12.3", steps, "signal 11")


@pytest.mark.parametrize("text", ["", "{}", '{"python": "3", "died": "", "steps": [1]}'])
def test_anything_else_is_unreadable(text):
    with pytest.raises(Unreadable, match="cannot read what was imported"):
        parse_imports(text)
