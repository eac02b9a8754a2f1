"""The stamp of a recipe, and the one table of what is built, pulled, shipped and refused."""

from dataclasses import replace
from itertools import product

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


def test_arguments_of_the_build_move_the_stamp_and_their_order_does_not():
    told = ("BASE=debian@sha256:1", "COMMIT=2")
    assert stamp(FILES, told) == stamp(FILES, reversed(told))
    assert len({stamp(FILES), stamp(FILES, told), stamp(FILES, told[:1])}) == 3


def test_an_umask_does_not_move_the_stamp():
    assert stamp((replace(FILES[0], mode=0o600), replace(FILES[1], mode=0o700))) == stamp(FILES)


def test_an_image_is_held_against_the_label_of_its_recipe():
    labelled = replace(IMAGE, labels=((STAMP_LABEL, "s1"),))
    assert [held(None, "s1"), held(IMAGE, "s1"), held(labelled, "s1"), held(labelled, "s2"), held(IMAGE, "")] == [
        Held.MISSING, Held.STALE, Held.RIGHT, Held.STALE, Held.RIGHT,
    ]  # fmt: skip


NO, DONE, FAILED, FULL = Tried.NOT_YET, Tried.DONE, Tried.FAILED, Tried.NO_ROOM
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
        ({"build": True}, "right", {"worker_equal": True}, Act.REFUSE),
        (RECIPE, "stale", {"pulled": DONE, "built": FAILED, "worker_equal": True}, Act.REFUSE),
        # the head's disk is full
        (RECIPE, "missing", {"pulled": FULL}, Act.REFUSE),
        (RECIPE, "stale", {"pulled": FAILED, "built": FULL}, Act.REFUSE),
        # the worker
        ({}, "right", {}, Act.SHIP),
        ({}, "right", {"pulled": DONE}, Act.PULL_ON_WORKER),
        ({}, "right", {"pulled": DONE, "worker_pulled": FAILED}, Act.SHIP),
        ({}, "right", {"pulled": DONE, "worker_pulled": DONE}, Act.SHIP),
        (RECIPE, "right", {"pulled": FAILED, "built": DONE}, Act.SHIP),
        ({"skip_ship": True}, "right", {}, Act.REFUSE),
        ({}, "right", {"pulled": DONE, "worker_pulled": FULL}, Act.SHIP),  # which takes less, and says how much
        ({}, "right", {"shipped": FULL}, Act.REFUSE),
        ({}, "right", {"shipped": FAILED}, Act.REFUSE),
        ({}, "right", {"shipped": DONE}, Act.REFUSE),
        ({}, "right", {"shipped": DONE, "worker_equal": True}, Act.READY),
    ],
)
def test_what_is_done_about_the_image(wish, head, state, act):
    assert decide(ImageWish(**wish), ImageState(Held(head), **state)).act is act


# What is there: the registry's image against the recipe's stamp ("" is none, "no" does not answer), what a build and a
# shipment come to, and what lies on head and worker before.
WORLD = {"registry": "right", "build": DONE, "ship": DONE, "head": "missing", "worker": False, "worker_pull": DONE}


def acts(wish, world) -> list[str]:
    """All that is done, one after the other, and how it ends."""
    state = ImageState(Held(world["head"]), worker_equal=world["worker"])
    done: list[str] = []
    while len(done) < 10:
        choice = decide(wish, state)
        done.append(choice.act.value)
        match choice.act:
            case Act.PULL if world["registry"] in ("no", "full"):
                state = replace(state, pulled=FAILED if world["registry"] == "no" else FULL)
            case Act.PULL:
                # without a recipe there is no stamp to be held against
                brought = Held(world["registry"]) if wish.has_recipe else Held.RIGHT
                state = replace(state, pulled=DONE, head=brought, worker_equal=False)
            case Act.BUILD:
                state = replace(state, built=world["build"], worker_equal=False)
                state = replace(state, head=Held.RIGHT) if world["build"] is DONE else state
            case Act.PULL_ON_WORKER:
                state = replace(state, worker_pulled=world["worker_pull"], worker_equal=world["worker_pull"] is DONE)
            case Act.SHIP:
                state = replace(state, shipped=world["ship"], worker_equal=world["ship"] is DONE)
            case Act.READY | Act.REFUSE:
                return done
    raise AssertionError(done)


@pytest.mark.parametrize(
    ("wish", "world", "done"),
    [
        # by itself
        ({}, {}, "pull, pull on worker, ready"),
        ({}, {"worker_pull": FAILED}, "pull, pull on worker, ship, ready"),
        ({}, {"registry": "no"}, "pull, refuse"),
        ({}, {"registry": "full"}, "pull, refuse"),
        ({}, {"head": "right"}, "ship, ready"),
        ({}, {"head": "right", "ship": FAILED}, "ship, refuse"),
        ({}, {"head": "right", "ship": FULL}, "ship, refuse"),
        (RECIPE, {}, "pull, pull on worker, ready"),
        (RECIPE, {"registry": "stale"}, "pull, build, ship, ready"),
        (RECIPE, {"registry": "no"}, "pull, build, ship, ready"),
        (RECIPE, {"registry": "no", "build": FAILED}, "pull, build, refuse"),
        (RECIPE, {"registry": "no", "build": FULL}, "pull, build, refuse"),
        (RECIPE, {"head": "stale", "registry": "no", "build": FAILED}, "pull, build, refuse"),
        (RECIPE, {"head": "stale", "registry": "full"}, "pull, refuse"),
        (RECIPE | LOCAL, {}, "build, ship, ready"),
        (RECIPE | LOCAL, {"head": "stale", "worker": True}, "build, ship, ready"),
        (LOCAL, {}, "refuse"),
        # --build
        (RECIPE | {"build": True}, {"head": "right", "worker": True}, "build, ship, ready"),
        (RECIPE | {"build": True}, {"head": "right", "build": FAILED}, "build, refuse"),
        (RECIPE | {"build": True, "skip_build": True}, {}, "build, ship, ready"),
        ({"build": True}, {"head": "right"}, "refuse"),
        # --no-build
        (RECIPE | {"skip_build": True}, {"registry": "stale"}, "pull, pull on worker, ready"),
        (RECIPE | {"skip_build": True}, {"registry": "no"}, "pull, refuse"),
        (RECIPE | {"skip_build": True}, {"registry": "no", "head": "stale"}, "pull, ship, ready"),
        (RECIPE | LOCAL | {"skip_build": True}, {"head": "stale", "worker": True}, "ready"),
        # --pull
        ({"pull": True}, {"head": "right", "worker": True}, "pull, pull on worker, ready"),
        ({"pull": True}, {"head": "right", "worker": True, "registry": "no"}, "pull, ready"),
        ({"pull": True, "skip_pull": True}, {"head": "right"}, "pull, pull on worker, ready"),
        (RECIPE | {"pull": True}, {"head": "right", "registry": "stale"}, "pull, build, ship, ready"),
        (LOCAL | {"pull": True}, {"head": "right"}, "ship, ready"),
        # --no-pull
        ({"skip_pull": True}, {}, "refuse"),
        ({"skip_pull": True}, {"head": "right"}, "ship, ready"),
        (RECIPE | {"skip_pull": True}, {"head": "stale"}, "build, ship, ready"),
        (RECIPE | {"skip_pull": True, "skip_build": True}, {"head": "stale"}, "ship, ready"),
        # --no-ship
        ({"skip_ship": True}, {"head": "right"}, "refuse"),
        ({"skip_ship": True}, {}, "pull, refuse"),
        ({"skip_ship": True}, {"head": "right", "worker": True}, "ready"),
    ],
)
def test_what_is_done_from_the_first_look_to_the_end(wish, world, done):
    assert ", ".join(acts(ImageWish(**wish), WORLD | world)) == done


FLAGS = ("build", "pull", "skip_build", "skip_pull", "skip_ship", "in_registry", "has_recipe")


@pytest.mark.parametrize("flags", list(product((False, True), repeat=len(FLAGS))))
def test_every_wish_in_every_world_ends_and_does_nothing_that_was_forbidden(flags):
    wish = ImageWish(**dict(zip(FLAGS, flags, strict=True)))
    worlds = product(("right", "stale", "no", "full"), (DONE, FAILED, FULL), (DONE, FAILED, FULL), Held, (False, True))
    for registry, build, ship, head, worker in worlds:
        if head is Held.MISSING and worker:
            continue
        done = acts(
            wish,
            {"registry": registry, "build": build, "ship": ship, "head": head, "worker": worker, "worker_pull": ship},
        )
        assert len(set(done)) == len(done)
        assert "build" not in done or (wish.has_recipe and (wish.build or not wish.skip_build))
        assert not {"pull", "pull on worker"} & set(done) or (wish.in_registry and (wish.pull or not wish.skip_pull))
        assert not wish.skip_ship or "ship" not in done
        assert done[-1] in ("ready", "refuse")


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
