"""What a start does about the image, with a real engine, registry and build: who says no, and what follows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.errors import Refused, StepFailed
from tests.contract import dockerd, registry
from tests.contract.checkout import Checkout
from tests.contract.sshd import free_port

WHY = dockerd.missing() or registry.missing()
pytestmark = [pytest.mark.contract, pytest.mark.skipif(WHY is not None, reason=f"not run: {WHY}")]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        running.run("load", data=dockerd.busybox_image("base:1"))
        yield running


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registry.Registry]:
    with registry.Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def head(
    daemon: dockerd.Dockerd, published: registry.Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Checkout]:
    """A head whose image has a name in the registry, which has none yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Checkout(tmp_path, daemon, f"{published.address}/ours/{tmp_path.name.lower().strip('_')}:1").lay()
    yield made
    daemon.run("rmi", "-f", made.name, check=False)


def publish(head: Checkout) -> None:
    """As somebody else would: the registry has it, and the head does not any more."""
    head.build()
    head.daemon.run("push", head.name)
    head.daemon.run("rmi", "-f", head.name)


def edit(head: Checkout) -> None:
    head.write("steps/say.sh", "#!/bin/sh\nset -eu\necho edited > /said\n", 0o755)


def test_what_the_registry_has_is_pulled_and_not_built(head):
    publish(head)
    assert head.bring() == "pull"
    assert head.bring() == ""
    assert head.bring(pull=True) == "pull"
    assert head.bring(build=True) == "build"


def test_what_is_stale_in_the_registry_is_built(head):
    publish(head)
    edit(head)
    assert head.bring() == "pull, build"
    assert head.inside("cat /said") == "edited\n"


def test_what_the_registry_does_not_have_is_built(head):
    assert head.bring() == "pull, build"
    assert any("not found" in one or "unknown" in one for one in head.told), head.told


def test_a_registry_that_does_not_answer_is_told_and_the_recipe_is_built(head):
    head.name = f"127.0.0.1:{free_port()}/ours:1"
    assert head.bring() == "pull, build"
    assert any("connection refused" in one for one in head.told), head.told
    head.daemon.run("rmi", "-f", head.name)


def test_what_may_not_be_built_is_refused_with_both_reasons(head):
    with pytest.raises(Refused) as caught:
        head.bring(skip_build=True)
    assert head.acts == "pull"
    assert caught.value.what == "no image on the head: the pull failed, and --no-build forbids to build it"


def test_no_pull_asks_no_registry(head):
    publish(head)
    assert head.bring(skip_pull=True) == "build"
    head.daemon.run("rmi", "-f", head.name)
    with pytest.raises(Refused) as caught:
        head.bring(skip_pull=True, skip_build=True)
    assert (head.acts, caught.value.what) == (
        "", "no image on the head: --no-pull forbids to pull it, and --no-build forbids to build it",
    )  # fmt: skip


def test_a_stale_image_that_may_not_be_made_anew_is_used_and_said(head):
    head.build()
    edit(head)
    assert head.bring(skip_pull=True, skip_build=True) == ""
    assert head.told == [f"{head.name}: the image does not have the recipe's stamp"]


def test_after_a_build_that_failed_the_image_that_was_there_is_not_taken_for_it(head):
    head.build()
    head.write("steps/say.sh", "#!/bin/sh\necho the reason >&2\nexit 1\n", 0o755)
    with pytest.raises(StepFailed) as caught:
        head.bring(skip_pull=True)
    assert any("the reason" in line for line in caught.value.evidence)
    assert head.acts == "build"
