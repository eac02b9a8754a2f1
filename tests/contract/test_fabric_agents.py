"""The programs that reach and measure, for real, over loopback."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.agent.wires import sight_of_fabric

AGENTS = Path(__file__).parents[2] / "cluster" / "agent"
TOKEN = "ab" * 16


def run(name: str, want: object) -> str:
    argv = (sys.executable, "-I", str(AGENTS / f"{name}.py"), json.dumps(want))
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def begin_receiver(peers: list[str]) -> tuple[subprocess.Popen[str], int]:
    want = {"serve": {"addresses": ["127.0.0.1"], "peers": peers, "token": TOKEN, "limit": 30}}
    argv = (sys.executable, "-I", str(AGENTS / "fabric.py"), json.dumps(want))
    receiver = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    return receiver, json.loads(receiver.stdout.readline())["ports"]["127.0.0.1"]


def end(receiver: subprocess.Popen[str]) -> None:
    receiver.kill()
    receiver.wait()
    assert receiver.stdout is not None
    receiver.stdout.close()


def send(port: int, token: str = TOKEN) -> dict[str, object]:
    way = {"from": "127.0.0.1", "to": "127.0.0.1", "port": port}
    (told,) = json.loads(run("fabric", {"send": [way], "token": token, "seconds": 0.3, "streams": 2}))
    found: dict[str, object] = told
    return found


def test_what_is_sent_is_counted_where_it_arrives():
    receiver, port = begin_receiver(["127.0.0.1"])
    try:
        told = send(port)
    finally:
        end(receiver)
    assert told["error"] is None
    assert isinstance(told["gbps"], float)
    assert told["gbps"] > 0.1
    assert isinstance(told["latency_us"], float)


def test_nobody_without_the_token_and_nobody_else_is_answered():
    receiver, port = begin_receiver(["127.0.0.1"])
    try:
        assert send(port, "cd" * 16)["error"]
    finally:
        end(receiver)
    receiver, port = begin_receiver(["10.40.0.1"])
    try:
        assert send(port)["error"]
    finally:
        end(receiver)


def test_open_and_refused_ports_are_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as door, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = [door.getsockname()[1], free.getsockname()[1]]
        (told,) = json.loads(run("reach", {"peers": [{"address": "127.0.0.1", "ports": ports}], "limit": 1.0}))
    assert told["ports"] == {str(ports[0]): "open", str(ports[1]): "refused"}
    assert told["interface"] == "lo"


def seen_at(address: str) -> dict[str, Any]:
    seen = sight_of_fabric(address)
    assert seen is not None
    return seen


def test_an_end_of_the_fabric_is_found_by_its_address_as_the_kernel_has_it():
    seen = seen_at("127.0.0.1")
    assert (seen["interface"], seen["carrier"], seen["mbps"]) == ("lo", True, None)
    assert seen["mtu"] == int(Path("/sys/class/net/lo/mtu").read_text())
    before = seen["received"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind(("127.0.0.1", 0))
        door.sendto(bytes(1000), door.getsockname())
        assert seen_at("127.0.0.1")["received"] >= before + 1000


def test_an_address_that_is_nowhere_has_no_interface():
    seen = seen_at("192.0.2.1")
    assert (seen["interface"], seen["carrier"], seen["mtu"]) == (None, False, None)
