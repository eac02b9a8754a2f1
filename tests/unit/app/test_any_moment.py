"""What must hold whatever goes wrong, and whenever: a start ends, not as a success that is none, and leaves no mess."""

from collections.abc import Callable, Iterator

import pytest

from cluster.app.agents import source
from cluster.app.start import start
from cluster.app.status import status
from cluster.app.stop import stop
from cluster.errors import Exit, Interrupted, SparkctlError, Unreachable
from cluster.model.deployment import State
from cluster.model.settings import NodeSettings, Watch
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Node, Result
from tests.build import pair
from tests.fakes.cluster import FakeCluster
from tests.fakes.node import FakeNode

QUICK = Watch(hang_seconds=Seconds(15), ready_timeout=Seconds(40))
PATIENT = Watch(hang_seconds=Seconds(200), ready_timeout=Seconds(200))


def begin(cluster: FakeCluster, open_one: Callable[[NodeSettings], Node] | None = None) -> int:
    """The exit code."""
    try:
        start(cluster.settings, open_one or cluster.open, cluster.emit, pace=cluster.pace)
    except SparkctlError as error:
        return error.exit
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    return Exit.DONE


@pytest.mark.parametrize("fault", ["exits 0", "exits 1", "killed 9", "killed 15", "freezes ", "stopped "])
@pytest.mark.parametrize("rank", [0, 1])
def test_whatever_a_rank_does_before_it_serves_is_a_failure_that_leaves_nothing(fault, rank):
    for at in range(7):
        cluster = FakeCluster(pair(watch=QUICK))
        cluster.plays(rank, f"{at} {fault}")
        code = begin(cluster)
        known = {Exit.RANK_DIED, Exit.HUNG, Exit.OUT_OF_TIME}
        assert (code in known, cluster.living()) == (True, []), (at, code)
        assert cluster.clock() <= 45


@pytest.mark.parametrize("fault", ["exits 1", "killed 9"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_dead_rank_is_known_within_fifteen_seconds(fault, rank):
    for at in range(7):
        cluster = FakeCluster(pair(watch=PATIENT))
        cluster.plays(rank, f"{at} {fault}")
        assert begin(cluster) == Exit.RANK_DIED
        assert cluster.clock() - at <= 15


@pytest.mark.parametrize("node", ["spark-a", "spark-b"])
def test_a_node_lost_at_any_second_is_unknown_and_left_alone(node):
    for at in range(1, 6):
        cluster = FakeCluster(pair(watch=PATIENT))
        cluster.loses(node, at=at)
        assert begin(cluster) == Exit.UNREACHABLE
        assert len(cluster.living()) == 2


class CtrlC:
    """Opens nodes on which Ctrl-C comes at the n-th command: before it, or after it had its effect."""

    def __init__(self, cluster: FakeCluster, number: int, *, after: bool) -> None:
        self._cluster = cluster
        self._left = number
        self._after = after

    @property
    def came(self) -> bool:
        return self._left < 0

    def open(self, settings: NodeSettings) -> Node:
        node = self._cluster.open(settings)
        assert isinstance(node, FakeNode)
        answer = self._cluster[settings.name].answer
        node.answers = {("python3",): lambda command: self._answer(command, answer)}
        return node

    def _answer(self, command: Command, answer: Callable[[Command], Result]) -> Result:
        if command.stdin == source("lock"):  # its thread is not the one that Ctrl-C ends
            return answer(command)
        self._left -= 1
        if self._left == -1 and not self._after:
            raise KeyboardInterrupt
        result = answer(command)
        if self._left == -1:
            raise KeyboardInterrupt
        return result


def moments(*, after: bool) -> Iterator[tuple[FakeCluster, int]]:
    """A start that is interrupted at its first command, one at its second, until there are no more."""
    for number in range(200):
        cluster = FakeCluster(pair(watch=PATIENT))
        ctrl_c = CtrlC(cluster, number, after=after)
        code = begin(cluster, ctrl_c.open)
        if not ctrl_c.came:
            assert code == Exit.DONE
            return
        assert code == Exit.INTERRUPTED, number
        yield cluster, number
    raise AssertionError("a start of two hundred commands")


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_at_any_command_leaves_all_ranks_or_none_and_the_next_start_goes_on(after):
    count = 0
    for cluster, number in moments(after=after):
        assert len(cluster.living()) in (0, 2), (number, cluster.acts)
        assert begin(cluster) == Exit.DONE, number
        assert status(cluster.settings, cluster.open).state is State.SERVING
        count += 1
    assert count > 15


@pytest.mark.parametrize("after", [False, True])
def test_ctrl_c_at_any_command_leaves_what_the_next_stop_understands(after):
    for cluster, number in moments(after=after):
        stop(cluster.settings, cluster.open, cluster.emit, cluster.pace)
        assert cluster.living() == [], number


def test_only_a_start_that_waits_leaves_its_ranks_and_says_so():
    cluster = FakeCluster(pair(watch=PATIENT))
    cluster.interrupted(at=2)
    with pytest.raises(Interrupted):
        start(cluster.settings, cluster.open, cluster.emit, pace=cluster.pace)
    assert len(cluster.living()) == 2


def test_a_node_that_is_lost_at_any_command_never_makes_a_success():
    for number in range(200):
        cluster = FakeCluster(pair(watch=QUICK))
        lost = _LostAt(cluster, number)
        code = begin(cluster, lost.open)
        if not lost.came:
            assert code == Exit.DONE
            return
        assert code == Exit.UNREACHABLE or (code in (Exit.DONE, Exit.HUNG, Exit.OUT_OF_TIME) and lost.while_waiting)
    raise AssertionError("a start of two hundred commands")


class _LostAt(CtrlC):
    """The connection breaks at the n-th command, once; it can be made anew."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        super().__init__(cluster, number, after=False)
        self.while_waiting = False

    def _answer(self, command: Command, answer: Callable[[Command], Result]) -> Result:
        try:
            return super()._answer(command, answer)
        except KeyboardInterrupt:
            self.while_waiting = "watch" in command.argv
            raise Unreachable("the connection was lost") from None
