"""What goes over the line to the caller."""

import os

from cluster.agent.wrap_line import to_bytes


def test_bytes_that_are_no_text_survive_as_arguments() -> None:
    assert to_bytes(os.fsdecode(b"\xff\xc3\xa9")) == b"\xff\xc3\xa9"
