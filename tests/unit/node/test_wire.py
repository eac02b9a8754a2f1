"""The request in bytes, and the answer from bytes however they are cut."""

import json
import shlex
from itertools import pairwise
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node import wire

MARKER = "sparkctl:0123456789abcdef\n"
END = json.dumps({"how": "exit", "exit": 3, "alive": False}).encode()


def frame(kind: str, data: bytes) -> bytes:
    return kind.encode() + len(data).to_bytes(4, "big") + data


def parts(request: bytes) -> tuple[bytes, dict[str, object], bytes]:
    """(source, request, data) as the node takes them apart."""
    size = int(request[:8])
    source, rest = request[8 : 8 + size], request[8 + size :]
    size = int(rest[:8])
    return source, json.loads(rest[8 : 8 + size]), rest[8 + size :]


def test_request_carries_source_command_and_input() -> None:
    command = Command(("ls", "größe"), env=(("A", "b"),), stdin=b"\0in", limit=Seconds(5.0), cwd=PurePosixPath("/tmp"))
    source, request, data = parts(wire.run_request(command, MARKER, 60.0))
    assert b"\ndef main() -> None:\n" in source
    assert data == b"\0in"
    assert request == {
        "do": "run",
        "argv": ["ls", "größe"],
        "env": {"A": "b"},
        "cwd": "/tmp",
        "limit": 5.0,
        "patience": 60.0,
        "marker": MARKER,
        "size": 3,
    }


def test_no_limit_is_sent_as_none() -> None:
    _, request, _ = parts(wire.run_request(Command(("x",), limit=Seconds(float("inf"))), MARKER, None))
    assert (request["limit"], request["patience"]) == (None, None)


@pytest.mark.parametrize("argv", [(), ("echo", "a\0b")])
def test_what_no_system_can_run_is_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not an argument list"):
        wire.run_request(Command(argv), MARKER, None)


def test_boot_line_has_nothing_that_a_shell_would_touch() -> None:
    assert not set(wire.BOOT) & set("'\"\\$`!\n")
    assert shlex.split(f"'{wire.BOOT}'") == [wire.BOOT]


@given(
    noise=st.binary(max_size=40).filter(lambda data: b"sparkctl:" not in data),
    pieces=st.lists(st.tuples(st.sampled_from("oe"), st.binary(max_size=50)), max_size=6),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_answer_is_the_same_however_it_is_cut(noise: bytes, pieces: list[tuple[str, bytes]], cuts: list[int]) -> None:
    whole = noise + MARKER.encode() + b"".join(frame(*piece) for piece in pieces) + frame("x", END) + b"trailing"
    reply = wire.Reply(MARKER.encode())
    seen: list[tuple[str, bytes]] = []
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    for start, end in pairwise(edges):
        seen += reply.feed(whole[start:end])
    assert (bytes(reply.noise), seen, reply.end) == (noise, pieces, wire.End("exit", 3))


def test_writing_into_the_output_is_noticed() -> None:
    with pytest.raises(wire.Garbled):
        wire.Reply(MARKER.encode()).feed(MARKER.encode() + b"late noise from a background job")


def test_what_was_heard_instead_of_an_answer_is_kept() -> None:
    reply = wire.Reply(MARKER.encode())
    assert reply.feed(b"This account is not available.\n") == []
    assert (reply.started, reply.end, reply.heard()) == (False, None, b"This account is not available.\n")
