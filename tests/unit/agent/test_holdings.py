"""The holdings program on folders of its own: who uses one, and that only what is named and unused goes."""

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cluster.agent.holdings import main


class Node:
    """A state folder with notes, and folders of weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = folder / "notes"
        self.registry.mkdir()

    def fetched(self, name: str, **files: bytes) -> Path:
        path = self.folder / name
        (path / ".sparkctl" / "parts").mkdir(parents=True)
        for one, data in files.items():
            (path / one).write_bytes(data)
        manifest = {"repo": "org/m", "revision": "0123abc", "files": {one: {"size": 1} for one in files}}
        (path / ".sparkctl" / "manifest.json").write_text(json.dumps(manifest))
        (self.registry / f"{name}.json").write_text(json.dumps({"path": str(path)}))
        return path

    def ask(self, *folders: Path, remove: tuple[Path, ...] = (), pin: tuple[Path, str] | None = None) -> dict[str, Any]:
        told = main(
            {
                "registry": str(self.registry),
                "folders": [str(one) for one in folders],
                "pin": {"path": str(pin[0]), "text": pin[1]} if pin else None,
                "remove": [str(one) for one in remove],
            }
        )
        return {Path(one["path"]).name: one for one in told}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_fetched_and_named_folders_are_told_with_what_they_hold(node):
    old = node.fetched("old", a=b"12345", b=b"1")
    (old / ".sparkctl" / "parts" / "c.part").write_bytes(bytes(7))
    other = node.folder / "other"
    other.mkdir()
    (other / "x").write_bytes(bytes(3))
    told = node.ask(other)
    assert [(one["named"], one["repo"], one["files"], one["size"], one["partial"]) for one in told.values()] == [
        (True, "", 1, 3, 0),
        (False, "org/m", 2, 6, 7),
    ]


def test_a_process_that_has_a_file_open_is_named(node):
    old = node.fetched("old", a=b"12345")
    holding, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        with (old / "a").open("rb"):
            os.write(held, b"x")
            signal.pause()
        os._exit(0)
    try:
        os.read(holding, 1)
        assert [f"(pid {pid})" in one for one in node.ask()["old"]["claims"]] == [True]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_what_goes_is_what_the_manifest_names(node):
    old = node.fetched("old", a=bytes(8192), b=b"1")
    (old / "notes.txt").write_text("mine")
    (node.folder / "kept").hardlink_to(old / "a")
    told = node.ask(remove=(old,))["old"]
    assert (told["detail"], sorted(one.name for one in old.rglob("*"))) == ("", ["notes.txt"])
    assert (told["freed"] < 8192, (node.folder / "kept").read_bytes(), list(node.registry.iterdir())) == (
        True,
        bytes(8192),
        [],
    )


def test_a_folder_with_nothing_else_goes_too(node):
    old = node.fetched("old", a=bytes(8192))
    assert (node.ask(remove=(old,))["old"]["freed"], old.exists()) == (8192, False)


def test_a_manifest_that_leads_out_of_the_folder_removes_nothing_there(node):
    old = node.fetched("old")
    (node.folder / "precious").write_text("x")
    files: dict[str, dict[str, int]] = {"../precious": {}, str(node.folder / "precious"): {}, "a/../../precious": {}}
    (old / ".sparkctl" / "manifest.json").write_text(json.dumps({"repo": "org/m", "files": files}))
    node.ask(remove=(old,))
    assert (node.folder / "precious").exists()


def test_a_pinned_folder_stays(node):
    old = node.fetched("old", a=b"1")
    assert node.ask(pin=(old, "to compare"))["old"]["pin"] == "to compare"
    assert (node.ask(remove=(old,))["old"]["detail"], (old / "a").exists()) == ("pinned", True)
    assert node.ask(pin=(old, ""))["old"]["pin"] == ""


def test_a_folder_that_somebody_changes_stays_and_he_is_named(node):
    old = node.fetched("old", a=b"1")
    lease = old / ".sparkctl" / "lease"
    lease.write_text(json.dumps({"command": "sparkctl fetch", "user": "ann", "host": "spark-a"}))
    assert node.ask()["old"]["lease"] == ""
    with lease.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = node.ask(remove=(old,))["old"]
    assert told["lease"] == "`sparkctl fetch` by ann on spark-a"
    assert (told["detail"], (old / "a").exists()) == ("being changed: `sparkctl fetch` by ann on spark-a", True)


def test_a_folder_that_is_shared_stays_until_the_share_is_taken_back(node):
    path = node.fetched("m", a=b"a")
    tree = path / ".sparkctl" / "export" / "sparkctl-demo-model.0f3a"
    tree.mkdir(parents=True)
    assert node.ask(remove=(path,))["m"]["claims"] == ["shared over NFS as sparkctl-demo-model.0f3a"]
    assert (path / "a").exists()
    tree.rmdir()
    node.ask(remove=(path,))
    assert not (path / "a").exists()
