"""The stamp of a recipe, and the one table of what is built, pulled, shipped and refused."""

from dataclasses import replace

import pytest

from cluster.model.containers import ImageSeen
from cluster.model.units import Bytes
from cluster.plan.image import (
    STAMP_LABEL,
    Act,
    Held,
    ImageState,
    ImageWish,
    RecipeFile,
    Tried,
    decide,
    held,
    image_key,
    missing_layers,
    stamp,
)

FILES = (RecipeFile("Dockerfile", 0o644, "a" * 64), RecipeFile("steps/build.sh", 0o755, "b" * 64))
IMAGE = ImageSeen("sha256:1", ("x:1",), (), ("sha256:aa", "sha256:bb"), "arm64", "linux", (), Bytes(9), "overlay2")


def test_the_order_in_which_files_are_found_does_not_move_the_stamp():
    assert stamp(FILES) == stamp(reversed(FILES))


@pytest.mark.parametrize(
    "path", ["steps/__pycache__/build.cpython-311.pyc", "a.pyc", "librow.so", "x~", ".git/index", "steps/.b.swp"]
)
def test_junk_does_not_move_the_stamp(path):
    assert stamp((*FILES, RecipeFile(path, 0o644, "c" * 64))) == stamp(FILES)


@pytest.mark.parametrize(
    "changed",
    [
        replace(FILES[1], digest="c" * 64),
        replace(FILES[1], path="steps/built.sh"),
        replace(FILES[1], mode=0o644),
    ],
)
def test_content_name_and_x_bit_each_move_the_stamp(changed):
    assert stamp((FILES[0], changed)) != stamp(FILES)


def test_an_umask_does_not_move_the_stamp():
    assert stamp((replace(FILES[0], mode=0o600), replace(FILES[1], mode=0o700))) == stamp(FILES)


def test_an_image_is_held_against_the_label_of_its_recipe():
    labelled = replace(IMAGE, labels=((STAMP_LABEL, "s1"),))
    assert [held(None, "s1"), held(IMAGE, "s1"), held(labelled, "s1"), held(labelled, "s2"), held(IMAGE, "")] == [
        Held.MISSING, Held.STALE, Held.RIGHT, Held.STALE, Held.RIGHT,
    ]  # fmt: skip


NO, DONE, FAILED = Tried.NOT_YET, Tried.DONE, Tried.FAILED
RECIPE = {"has_recipe": True}
LOCAL = {"in_registry": False}


@pytest.mark.parametrize(
    ("wish", "head", "state", "act"),
    [
        # nothing to do
        ({}, "right", {"worker_equal": True}, Act.READY),
        ({"skip_pull": True, "skip_build": True, "skip_ship": True}, "right", {"worker_equal": True}, Act.READY),
        # the head: pull before build
        ({}, "missing", {}, Act.PULL),
        (RECIPE, "stale", {}, Act.PULL),
        (RECIPE, "stale", {"pulled": DONE}, Act.BUILD),
        (RECIPE, "stale", {"pulled": FAILED}, Act.BUILD),
        (RECIPE | LOCAL, "missing", {}, Act.BUILD),
        (RECIPE | {"skip_pull": True}, "missing", {}, Act.BUILD),
        # the head: what the flags forbid or ask for
        ({"skip_pull": True}, "missing", {}, Act.REFUSE),
        (RECIPE | {"skip_build": True}, "missing", {"pulled": FAILED}, Act.REFUSE),
        (RECIPE | {"skip_build": True}, "stale", {"pulled": FAILED, "worker_equal": True}, Act.READY),
        ({}, "missing", {"pulled": FAILED}, Act.REFUSE),
        ({"pull": True}, "right", {}, Act.PULL),
        ({"pull": True, "skip_pull": True}, "right", {}, Act.PULL),
        ({"pull": True}, "right", {"pulled": FAILED, "worker_equal": True}, Act.READY),
        ({"build": True} | RECIPE, "right", {"worker_equal": True}, Act.BUILD),
        ({"build": True} | RECIPE, "right", {"built": FAILED, "worker_equal": True}, Act.REFUSE),
        ({"build": True} | RECIPE, "right", {"built": DONE}, Act.SHIP),
        # the worker
        ({}, "right", {}, Act.SHIP),
        ({}, "right", {"pulled": DONE}, Act.PULL_ON_WORKER),
        ({}, "right", {"pulled": DONE, "worker_pulled": FAILED}, Act.SHIP),
        ({}, "right", {"pulled": DONE, "worker_pulled": DONE}, Act.SHIP),
        (RECIPE, "right", {"pulled": FAILED, "built": DONE}, Act.SHIP),
        ({"skip_ship": True}, "right", {}, Act.REFUSE),
        ({}, "right", {"room": False}, Act.REFUSE),
        ({}, "right", {"shipped": FAILED}, Act.REFUSE),
        ({}, "right", {"shipped": DONE}, Act.REFUSE),
        ({}, "right", {"shipped": DONE, "worker_equal": True}, Act.READY),
    ],
)
def test_what_is_done_about_the_image(wish, head, state, act):
    assert decide(ImageWish(**wish), ImageState(Held(head), **state)).act is act


def test_a_missing_image_says_what_registry_and_recipe_said():
    refused = decide(ImageWish(has_recipe=True, skip_build=True), ImageState(Held.MISSING, pulled=FAILED))
    assert refused.why == "no image on the head: the pull failed, and --no-build forbids to build it"


def test_a_stale_image_that_may_not_be_built_is_used_and_said():
    wish = ImageWish(has_recipe=True, skip_build=True, skip_pull=True)
    choice = decide(wish, ImageState(Held.STALE, worker_equal=True))
    assert (choice.act, choice.warning) == (Act.READY, "the image does not have the recipe's stamp")


def test_the_key_of_an_image_is_that_of_its_layers():
    assert image_key(IMAGE) == image_key(replace(IMAGE, id="sha256:9", digests=("r@sha256:1",)))
    assert image_key(IMAGE) != image_key(replace(IMAGE, layers=("sha256:bb", "sha256:aa")))


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        ((), ("a", "b", "c")),
        ((("a", "b", "c", "d"),), ()),
        ((("a", "x"), ("a", "b")), ("c",)),
        ((("b", "c"),), ("a", "b", "c")),  # without what is below it, a layer is another one
    ],
)
def test_layers_are_sent_from_where_the_chain_ends(there, sent):
    assert missing_layers(("a", "b", "c"), there) == sent
