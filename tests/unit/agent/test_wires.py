"""RDMA ports and numbers as sysfs shows them, in a tree of our own."""

import pytest

from cluster.agent import wires


def test_ports_are_read_with_their_interfaces_and_what_they_moved(tmp_path, monkeypatch) -> None:
    files = {
        "rocep1s0f1/ports/1/state": "4: ACTIVE\n",
        "rocep1s0f1/ports/1/rate": "200 Gb/sec (4X NDR)\n",
        "rocep1s0f1/ports/1/counters/port_rcv_data": "10\n",
        "rocep1s0f1/ports/1/counters/port_xmit_data": "20\n",
        "rocep1s0f1/device/net/enp1s0f1np1/mtu": "9000\n",
        "rxe0/ports/1/state": "1: DOWN\n",
        "rxe0/parent": "eth9\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(wires, "RDMA", str(tmp_path))
    assert wires.rdma_ports() == [
        {
            "device": "rocep1s0f1",
            "port": 1,
            "state": "ACTIVE",
            "gbps": 200.0,
            "interfaces": ["enp1s0f1np1"],
            "received": 40,
            "sent": 80,
        },
        {
            "device": "rxe0",
            "port": 1,
            "state": "DOWN",
            "gbps": None,
            "interfaces": ["eth9"],
            "received": 0,
            "sent": 0,
        },
    ]


@pytest.mark.parametrize(("text", "number"), [("200000\n", 200000), ("-1\n", None), ("0\n", None), ("", None)])
def test_a_speed_without_a_carrier_is_none(text, number) -> None:
    assert wires.positive(text) == number


def test_nothing_is_said_of_a_fabric_that_nobody_asks_for() -> None:
    assert wires.sight_of_fabric(None) is None
