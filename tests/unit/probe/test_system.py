"""Real outputs of ip, ss, /proc/meminfo and sysfs become facts."""

import pytest

from cluster.errors import Unreadable
from cluster.model.facts import Address, Hca, Listener, Memory
from cluster.model.units import Bytes
from cluster.probe.system import parse_addresses, parse_hcas, parse_listeners, parse_memory

IP = """[{"ifindex":1,"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"operstate":"UNKNOWN",
"addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8},{"family":"inet","local":"10.50.0.1","prefixlen":32,
"label":"lo:1"},{"family":"inet6","local":"::1","prefixlen":128}]},{"ifindex":4,"ifname":"enp1s0f1np1",
"flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":9000,"addr_info":[{"family":"inet","local":"10.40.0.1",
"prefixlen":24}]},{"ifindex":5,"ifname":"enp1s0f0np0","flags":["NO-CARRIER","UP"],"mtu":1500,"addr_info":[]}]"""


def test_addresses_keep_the_loopback_flag_and_leave_ipv6_out():
    assert parse_addresses(IP) == (
        Address("lo", "127.0.0.1", 8, True, 65536, True),
        Address("lo", "10.50.0.1", 32, True, 65536, True),
        Address("enp1s0f1np1", "10.40.0.1", 24, False, 9000, True),
    )


def test_listeners_are_read_in_every_form_that_ss_prints():
    text = """LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=811,fd=3))
LISTEN 0 128 [::]:22 [::]:* users:(("sshd",pid=811,fd=4))
LISTEN 0 4096 127.0.0.53%lo:53 0.0.0.0:*
LISTEN 0 2048 10.40.0.1:8888 0.0.0.0:* users:(("vllm",pid=4,fd=9),("vllm",pid=5,fd=9))
LISTEN 0 2048 *:29521 *:*
LISTEN 0 2048 [::ffff:10.40.0.1]:7000 *:*
"""
    assert parse_listeners(text) == (
        Listener("*", 22, "sshd (pid 811)"),
        Listener("*", 22, "sshd (pid 811)"),
        Listener("127.0.0.53", 53),
        Listener("10.40.0.1", 8888, "vllm (pid 4)"),
        Listener("*", 29521),
        Listener("10.40.0.1", 7000),
    )


def test_memory_is_in_bytes():
    text = "MemTotal:       127535828 kB\nMemFree:          2904064 kB\nMemAvailable:   118452224 kB\n"
    assert parse_memory(text) == Memory(Bytes(130596687872), Bytes(2973761536), Bytes(121295077376))


def test_hca_ports_come_with_state_rate_and_interface():
    text = """rocep1s0f0/ports/1/state:1: DOWN
rocep1s0f1/ports/1/state:4: ACTIVE
rocep1s0f0/ports/1/rate:40 Gb/sec (4X QDR)
rocep1s0f1/ports/1/rate:100 Gb/sec (4X EDR)
rocep1s0f1/ports/1/gid_attrs/ndevs/0:enp1s0f1np1
"""
    assert parse_hcas(text) == (
        Hca("rocep1s0f0", 1, "", "DOWN", "40 Gb/sec (4X QDR)"),
        Hca("rocep1s0f1", 1, "enp1s0f1np1", "ACTIVE", "100 Gb/sec (4X EDR)"),
    )


@pytest.mark.parametrize(
    ("parse", "text"),
    [(parse_addresses, "Object missing"), (parse_listeners, "what is this"), (parse_memory, "MemTotal: 5 kB")],
)
def test_what_cannot_be_read_is_shown_and_not_guessed(parse, text):
    with pytest.raises(Unreadable) as caught:
        parse(text)
    assert caught.value.evidence[0].startswith(text[:5])
