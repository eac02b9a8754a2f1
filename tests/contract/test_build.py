"""`sparkctl image build` with a real engine's BuildKit, from a real checkout; the base is made here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.app.build import Recipe, read_recipe
from cluster.app.session import Session
from cluster.errors import Refused, StepFailed
from cluster.model.events import Progress
from tests.contract import dockerd
from tests.contract.checkout import SAY, Checkout

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(dockerd.missing() is not None, reason=f"not run: {dockerd.missing()}"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dockerd.Dockerd]:
    with dockerd.Dockerd(tmp_path_factory.mktemp("dockerd")) as running:
        running.run("load", data=dockerd.busybox_image("base:1"))
        yield running


@pytest.fixture
def recipe(daemon: dockerd.Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    monkeypatch.setenv("HOME", str(tmp_path))
    yield Checkout(tmp_path, daemon).lay()
    daemon.run("rmi", "-f", "ours:1", check=False)


def test_an_image_is_built_once_and_has_the_stamp_of_its_recipe(recipe):
    said = recipe.build()
    assert said == f"built from the recipe with the stamp {recipe.stamp[:12]}"
    assert recipe.inside("cat /said; ls /steps") == "none\nsay.sh\n"
    steps = [(one.current, one.total, one.unit) for one in recipe.events if isinstance(one, Progress)]
    assert steps[-1] == (3, 3, "steps")
    identity = recipe.image["Id"]
    assert recipe.build() == f"head has the image of this recipe, stamp {recipe.stamp[:12]}: nothing was built"
    assert recipe.image["Id"] == identity


def test_it_is_buildkit_that_builds(recipe):
    recipe.build()
    history = recipe.daemon.run("history", "--no-trunc", "--format", "{{.CreatedBy}} {{.Comment}}", "ours:1").stdout
    if any("older builder" in one for one in recipe.told):
        assert b"buildkit" not in history
        pytest.skip("not run: no docker command here can do BuildKit: a newer one without buildx")
    assert b"buildkit" in history


def test_only_what_the_recipe_takes_moves_the_stamp_and_only_that_gets_in(recipe):
    recipe.build()
    first = recipe.image["Id"]
    assert recipe.verify() == (f"the image is the recipe's, stamp {recipe.stamp[:12]}",)
    recipe.write("README.md", "changed")
    recipe.write("steps/__pycache__/say.cpython-311.pyc", "junk")
    recipe.write("steps/notes.txt", "git does not know it")
    assert "nothing was built" in recipe.build()
    recipe.build(again=True)
    assert recipe.image["Id"] == first, "built again from the same files, it is the same image"
    assert [one for one in recipe.told if "builder" not in one] == [
        "base:1 has no digest: the next build may start from another image",
        "git does not know steps/notes.txt: not in the image, and not in its stamp",
    ]
    assert recipe.inside("ls /steps") == "say.sh\n"
    recipe.git("add", "steps/notes.txt")
    (stale,) = recipe.verify()
    assert stale.startswith("the image on head does not have the recipe's stamp")
    recipe.build()
    assert recipe.inside("ls /steps") == "notes.txt\nsay.sh\n"


def test_a_mode_and_an_argument_move_the_stamp(recipe):
    recipe.build()
    stamps = [recipe.stamp]
    recipe.build("BASE=base:1", "WORD=hello")
    stamps.append(recipe.stamp)
    assert recipe.inside("cat /said") == "hello\n"
    recipe.write("steps/say.sh", SAY, 0o644)
    with pytest.raises(StepFailed):  # its step cannot be run any more
        recipe.build("BASE=base:1", "WORD=hello")
    assert recipe.stamp in stamps
    assert len(set(stamps)) == 2


def test_a_step_that_fails_is_told_with_its_last_lines_and_the_whole_log(recipe):
    recipe.write("steps/say.sh", "#!/bin/sh\necho first; echo the reason >&2; exit 3\n", 0o755)
    with pytest.raises(StepFailed) as caught:
        recipe.build()
    assert caught.value.where == "head"
    assert any("the reason" in line for line in caught.value.evidence)
    assert caught.value.fix == "the whole log: head:~/.cache/sparkctl/builds/ours_1.log"
    assert "the reason" in (recipe.folder / ".cache/sparkctl/builds/ours_1.log").read_text()


def test_a_file_that_changes_while_it_is_sent_is_not_built_in(recipe, monkeypatch):
    """What was counted is what is built: here it changes between the two."""

    def late(session: Session) -> Recipe:
        found = read_recipe(session)
        recipe.write("steps/say.sh", SAY + "# changed", 0o755)
        return found

    monkeypatch.setattr("cluster.app.image.read_recipe", late)
    with pytest.raises(StepFailed) as caught:
        recipe.build()
    assert (caught.value.what, caught.value.evidence) == (
        "a file of the recipe changed while it was read", ("changed while it was read: steps/say.sh",),
    )  # fmt: skip
    assert recipe.daemon.run("image", "inspect", "ours:1", check=False).returncode == 1


@pytest.mark.parametrize(
    ("words", "evidence"),
    [
        (("WORD=x",), "BASE is not given: Where to start: an image of this machine."),
        (("BASE=base:1", "WROD=x"), "WROD is no argument of it; it has BASE, WORD"),
        (
            ("BASE=base:1", "API_TOKEN=x"),
            "API_TOKEN looks like a secret: everybody who has the image can read its arguments",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_before_the_builder_is_asked(recipe, words, evidence):
    with pytest.raises(Refused) as caught:
        recipe.build(*words)
    assert caught.value.evidence == (evidence,)
    assert recipe.daemon.run("image", "inspect", "ours:1", check=False).returncode == 1


def test_a_name_with_a_digest_cannot_be_built(recipe):
    recipe.name = f"ours@sha256:{'1' * 64}"
    with pytest.raises(Refused) as caught:
        recipe.build()
    assert caught.value.what == "IMAGE names a digest, and what a build comes to is not known before"
