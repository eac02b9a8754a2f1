import pytest

from cluster.agent.look import state_of


@pytest.mark.parametrize(
    ("launched", "ended", "shim", "family", "state"),
    [
        (False, False, False, False, "prepared"),
        (True, False, True, True, "alive"),
        (True, True, True, True, "exited"),
        (True, True, False, False, "exited"),
        (True, False, False, True, "orphaned"),
        (False, False, False, True, "orphaned"),
        (True, True, False, True, "orphaned"),
        (True, False, False, False, "vanished"),
    ],
)
def test_the_state_follows_from_records_and_processes(launched, ended, shim, family, state):
    assert state_of(launched, ended, shim, family) == state
