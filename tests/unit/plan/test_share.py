import json
from dataclasses import replace

import pytest

from cluster.errors import SettingsError, Unreadable
from cluster.model.kit import Image
from cluster.model.settings import Launch, RuntimeKind
from cluster.plan.share import Sample, Samples, parse_samples, unlike, want_of
from cluster.share.base import Folder, ReadThrough
from tests.build import pair


def with_nodes(settings, *, head=None, worker=None):
    a, b = settings.nodes
    return replace(settings, nodes=(replace(a, **(head or {})), replace(b, **(worker or {}))))


def test_a_native_rank_reads_the_common_path():
    want = want_of(with_nodes(pair(), head={"model": "/data/m"}, worker={"model": "/srv/m"}))
    assert want.folders == (Folder("the model", "model", "/data/m", {"spark-b": "/models/demo"}),)
    assert not want.in_containers


def test_a_container_may_have_its_folders_from_anywhere():
    boxed = replace(pair(), launch=Launch(runtime=RuntimeKind.CONTAINER), image=Image(name="img:1"))
    head, worker = {"model": "/data/m", "engram": "/data/e"}, {"model": "/srv/m", "engram": "/srv/e"}
    want = want_of(with_nodes(boxed, head=head, worker=worker))
    assert want.folders == (
        Folder("the model", "model", "/data/m", {"spark-b": "/srv/m"}, "/models/demo"),
        Folder("the Engram tables", "engram", "/data/e", {"spark-b": "/srv/e"}, "/engram-src"),
    )
    assert (want.image, want.engine) == ("img:1", "/var/run/docker.sock")


def test_tables_without_a_folder_on_every_node_are_not_shared():
    assert len(want_of(with_nodes(pair(), head={"engram": "/data/e"})).folders) == 1


def test_without_a_worker_there_is_nobody_to_share_with():
    alone = replace(pair(), nodes=pair().nodes[:1])
    with pytest.raises(SettingsError):
        want_of(alone)


def test_samples_are_held_against_the_heads_by_name_size_and_content():
    head = {
        name: Sample(name, 100, 100, "d") for name in ("same", "gone", "short", "other", "closed")
    }  # fmt: skip
    there = {
        "same": Sample("same", 100, 100, "d"),
        "short": Sample("short", 99, 99, "d"),
        "other": Sample("other", 100, 100, "e"),
        "closed": Sample("closed", error="Permission denied"),
        "more": Sample("more", 1, 1, "f"),
    }
    assert unlike(head, there) == (
        "gone: is not there",
        "short: 99 bytes, the head has 100",
        "other: its content is not the head's",
        "closed: Permission denied",
    )


def test_an_answer_that_ends_too_early_is_none():
    line = json.dumps({"name": "a", "size": 1, "read": 1, "digest": "d"})
    end = '"kind": "nfs4", "options": "ro,vers=4.2"}'
    mount = ReadThrough("nfs4", ("ro", "vers=4.2"))
    assert parse_samples(f'{line}\n{{"files": 1, {end}', "b") == Samples({"a": Sample("a", 1, 1, "d")}, mount)
    for text in (line, f'{line}\n{{"files": 2, {end}', ""):
        with pytest.raises(Unreadable):
            parse_samples(text, "b")
