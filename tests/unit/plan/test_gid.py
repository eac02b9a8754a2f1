"""The GID index is chosen by what an entry holds: RoCE v2, the fabric address, the right interface."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.model.fabric import GidEntry, RdmaPort, RoCE
from cluster.model.facts import Address
from cluster.plan.gid import Choice, Flaw, choose, entry_of, flaw_of, member, nccl_choice, table, usable
from tests.fabric import (
    HEAD,
    HEAD_HOLE,
    HEAD_SECOND_LINK_LOCAL,
    HEAD_TWIN_LINK_LOCAL,
    HEAD_TWIN_TWO_ADDRESSES,
    WORKER,
    WORKER_AT_5,
    addresses,
    port,
)

HEAD_HAS = addresses("10.40.0.1@enp1s0f1np1, 10.41.0.1@enP2p1s0f1np1, 10.43.0.1@enP2p1s0f1np1")
WORKER_HAS = addresses("10.40.0.2@enp1s0f0np0")


def head(text: str, device: str = "rocep1s0f1"):
    return member(port(device, text), HEAD_HAS, "10.40.0.1", "enp1s0f1np1")


def worker(text: str):
    return member(port("rocep1s0f0", text), WORKER_HAS, "10.40.0.2", "enp1s0f0np0")


def test_each_rank_gets_the_index_of_its_own_table():
    """NET-01"""
    assert (choose([head(HEAD)], None).index, choose([worker(WORKER_AT_5)], None).index) == (3, 5)


def test_an_empty_slot_is_never_used():
    """NET-01: index 3 is all zero on the worker."""
    assert choose([worker(WORKER_AT_5)], 3) == Choice(5, 3, (("rocep1s0f0", Flaw.EMPTY),))
    assert choose([head(HEAD)], 3) == Choice(3, 3)


def test_a_link_local_entry_at_the_usual_place_is_not_the_fabric_address():
    """NET-02"""
    one = head(HEAD_SECOND_LINK_LOCAL)
    found = entry_of(one.port, 3)
    assert found is not None
    assert (one.usable, flaw_of(3, one), str(found.gid), str(found.kind)) == (
        (5,),
        Flaw.NOT_FABRIC_IP,
        "fe80::b1c2:93ab:5d0e:7a19",
        "RoCE v2",
    )


def test_a_hole_does_not_end_the_search():
    """NET-03"""
    one = head(HEAD_HOLE)
    assert (one.usable, flaw_of(3, one)) == ((4,), Flaw.EMPTY)


def test_one_value_for_all_ranks_fails_where_none_is_good_on_both():
    """NET-04"""
    ranks = (head(HEAD_HOLE), worker(WORKER))
    assert [choose([one], 4).is_sound for one in ranks] == [True, False]
    assert [choose([one], 3).is_sound for one in ranks] == [False, True]
    assert [choose([one], pin).passed for one, pin in zip(ranks, (4, 3), strict=True)] == [4, 3]


def test_ports_of_one_rank_share_one_index():
    """NET-05"""
    members = [head(HEAD), head(HEAD_TWIN_TWO_ADDRESSES, "roceP2p1s0f1")]
    assert [one.usable for one in members] == [(3,), (3, 5)]
    assert choose(members, None).index == 3


def test_ports_that_share_none_are_left_to_nccl_where_it_is_right_on_each():
    members = [head(HEAD_SECOND_LINK_LOCAL), head(HEAD_TWIN_TWO_ADDRESSES, "roceP2p1s0f1")]
    shifted = [head(HEAD_HOLE), head(HEAD_TWIN_TWO_ADDRESSES, "roceP2p1s0f1")]
    assert choose(members, None) == Choice(5, None)
    assert choose(shifted, None) == Choice(None, None)


def test_ports_that_share_none_and_mislead_nccl_disagree():
    link_local_first = """
rocep1s0f1 | 1 | 0 | 0000:0000:0000:0000:0000:ffff:a9fe:0102 | IB/RoCE v1 | enp1s0f1np1
rocep1s0f1 | 1 | 1 | 0000:0000:0000:0000:0000:ffff:a9fe:0102 | RoCE v2 | enp1s0f1np1
rocep1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | enp1s0f1np1
"""
    first, second = head(link_local_first), head(HEAD_TWIN_TWO_ADDRESSES, "roceP2p1s0f1")
    assert choose([first, second], None) == Choice(None, None, disagree=True)
    # alone it is pinned, for NCCL would take the link-local one
    assert choose([first], None) == Choice(4, 4)


def test_neither_the_address_nor_the_type_alone_decides():
    """NET-07: the v1 entry has the same address (2), the link-local one the same type (1)."""
    one = head(HEAD)
    assert (one.usable, flaw_of(2, one), flaw_of(1, one)) == ((3,), Flaw.NOT_V2, Flaw.NOT_FABRIC_IP)


def test_an_interface_without_ipv4_has_no_usable_entry():
    """NET-08: NCCL itself would end on index 0, a v1 link-local one."""
    one = head(HEAD_TWIN_LINK_LOCAL, "roceP2p1s0f1")
    assert (one.own, one.usable) == (0, ())
    assert choose([one], None) == Choice(None, None, (("roceP2p1s0f1", Flaw.NOT_FABRIC_IP),))


def test_an_entry_of_another_interface_is_not_ours():
    text = HEAD + "rocep1s0f1 | 1 | 4 | 0000:0000:0000:0000:0000:ffff:0a28:0001 | RoCE v2 | vlan7\n"
    one = head(text)
    assert (one.usable, flaw_of(4, one)) == ((3,), Flaw.WRONG_INTERFACE)


def test_another_address_of_the_same_interface_does_not_win_over_the_fabric_address():
    text = HEAD_HOLE + "rocep1s0f1 | 1 | 3 | 0000:0000:0000:0000:0000:ffff:a9fe:0102 | RoCE v2 | enp1s0f1np1\n"
    has = (*HEAD_HAS, *addresses("169.254.1.2@enp1s0f1np1"))
    assert usable(port("rocep1s0f1", text), has, "10.40.0.1", "enp1s0f1np1") == (4,)


@pytest.mark.parametrize(
    ("text", "device", "index"),
    [
        (HEAD, "rocep1s0f1", 3),
        (HEAD_HOLE, "rocep1s0f1", 4),
        (HEAD_SECOND_LINK_LOCAL, "rocep1s0f1", 5),
        (HEAD_TWIN_LINK_LOCAL, "roceP2p1s0f1", 0),
        ("", "rocep1s0f1", None),
    ],
)
def test_what_nccl_takes_by_itself_is_known(text, device, index):
    assert nccl_choice(port(device, text)) == index


def test_the_table_marks_what_fits():
    one = head(HEAD)
    assert table("spark-a", [one.port], [one])[2:] == (
        "spark-a  rocep1s0f1:1    2  10.40.0.1  IB/RoCE v1  enp1s0f1np1",
        "spark-a  rocep1s0f1:1    3  10.40.0.1  RoCE v2  enp1s0f1np1  <- fits",
    )


_GIDS = st.sampled_from(
    ["fe80::1", "fe80::b1c2:93ab:5d0e:7a19", "::ffff:10.40.0.1", "::ffff:10.40.0.9", "::ffff:169.254.1.2", "fd00::7"]
)
_ENTRIES = st.builds(
    lambda index, gid, kind, interface: GidEntry(index, IPv6Address(gid), kind, interface),
    st.integers(0, 255),
    _GIDS,
    st.sampled_from(RoCE),
    st.sampled_from(["enp1s0f1np1", "enP2p1s0f1np1", ""]),
)


@given(st.lists(_ENTRIES, max_size=24, unique_by=lambda one: one.index), st.randoms())
def test_only_a_v2_entry_with_the_fabric_address_on_its_interface_is_ever_chosen(entries, random):
    """Any permutation, holes, duplicates: the order of the entries and their places mean nothing."""
    has = (Address("enp1s0f1np1", "10.40.0.1", 24, False, 9000, True),)
    shuffled = random.sample(entries, len(entries))
    ports = [RdmaPort("d", 1, "ACTIVE", gids=tuple(each)) for each in (entries, shuffled)]
    choices = [choose([member(one, has, "10.40.0.1", "enp1s0f1np1")], None) for one in ports]
    right = sorted(
        one.index
        for one in entries
        if one.kind is RoCE.V2 and one.interface == "enp1s0f1np1" and str(one.ipv4) == "10.40.0.1"
    )
    assert choices[0] == choices[1]
    assert choices[0].index == (right[0] if right else None)
    assert choices[0].is_sound == bool(right)
    effective = choices[0].passed if choices[0].passed is not None else nccl_choice(ports[0])
    assert not right or effective in right


@given(st.lists(_ENTRIES, max_size=24, unique_by=lambda one: one.index), st.integers(0, 255))
def test_a_pinned_index_passes_only_where_it_is_right(entries, pin):
    has = (Address("enp1s0f1np1", "10.40.0.1", 24, False, 9000, True),)
    one = member(RdmaPort("d", 1, "ACTIVE", gids=tuple(entries)), has, "10.40.0.1", "enp1s0f1np1")
    assert choose([one], pin).is_sound == (pin in one.usable)
