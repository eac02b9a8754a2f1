"""Which addresses are this machine's."""

import pytest

from cluster.node.local import is_local_address


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.1.1", "::1", "[::1]", "localhost"])
def test_loopback_is_here(text: str) -> None:
    assert is_local_address(text)


@pytest.mark.parametrize("text", ["192.0.2.1", "2001:db8::1", "", "a" * 70])
def test_documentation_addresses_and_nonsense_are_not(text: str) -> None:
    assert not is_local_address(text)
