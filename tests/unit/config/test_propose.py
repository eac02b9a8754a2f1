"""What init proposes from what it saw: the fabric by subnet and RDMA device, never by name."""

from cluster.config import dotenv
from cluster.config.document import Document
from cluster.config.layers import Rank
from cluster.config.propose import Proposal, Seen, propose, usable
from cluster.config.resolve import resolve
from cluster.config.sources import parse_yaml
from cluster.config.texts import env_file_layer
from cluster.model.facts import Address, Hca
from cluster.model.need import Need


def addresses(text: str) -> tuple[Address, ...]:
    """`lo 127.0.0.1/8; eth0 192.0.2.1/24 down; enp1 10.0.0.1/24 9000`."""
    found = []
    for one in text.split(";"):
        interface, address, *rest = one.split()
        ip, _, prefix = address.partition("/")
        mtu = next((int(word) for word in rest if word.isdigit()), 1500)
        found.append(Address(interface, ip, int(prefix), interface == "lo", mtu, "down" not in rest))
    return tuple(found)


def active(device: str, interface: str) -> Hca:
    return Hca(device, 1, interface, "ACTIVE", "200 Gb/sec (4X HDR)")


HEAD = Seen(
    "local",
    addresses(
        "lo 127.0.0.1/8; wlP9s9 192.0.2.11/24; docker0 172.17.0.1/16; "
        "enp1s0f1np1 10.40.0.1/24 9000; enP2p1s0f1np1 10.41.0.1/24 9000"
    ),
    (active("rocep1s0f1", "enp1s0f1np1"), active("roceP2p1s0f1", "enP2p1s0f1np1")),
)
WORKER = Seen(
    "op@192.0.2.12",
    addresses(
        "lo 127.0.0.1/8; wlP9s9 192.0.2.12/24; docker0 172.17.0.1/16; br-1a 172.18.0.2/16; "
        "enp1s0f0np0 10.40.0.2/24 9000; enP2p1s0f0np0 10.41.0.2/24 9000"
    ),
    (active("rocep1s0f0", "enp1s0f0np0"), active("roceP2p1s0f0", "enP2p1s0f0np0")),
)


def values(proposal: Proposal) -> dict[str, str]:
    parsed = dotenv.parse(proposal.text.encode())
    layer = env_file_layer(parsed, ".env", open_to_others=False)
    assert (layer.problems, layer.cautions) == ((), ())
    return parsed.values


def test_two_sparks_with_one_cable_get_its_subnet_and_its_devices():
    proposal = propose([HEAD, WORKER])
    assert values(proposal) == {
        "HEAD_SSH": "local",
        "HEAD_IP": "10.40.0.1",
        "HEAD_CX7_IF": "enp1s0f1np1",
        "HEAD_CX7_IB": "rocep1s0f1",
        "WORKER_SSH": "op@192.0.2.12",
        "WORKER_IP": "10.40.0.2",
        "WORKER_CX7_IF": "enp1s0f0np0",
        "WORKER_CX7_IB": "rocep1s0f0",
    }
    assert proposal.name == ".env"
    assert proposal.questions == ()
    assert "# The same cable's other half: enP2p1s0f1np1 and enP2p1s0f0np0 on 10.41.0.0/24.\n" in proposal.text


def test_the_proposal_is_a_sound_set_of_nodes():
    parsed = dotenv.parse(propose([HEAD, WORKER]).text.encode())
    nodes = resolve([env_file_layer(parsed, ".env", open_to_others=False)], Need.NODES).settings.nodes
    assert [(node.control, node.address) for node in nodes] == [
        ("local", "10.40.0.1"),
        ("op@192.0.2.12", "10.40.0.2"),
    ]


def test_one_machine_gets_the_demo():
    assert values(propose([HEAD])) == {"RECIPE": "demo"}


def test_loopback_bridges_and_what_is_down_are_not_usable():
    seen = Seen(
        "x",
        addresses("lo 127.0.0.1/8; docker0 172.17.0.1/16; veth1 10.9.0.1/24; eth0 10.0.0.1/24 down; eth1 10.1.0.1/24"),
    )
    assert [one.interface for one in usable(seen)] == ["eth1"]


def test_without_rdma_a_shared_subnet_is_proposed_and_said_to_be_slow():
    head, worker = Seen("local", HEAD.addresses[:3]), Seen("b", WORKER.addresses[:3])
    proposal = propose([head, worker])
    assert values(proposal) == {
        "HEAD_SSH": "local",
        "HEAD_IP": "192.0.2.11",
        "HEAD_CX7_IF": "wlP9s9",
        "WORKER_SSH": "b",
        "WORKER_IP": "192.0.2.12",
        "WORKER_CX7_IF": "wlP9s9",
    }
    assert proposal.questions == (
        "No RDMA device is behind 192.0.2.0/24 on every node: collectives will go over plain TCP.",
    )


def test_an_rdma_port_that_is_down_is_not_fast():
    asleep = Seen("b", WORKER.addresses, (Hca("rocep1s0f0", 1, "enp1s0f0np0", "DOWN", "40 Gb/sec (4X QDR)"),))
    proposal = propose([HEAD, asleep])
    assert len(proposal.questions) == 1
    assert "WORKER_CX7_IB" not in values(proposal)


def test_no_shared_subnet_is_asked_about():
    proposal = propose([Seen("local", addresses("eth0 10.0.0.1/24")), Seen("b", addresses("eth0 10.1.0.1/24"))])
    assert values(proposal) == {"HEAD_SSH": "local", "WORKER_SSH": "b"}
    assert proposal.questions == (
        "No subnet is on all nodes: local has 10.0.0.1/24 (eth0); b has 10.1.0.1/24 (eth0). Which addresses are right?",
    )


def test_two_cables_are_asked_about():
    more = (active("rocep1s0f0", "enp1s0f0np0"), active("rocep1s0f1", "enp1s0f1np1"))
    head = Seen("local", addresses("enp1s0f0np0 10.40.0.1/24; enp1s0f1np1 10.50.0.1/24"), more)
    worker = Seen("b", addresses("enp1s0f0np0 10.40.0.2/24; enp1s0f1np1 10.50.0.2/24"), more)
    assert propose([head, worker]).questions == (
        "More than one fast subnet is on all nodes: 10.40.0.0/24 is proposed; also 10.50.0.0/24.",
    )


def test_an_alias_on_loopback_is_left_out_and_said():
    head = Seen("local", (*HEAD.addresses, Address("lo", "10.50.0.1", 32, True, 65536, True)), HEAD.hcas)
    assert propose([head, WORKER]).questions == (
        "10.50.0.1 on this machine is an alias on lo: no other node can reach it.",
    )


def test_link_local_addresses_are_proposed_and_said():
    one, two = (active("rocep1s0f1", "enp1s0f1np1"),), (active("rocep1s0f0", "enp1s0f0np0"),)
    head = Seen("local", addresses("enp1s0f1np1 169.254.3.1/16"), one)
    worker = Seen("b", addresses("enp1s0f0np0 169.254.9.9/16"), two)
    proposal = propose([head, worker])
    assert values(proposal)["WORKER_IP"] == "169.254.9.9"
    assert proposal.questions == (
        "169.254.0.0/16 is link-local: such addresses may change at a reboot; fixed ones are safer.",
    )


def test_three_nodes_get_a_cluster_file():
    third = Seen("c", addresses("enp1s0f0np0 10.40.0.3/24"), (active("rocep1s0f0", "enp1s0f0np0"),))
    proposal = propose([HEAD, WORKER, third])
    assert proposal.name == "cluster.yaml"
    layer = Document("cluster.yaml", "cluster.yaml", Rank.CLUSTER).layer(parse_yaml(proposal.text.encode(), "x"))
    settings = resolve([layer], Need.NODES).settings
    assert [(node.control, node.address, node.hca) for node in settings.nodes] == [
        ("local", "10.40.0.1", "rocep1s0f1"),
        ("op@192.0.2.12", "10.40.0.2", "rocep1s0f0"),
        ("c", "10.40.0.3", "rocep1s0f0"),
    ]
    assert settings.serve.tensor_parallel == 3
