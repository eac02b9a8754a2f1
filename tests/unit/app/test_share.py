"""The verb around a backend: look, plan, act, look again, and the proof; on nodes that are dicts."""

import json
from dataclasses import replace

import pytest

from cluster.app.session import Session
from cluster.app.share import Sharing, prospect
from cluster.app.stages import Stages
from cluster.errors import Refused, StepFailed
from cluster.model.checks import Severity
from cluster.model.events import Event, StageEnded, StepStarted
from cluster.model.kit import Sync, Weights
from cluster.model.share import SharedFolder, ShareReport
from cluster.node.base import Result
from cluster.plan.share import want_of
from tests.build import pair
from tests.fakes.node import FakeNode
from tests.fakes.share import FakeShare

END = {"kind": "ext4", "options": "ro,relatime"}


def samples(*files: tuple[str, str]) -> str:
    lines = [{"name": name, "size": 10, "read": 10, "digest": digest} for name, digest in files]
    return "\n".join(json.dumps(one) for one in (*lines, {"files": len(lines), **END}))


class Two:
    """A head and a worker that have these files, and a way to share between them."""

    def __init__(self, backend: FakeShare, head: str, worker: str) -> None:
        self.backend, self.fails = backend, False
        self.events: list[Event] = []
        self.nodes = {"spark-a": self._node("spark-a", head), "spark-b": self._node("spark-b", worker)}
        self.session = Session(pair(), lambda one: self.nodes[one.name], self.events.append).open()

    def _node(self, name: str, said: str) -> FakeNode:
        def act(command):
            if self.fails:
                return Result(1, b"", b"no space left")
            return Result(0, self.backend.answer(name, command).encode(), b"")

        return FakeNode(name, {("seen",): act, ("link",): act, ("unlink",): act, ("python3",): said})

    def sharing(self) -> Sharing:
        stages = Stages(self.events.append, clock=lambda: 0.0)
        made = Sharing(self.session, self.events.append, stages, Sync.INPLACE, want_of(self.session.settings))
        made.backend = self.backend
        return made

    def steps(self) -> list[str]:
        return [f"{one.node}: {one.why}" for one in self.events if isinstance(one, StepStarted)]


FILES = (("config.json", "c"), ("x.safetensors", "x"))


@pytest.fixture
def two() -> Two:
    return Two(FakeShare(), samples(*FILES), samples(*FILES, ("more", "m")))


def test_an_attach_acts_looks_again_and_proves(two):
    assert two.sharing().attach() == ShareReport(
        "demo",
        "inplace",
        "attach",
        1,
        (SharedFolder("the model", "spark-b", "/models/demo", "/models/demo", "linked, on ext4", 2, 20, 30),),
        ("a note",),
    )
    assert two.steps() == ["spark-b: link the model"]
    assert [one.stage for one in two.events if isinstance(one, StageEnded)] == ["share", "prove"]


def test_a_second_attach_only_proves(two):
    two.sharing().attach()
    assert two.sharing().attach().steps == 0


def test_a_detach_takes_it_back_and_has_nothing_to_do_after(two):
    two.sharing().attach()
    assert (two.sharing().detach().steps, two.sharing().detach().steps) == (1, 0)
    assert two.backend.linked == set()


def test_a_refusal_comes_before_any_step(two):
    two.backend.refuses = "no disk"
    with pytest.raises(Refused):
        two.sharing().attach()
    assert two.steps() == []


def test_steps_that_change_nothing_are_not_believed(two):
    two.backend.deaf = True
    with pytest.raises(StepFailed) as failed:
        two.sharing().attach()
    assert failed.value.evidence == ("spark-b: link the model",)
    assert two.steps() == ["spark-b: link the model"] * 3


def test_an_attach_that_was_cut_off_is_gone_on_with(two):
    two.fails = True
    with pytest.raises(StepFailed):
        two.sharing().attach()
    two.fails = False
    assert two.sharing().attach().steps == 1


def test_two_seeds_are_never_the_same(two):
    two.sharing().attach()
    two.sharing().attach()
    asked = [json.loads(one.argv[-1])["seed"] for one in two.nodes["spark-b"].commands if one.argv[0] == "python3"]
    assert len(set(asked)) == 2


def test_what_is_not_the_heads_is_refused_by_name():
    two = Two(FakeShare(), samples(*FILES), samples(("config.json", "c"), ("x.safetensors", "other")))
    with pytest.raises(Refused) as refused:
        two.sharing().attach()
    assert refused.value.where == "spark-b:/models/demo"
    assert refused.value.evidence == ("x.safetensors: its content is not the head's",)


def test_a_head_without_weights_has_nothing_to_share():
    two = Two(FakeShare(), samples(), samples())
    with pytest.raises(Refused) as refused:
        two.sharing().attach()
    assert refused.value.what == "the head has no weights to share"


def test_a_check_says_what_is_in_the_way_and_changes_nothing():
    two = Two(FakeShare(), "", "")
    settings = replace(pair(), weights=Weights(sync=Sync.INPLACE))
    two.session.settings = settings
    missing = {"path": "/models/demo", "kind": "ext4", "problem": "is not there"}
    for name in two.nodes:
        two.nodes[name] = FakeNode(name, {("python3",): json.dumps({"model": missing})})
    two.session.nodes = dict(two.nodes)
    finding = prospect(two.session, two.events.append)
    assert (finding.id, finding.severity) == ("SHARE.PLAN", Severity.REFUSAL)
    assert finding.details == ("spark-a:/models/demo: is not there", "spark-b:/models/demo: is not there")
