"""How a person names the way to a node."""

import pytest

from cluster.errors import SettingsError
from cluster.node.control import Local, Target, parse_control


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("local", Local()),
        ("spark-b", Target("spark-b")),
        ("op@spark-b", Target("spark-b", "op")),
        ("op@spark-b.lan:2222", Target("spark-b.lan", "op", 2222)),
        ("192.168.1.2:22", Target("192.168.1.2", None, 22)),
        ("[fe80::1%eth0]:2222", Target("fe80::1%eth0", None, 2222)),
        ("op@[fd00::2]", Target("fd00::2", "op")),
        ("fd00::2", Target("fd00::2")),
        ("op@fe80::1%enp1s0f0np0", Target("fe80::1%enp1s0f0np0", "op")),
        ("local:22", Target("local", None, 22)),
    ],
)
def test_accepted_shapes(text: str, meant: Local | Target) -> None:
    assert parse_control(text) == meant


@pytest.mark.parametrize(
    "text", ["", "a b", "host:0", "host:70000", "host:port", "@host", "-oProxyCommand=x", "a@b@c d"]
)
def test_other_shapes_are_refused_with_those_accepted(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_control(text)
    assert caught.value.what == f"{text!r} is no way to reach a node"
    assert "user@host:port" in caught.value.fix


@pytest.mark.parametrize(
    "target", [Target("h"), Target("h", "u", 22), Target("fd00::2", None, 2222), Target("fd00::2")]
)
def test_target_is_written_as_it_is_read(target: Target) -> None:
    assert parse_control(str(target)) == target
