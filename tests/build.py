"""Small inputs for tests, in few words."""

from dataclasses import replace

from cluster.model.facts import Address, Identity, Listener, Memory, ModelSeen, NodeFacts
from cluster.model.settings import Launch, NodeSettings, Serve, Settings, Watch
from cluster.model.units import Bytes

GIB = 2**30


def pair(**changes) -> Settings:
    """Two nodes, spark-a and spark-b, on 10.40.0.0/24. Keywords replace whole sections."""
    base = Settings(
        deployment="demo",
        recipe="demo",
        nodes=(
            NodeSettings(name="spark-a", control="local", address="10.40.0.1"),
            NodeSettings(name="spark-b", control="op@spark-b", address="10.40.0.2"),
        ),
        serve=Serve(model="/models/demo", served_model_name="demo"),
        launch=Launch(venv="/opt/vllm"),
        watch=Watch(),
    )
    return replace(base, **changes)


def facts(node: str, addresses: str = "", listening: str = "") -> NodeFacts:
    """`addresses` like "10.40.0.1@enp1s0f1np1, 10.50.0.1@lo"; `listening` like "*:8888 nginx, 10.40.0.1:22"."""
    return NodeFacts(
        node,
        tuple(_address(one) for one in addresses.split(", ") if one),
        tuple(_listener(one) for one in listening.split(", ") if one),
        Memory(Bytes(128 * GIB), Bytes(100 * GIB), Bytes(120 * GIB)),
    )


def _address(text: str) -> Address:
    address, _, interface = text.partition("@")
    interface, _, state = interface.partition(" ")
    return Address(interface, address, 24, interface == "lo", 1500, state != "down")


def _listener(text: str) -> Listener:
    place, _, holder = text.partition(" ")
    address, _, port = place.rpartition(":")
    return Listener(address, int(port), holder)


def identity(**changes) -> Identity:
    base = Identity(
        python="3.12.3",
        packages=(("torch", "2.13.0"), ("vllm", "0.32.0")),
        has_server=True,
        model=ModelSeen(True, 4, Bytes(6 * 2**20), "d1" * 32, "contents", ()),
        argv_digest=None,
        key_mode=None,
        key_problem="",
        state_free=Bytes(50 * GIB),
        state_writable=True,
        state_path="/home/op",
        hostname="spark-a",
        machine="aarch64",
        machine_id="ab" * 8,
        boot_id="b",
    )
    return replace(base, **changes)
