"""Who does not answer on the wire, as the kernel's own table of neighbours tells it."""

from __future__ import annotations

import errno

import pytest

from cluster.agent.nfs_client import is_cut, is_unanswered

TABLE = """\
IP address       HW type     Flags       HW address            Mask     Device
10.77.0.1        0x1         0x0         52:54:00:77:01:03     *        enp1s0f1np1
10.77.0.3        0x1         0x2         52:54:00:77:03:03     *        enp1s0f1np1
"""


@pytest.mark.parametrize(
    ("server", "expected"), [("10.77.0.1", True), ("10.77.0.3", False), ("10.77.0.10", False), ("spark-a", False)]
)
def test_a_neighbour_that_did_not_answer_is_told_from_one_that_rejects(server: str, expected: bool) -> None:
    assert is_unanswered(server, TABLE) is expected


def test_a_kernel_without_such_a_table_tells_nothing() -> None:
    assert not is_unanswered("10.77.0.1", "")


def test_a_worker_without_a_way_is_cut_off_and_one_that_is_forbidden_is_not() -> None:
    codes = (errno.ENETUNREACH, errno.EACCES, errno.ECONNRESET)
    assert [is_cut(code, "10.77.0.1") for code in codes] == [True, False, False]
