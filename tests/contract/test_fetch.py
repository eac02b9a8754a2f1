"""`sparkctl fetch` and `verify` as processes, through the real client, from a hub on loopback that fails as hubs do."""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.hub_process import CHUNK
from tests.contract.checkpoint import write_checkpoint
from tests.contract.hub import COMMIT, Hub

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
REPO = "org/model"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
LARGE = 24 << 20


def shard(*tensors: str, size: int) -> bytes:
    each = size // len(tensors)
    entries = {
        name: {"dtype": "U8", "shape": [each], "data_offsets": [at * each, (at + 1) * each]}
        for at, name in enumerate(tensors)
    }
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(each * len(tensors))


def model(large: int = 3 << 20) -> dict[str, bytes]:
    weight_map = {"a": ONE, "b": TWO, "c": TWO}
    return {
        ONE: shard("a", size=large),
        TWO: shard("b", "c", size=1 << 20),
        "model.safetensors.index.json": json.dumps({"weight_map": weight_map}).encode(),
        "config.json": b'{"model_type": "llama"}',
        "tokenizer.json": b"{}",
        "README.md": b"# Model",
        "original/consolidated.safetensors": shard("a", size=1 << 20),
    }


NEEDED = {ONE, TWO, "model.safetensors.index.json", "config.json", "tokenizer.json"}


@dataclass
class Place:
    """A head and a worker that are this machine, with folders of their own."""

    folder: Path
    settings: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def model(self) -> Path:
        return self.folder / "model"

    def begin(self, verb: str, *words: str, **more: str) -> "subprocess.Popen[str]":
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SPARKCTL_", "_SPARK", "HF_"))
        }
        sets = [each for one in (self.settings | more).items() for each in ("--set", "=".join(one))]
        process = subprocess.Popen(
            [sys.executable, "-m", "cluster", verb, "--json", *words, *sets],
            cwd=self.folder,
            env=kept | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(self.folder / "log")} | self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def run(self, verb: str, *words: str, **more: str) -> tuple[int, list[dict[str, Any]]]:
        process = self.begin(verb, *words, **more)
        out, err = process.communicate(timeout=120)
        assert err == ""
        return process.returncode, [json.loads(line) for line in out.splitlines()]

    def fetch(self, *words: str, **more: str) -> tuple[int, list[dict[str, Any]]]:
        return self.run("fetch", "--reserve", "0", *words, **more)

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.model)): path.read_bytes()
            for path in self.model.rglob("*")
            if path.is_file() and not path.relative_to(self.model).parts[0].startswith(".")
        }

    def parts(self) -> list[Path]:
        return list((self.model / ".sparkctl" / "parts").glob("*"))

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    head = {"HEAD_IP": "127.0.0.1", "HEAD_SSH": "local", "HEAD_STATE_DIR": str(tmp_path / "state0")}
    worker = {"WORKER_IP": "127.0.0.1", "WORKER_SSH": "local", "WORKER_STATE_DIR": str(tmp_path / "state1")}
    where = {"MODEL_DIR": str(tmp_path / "model"), "HF_MODEL_REPO": REPO, "DEPLOYMENT": f"fetch-{os.getpid()}"}
    made = Place(tmp_path, head | worker | where)
    yield made
    made.end()


@pytest.fixture
def hub(place: Place) -> Iterator[Hub]:
    with Hub({REPO: model()}) as hub:
        place.environment["HF_ENDPOINT"] = hub.url
        yield hub


def told(events: list[dict[str, Any]]) -> list[str]:
    return [one["text"] for one in events if one["event"] == "told"]


def test_only_what_a_server_reads_is_fetched_and_a_second_fetch_has_nothing_to_do(place, hub):
    code, events = place.fetch()
    folder = events[-1]["folders"][0]
    whole = {name: data for name, data in hub.repos[REPO].items() if name in NEEDED}
    assert (code, place.files(), place.parts()) == (0, whole, [])
    assert (folder["revision"], folder["files"], folder["kept"]) == (COMMIT, 5, 0)
    assert folder["fetched"] == sum(map(len, whole.values()))
    hub.asked.clear()
    code, events = place.fetch()
    assert (code, events[-1]["folders"][0]["fetched"], events[-1]["folders"][0]["kept"]) == (0, 0, 5)
    assert [name for _, name, _ in hub.asked] == ["model.safetensors.index.json"]
    code, events = place.run("verify")
    folder = events[-1]["folders"][0]
    assert (code, folder["right"], folder["hashed"], folder["repo"]) == (0, 5, 0, REPO)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_fetch_that_is_ended_three_times_goes_on_inside_the_file(place, hub, end):
    hub.repos[REPO] = model(LARGE)
    hub.pace = 6 << 20
    for point in (5 << 20, 11 << 20, 17 << 20):
        process = place.begin("fetch", "--reserve", "0")
        deadline = time.monotonic() + 60
        while sum(path.stat().st_size for path in place.parts() if ONE in path.name) < point:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(end)
        process.communicate(timeout=20)
    hub.pace = 0
    code, _ = place.fetch()
    twice = hub.sent[ONE] - len(hub.repos[REPO][ONE])
    starts = [ranged for _, name, ranged in hub.asked if name == ONE]
    assert (code, place.files()[ONE] == hub.repos[REPO][ONE]) == (0, True)
    assert len([one for one in starts if one]) == 3
    assert 0 <= twice < 3 * 2 * CHUNK  # each time less than what is read at once and what is on its way


def test_cut_connections_and_a_busy_server_are_outlasted(place, hub):
    hub.errors[ONE] = [503, 500]
    hub.cuts[ONE] = [1 << 20, 1 << 20]
    code, events = place.fetch()
    assert (code, place.files()[ONE] == hub.repos[REPO][ONE]) == (0, True)
    assert len([text for text in told(events) if "503" in text or "500" in text]) == 2


def test_a_stall_is_noticed_within_its_limit(place, hub):
    hub.stalls[ONE] = 2 << 20
    began = time.monotonic()
    code, events = place.fetch("--stall", "5")
    assert (code, place.files()[ONE] == hub.repos[REPO][ONE]) == (0, True)
    assert [text for text in told(events) if text.startswith(f"{ONE}: nothing moved for 5 s")] != []
    assert time.monotonic() - began < 40


def test_a_stall_over_xet_is_tried_again_without_it(place, hub):
    hub.xet = True
    code, events = place.fetch("--xet", "--stall", "6")
    assert (code, place.files()[ONE] == hub.repos[REPO][ONE]) == (0, True)
    assert [text for text in told(events) if text.startswith(f"{ONE}: nothing moved for 6 s; trying again without xet")]


def test_a_server_that_knows_no_ranges_still_gives_the_whole_file(place, hub):
    hub.no_ranges = True
    hub.cuts[ONE] = [2 << 20]
    code, _ = place.fetch()
    assert (code, place.files()[ONE] == hub.repos[REPO][ONE]) == (0, True)


def test_a_swapped_shard_is_named_and_not_left_behind(place, hub):
    other = bytearray(hub.repos[REPO][TWO])
    other[-1] ^= 1
    hub.swapped[TWO] = bytes(other)
    code, events = place.fetch()
    assert (code, events[-1]["what"]) == (5, "1 files came wrong, twice; they are removed")
    assert [TWO in one for one in events[-1]["evidence"]] == [True]
    assert set(place.files()) == NEEDED - {TWO}


def test_a_truncated_and_a_swapped_shard_are_found_by_name_on_either_node(place, hub):
    place.fetch()
    copy = place.folder / "copy"
    subprocess.run(["cp", "-r", place.model, copy], check=True)
    with (copy / ONE).open("r+b") as file:
        file.truncate(2 << 20)
    with (place.model / TWO).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    code, events = place.run("verify", WORKER_MODEL_DIR=str(copy))
    report = next(one for one in events if one["event"] == "verify")
    wrong = [(one["node"], file["name"], file["fault"]) for one in report["folders"] for file in one["wrong"]]
    assert (code, wrong) == (4, [("head", TWO, "digest"), ("worker", ONE, "truncated")])


def test_what_another_client_has_begun_is_gone_on_with(place, hub):
    data = hub.repos[REPO][ONE]
    digest = next(one for one in json.loads(_info(hub))["siblings"] if one["rfilename"] == ONE)["lfs"]["sha256"]
    begun = place.model / ".cache" / "huggingface" / "download" / f"{ONE}.{digest}.incomplete"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(data[: 2 << 20])
    code, _ = place.fetch("--offline")
    assert code == 4
    code, _ = place.fetch()
    assert (code, place.files()[ONE] == data, hub.sent[ONE]) == (0, True, len(data) - (2 << 20))


def _info(hub: Hub) -> bytes:
    from urllib.request import urlopen

    with urlopen(f"{hub.url}/api/models/{REPO}") as answer:
        return bytes(answer.read())


def test_offline_lists_every_gap_and_touches_nothing(place, hub):
    code, events = place.fetch("--offline")
    assert (code, place.model.exists(), hub.asked) == (4, False, [])
    place.fetch()
    hub.asked.clear()
    (place.model / ONE).unlink()
    (place.model / "config.json").write_bytes(b"<!DOCTYPE html>")
    before = place.files()
    code, events = place.fetch("--offline")
    assert (code, sorted(one.split(": ")[0].rsplit("/", 1)[1] for one in events[-1]["evidence"])) == (
        4,
        ["config.json", ONE],
    )
    assert (place.files(), hub.asked) == (before, [])


def test_room_is_checked_before_the_first_byte(place, hub):
    code, events = place.run("fetch", "--reserve", "1024TiB")
    assert (code, place.model.exists(), ONE in hub.sent) == (4, False, False)
    assert "are free" in events[-1]["what"]


def test_a_private_repository_wants_a_token_that_nobody_else_can_read(place, hub):
    hub.token = "hf_secret"
    code, events = place.fetch()
    assert (code, "HF_TOKEN" in events[-1]["fix"]) == (2, True)
    file = place.folder / ".env"
    file.write_text("HF_TOKEN=hf_secret\n")
    file.chmod(0o644)
    code, events = place.fetch()
    assert (code, events[-1]["fix"]) == (2, "chmod 600 .env")
    file.chmod(0o600)
    code, events = place.fetch()
    assert (code, "hf_secret" in json.dumps(events)) == (0, False)


def test_whoever_changes_the_folder_is_named(place, hub):
    lease = place.model / ".sparkctl" / "lease"
    lease.parent.mkdir(parents=True)
    lease.write_text(
        json.dumps({"command": "sparkctl share", "user": "ann", "host": "spark-a", "pid": 7, "since": "now"})
    )
    with lease.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, events = place.fetch()
    assert (code, "`sparkctl share` by ann on spark-a" in events[-1]["what"], place.files()) == (7, True, {})


def test_of_the_original_checkpoint_only_the_tables_are_fetched(place, hub, tmp_path):
    checkpoint = write_checkpoint(tmp_path / "original").folder
    published = {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}
    hub.repos["org/original"] = published | {"model-00001-of-00048.safetensors": b"never fetched", "README.md": b"#"}
    tables = tmp_path / "tables"
    code, _ = place.fetch(HF_MODEL_REPO="", HF_ENGRAM_REPO="org/original", ENGRAM_DIR=str(tables))
    names = {"config.json", "model.safetensors.index.json"}
    names |= {"model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors"}
    assert (code, {path.name for path in tables.iterdir() if path.is_file()}) == (0, names)


def test_a_model_that_no_settings_name_any_more_is_shown_and_goes_when_asked(place, hub):
    place.fetch()
    new = {"MODEL_DIR": str(place.folder / "new")}
    place.fetch(**new)

    def weights(*words: str) -> list[tuple[str, bool, bool]]:
        code, events = place.run("weights", *words, **new)
        assert code == 0
        folders = [one for one in events[-1]["folders"] if one["node"] == "head"]
        return [(Path(one["path"]).name, bool(one["claims"]), one["freed"] is not None) for one in folders]

    assert weights("ls") == [("new", True, False), ("model", False, False)]
    assert weights("prune") == [("new", True, False), ("model", False, True)]
    assert set(place.files()) == NEEDED
    assert weights("pin", str(place.model)) == [("model", False, False)]
    assert weights("prune", "--yes") == [("new", True, False), ("model", False, False)]
    assert weights("unpin", str(place.model)) == [("model", False, False)]
    assert weights("prune", str(place.model), "--yes") == [("new", True, False), ("model", False, True)]
    assert (place.model.exists(), (place.folder / "new" / ONE).exists()) == (False, True)


def test_whether_a_model_fits_is_answered_before_a_byte_of_it_is_fetched(place, hub):
    code, events = place.run("fit", RECIPE="demo", VENV="/nowhere")
    assert (code, events[-1]["event"], place.model.exists()) == (0, "fit", False)
    ranges = {(name, ranged) for _, name, ranged in hub.asked if name in (ONE, TWO)}
    assert ranges == {(ONE, "bytes=0-262143"), (TWO, "bytes=0-262143")}
    assert f"counted from the headers of {REPO} at {COMMIT[:12]}, not fetched yet" in told(events)
    place.fetch()
    _, again = place.run("fit", RECIPE="demo", VENV="/nowhere")
    assert [one["parts"] for one in again[-1]["nodes"]] == [one["parts"] for one in events[-1]["nodes"]]
