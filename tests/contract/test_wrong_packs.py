"""What a person types with a pack that is not right: the sentence and the exit code, and nothing changed."""

import json
import logging
import os
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.cli.main import main
from cluster.errors import Exit
from tests.packs import index, linear, tensors, write_shard

pytestmark = pytest.mark.contract
E = "layers.0.ffn.experts"
FIRST, SECOND = "pack/model-00001-of-00002.safetensors", "pack/model-00002-of-00002.safetensors"
RELAY = "relay pack new --min-bytes 256 --reserve 0"
JOIN = "coalesce tp2 new --reserve 0"
DRAFT = "draft pack new --plan plan.json --experts 8 --reserve 0"
PATCH = "patch apply set.yaml --root demo --any-version"
NATIVE = "plan --recipe dsv41-sage-exl3-1x --model /models/pack"
COMPOSE = "compose --recipe dsv4-sparkinfer-1x --model /models/pack"
SET = """\
package: demo
versions: {from: "1", below: "2"}
patches:
  - {id: one, file: a.py, reason: r, find: return slow(...), put: before, text: pass}
"""


def sound(folder: Path) -> None:
    """A pack, a sliced one, a plan and a package to patch: every command above does its work on them."""
    experts: dict[str, Any] = {}
    for number in range(9):
        experts |= linear(f"{E}.{number}.w1", 32, 32, 2)
    draft = tensors(mtp__0__ffn__gate__weight=("F32", 9, 3))
    for number in range(9):
        draft |= linear(f"mtp.0.ffn.experts.{number}.w1", 32, 32, 2)
    write_shard(folder / FIRST, experts, off=1)
    write_shard(folder / SECOND, draft, off=2)
    (folder / "pack" / "config.json").write_text(json.dumps({"n_routed_experts": 9}))
    index(folder / "pack")
    for rank in range(2):
        slices = linear(f"{E}.0.w1.rank{rank}", 32, 32, 2)
        slices[f"{E}.0.w1.rank{rank}.suh"] = ("F16", (32,), bytes(64))
        write_shard(folder / "tp2" / f"x-tp2-rank{rank}.safetensors", slices)
    tail = {"hybrid_tr3_tail": {"format": "exl3-trellis", "tp": 2}}
    (folder / "tp2" / "config.json").write_text(json.dumps(tail))
    (folder / "tp2" / "quantization_config.json").write_text("{}")
    index(folder / "tp2")
    maps = {
        "mtp_keep": list(range(9)),
        "mtp_keep_from_layer": 0,
        "structured_ranked_by_category": {"agentic_tool_trajectory": {"0": [8]}, "tool_calling": {"0": [7]}},
        "mtp_ranked": list(range(9)),
    }
    (folder / "plan.json").write_text(json.dumps({"keep_maps": maps}))
    (folder / "demo").mkdir()
    (folder / "demo" / "a.py").write_text("def f(x):\n    return slow(x)\n")
    (folder / "set.yaml").write_text(SET)


def cut(path: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / path, (folder / path).stat().st_size - 1)


def text(path: str, content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / path).write_text(content)

    return write


def remove(path: str) -> Callable[[Path], None]:
    return lambda folder: (folder / path).unlink()


def add(path: str, content: dict[str, Any]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        write_shard(folder / path, content)

    return write


def longer(folder: Path) -> None:
    (folder / FIRST).write_bytes((folder / FIRST).read_bytes() + b"x")


def dangle(folder: Path) -> None:
    remove(FIRST)(folder)
    (folder / FIRST).symlink_to("../blobs/gone")


def header(content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / FIRST).write_bytes(struct.pack("<Q", len(content)) + content.encode())

    return write


def nothing(folder: Path) -> None:
    assert folder.exists()


TWICE = "def f(x):\n    return slow(x)\n\ndef g(x):\n    return slow(x)\n"
TABLE: dict[str, tuple[Callable[[Path], None], str, Exit, str]] = {
    "shard cut off": (cut(FIRST), RELAY, Exit.REFUSED, "the file is cut off"),
    "shard cut off in its header": (
        lambda folder: os.truncate(folder / FIRST, 100),
        RELAY, Exit.REFUSED, "the file is cut off inside its header",
    ),
    "shard too long": (longer, RELAY, Exit.REFUSED, "the file is longer than its header says"),
    "empty shard": (text(FIRST, ""), RELAY, Exit.REFUSED, "the file is empty"),
    "pointer": (
        text(FIRST, "version https://git-lfs.github.com/spec/v1\n"),
        RELAY, Exit.REFUSED, "the file is a Git LFS pointer",
    ),
    "web page": (text(FIRST, "<!DOCTYPE html><html>"), RELAY, Exit.REFUSED, "the file is not a safetensors file"),
    "bad header": (header('{"a":1}'), RELAY, Exit.REFUSED, "a is described by 1"),
    "dangling link": (dangle, RELAY, Exit.REFUSED, "a shard is a link to a file that is gone"),
    "tensor twice": (
        add("pack/requant_1.safetensors", linear(f"{E}.0.w1", 32, 32, 2)),
        RELAY, Exit.REFUSED, f"{E}.0.w1.trellis is in two files",
    ),
    "overlay part missing": (nothing, f"{RELAY} --parts 12", Exit.REFUSED, "there are 0 overlay parts, not 12"),
    "no overlay folder": (nothing, f"{RELAY} --overlay none", Exit.SETTINGS, "there is no such folder"),
    "no room": (nothing, RELAY.replace("reserve 0", "reserve 9000TiB"), Exit.REFUSED, "stay free"),
    "grid": (nothing, f"{RELAY} --align 48", Exit.SETTINGS, "a grid is a power of two from 8 on, not 48"),
    "size": (nothing, "relay pack new --min-bytes much", Exit.SETTINGS, "a size is a number"),
    "no target": (nothing, "relay pack", Exit.SETTINGS, "TARGET is missing"),
    "onto itself": (nothing, "relay pack pack", Exit.SETTINGS, "cannot lie where the old one does"),
    "no pack": (nothing, "relay none new", Exit.SETTINGS, "there is no such folder"),
    "no shard": (nothing, "inspect demo", Exit.SETTINGS, "the folder holds no *.safetensors"),
    "alignment": (
        nothing, "relay pack --report --min-bytes 256 --threshold 0", Exit.DEGRADED, "would be copied in part",
    ),
    "alignment of a broken pack": (cut(FIRST), "relay pack --report", Exit.REFUSED, "the file is cut off"),
    "mixed widths": (
        add("pack/x.safetensors", linear(f"{E}.9.w1", 32, 32, 3)),
        "packconfig pack", Exit.REFUSED, "the experts of layer 0 have different widths",
    ),
    "no config": (remove("pack/config.json"), "packconfig pack", Exit.SETTINGS, "there is no config.json"),
    "config cut off": (text("pack/config.json", "{"), "packconfig pack", Exit.REFUSED, "config.json is not JSON"),
    "config of another kind": (
        nothing, "inspect pack", Exit.REFUSED, "config.json says no quantization, the pack is EXL3",
    ),
    "rank missing": (remove("tp2/x-tp2-rank1.safetensors"), JOIN, Exit.REFUSED, "has not exactly the ranks 0 to 1"),
    "rank misnamed": (
        add("tp2/x-tp2-rank1.safetensors", linear(f"{E}.0.w1.rank0", 32, 32, 2)),
        JOIN, Exit.REFUSED, "holds a tensor of rank 0",
    ),
    "other number of ranks": (
        text("tp2/config.json", '{"hybrid_tr3_tail": {"format": "exl3-trellis", "tp": 4}}'),
        JOIN, Exit.REFUSED, "is of 2 ranks, config.json says 4",
    ),
    "slices differ": (
        add("tp2/x-tp2-rank1.safetensors", linear(f"{E}.0.w1.rank1", 32, 32, 2)),
        JOIN, Exit.STEP_FAILED, "differs between the ranks, and must not",
    ),
    "not sliced": (nothing, "coalesce pack new", Exit.REFUSED, "config.json does not say that the pack is sliced"),
    "no manifest": (nothing, "coalesce --check pack", Exit.SETTINGS, "there is no rank-sliced-tp1-manifest.json"),
    "too few experts": (nothing, f"{DRAFT} --experts 4", Exit.SETTINGS, "the draft keeps from 8 to 8 experts, not 4"),
    "draft is there": (lambda folder: (folder / "new").mkdir(), DRAFT, Exit.REFUSED, "the draft's folder is there"),
    "plan says nothing": (text("plan.json", "{}"), DRAFT, Exit.REFUSED, "the plan says nothing of 'keep_maps'"),
    "anchor twice": (text("demo/a.py", TWICE), PATCH, Exit.REFUSED, "must be there once, and is there 2 times"),
    "file drifted": (text("demo/a.py", "x = 1\n"), PATCH, Exit.REFUSED, "must be there once, and is not there"),
    "file gone": (remove("demo/a.py"), PATCH, Exit.REFUSED, "a.py: the file is not there"),
    "unknown version": (nothing, PATCH.removesuffix(" --any-version"), Exit.REFUSED, "an unknown version"),
    "no set": (nothing, "patch status none", Exit.SETTINGS, "there is no set of patches none"),
    "cached weights evicted": (
        nothing, f"{NATIVE} --set PAGE_CACHE=evict-all", Exit.SETTINGS, "the GPU reads its weights in the page cache",
    ),
    "context off its page": (
        nothing, f"{NATIVE} --set MAX_MODEL_LEN=1000", Exit.SETTINGS, "MAX_MODEL_LEN=1000 is not a multiple of 256",
    ),
    "copied names are no expression": (
        nothing, f"{NATIVE} --set EXL3_ATS_COPY=^(?!mtp", Exit.SETTINGS, "is no regular expression",
    ),
    "two requests for a drafter": (
        nothing, f"{NATIVE} --set MAX_NUM_SEQS=2", Exit.SETTINGS, "this server drafts for one request at a time",
    ),
    "batch too small": (
        nothing, f"{COMPOSE} --set MAX_NUM_BATCHED_TOKENS=4096", Exit.SETTINGS,
        "makes the workspace of sparkinfer's attention too small",
    ),
    "memory all taken": (nothing, f"{COMPOSE} --set GPU_MEM_UTIL=0.96", Exit.SETTINGS, "GPU_MEM_UTIL=0.96"),
    "secret in a compose file": (
        text("cluster.yaml", "launch: {environment: {HF_TOKEN: hf_abcdefghijklmnop}}\n"),
        COMPOSE, Exit.SETTINGS, "HF_TOKEN looks like a secret",
    ),
    "secret as an option": (
        nothing, f"{COMPOSE} --set VLLM_API_KEY=abc", Exit.SETTINGS, "VLLM_API_KEY is a secret, and anyone",
    ),
    "not patched": (nothing, "patch status set.yaml --root demo", Exit.ABSENT, "pristine"),
}  # fmt: skip
SOUND = {
    "relay": RELAY, "packconfig": "packconfig pack", "coalesce": JOIN, "draft": DRAFT, "patch": PATCH,
}  # fmt: skip


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def ran(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        main(command.split())
    except SystemExit as end:
        seen = capsys.readouterr()
        return int(end.code or 0), f"{seen.out}\n{seen.err}"
    raise AssertionError("a verb ends the process")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, without the settings of whoever runs this; the process is afterwards as it was."""
    for name in list(os.environ):
        if name.startswith("SPARKCTL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path.parent / f"{tmp_path.name}-state"))
    monkeypatch.chdir(tmp_path)
    sound(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)
    logger = logging.getLogger("cluster")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True


@pytest.mark.parametrize("verb", SOUND)
def test_the_same_commands_work_on_what_is_right(verb, folder, capsys):
    code, said = ran(SOUND[verb], capsys)
    assert (code, said) == (0, said)


@pytest.mark.parametrize("wrong", TABLE)
def test_wrong_inputs(wrong, folder, capsys):
    change, command, code, told = TABLE[wrong]
    change(folder)
    before = snapshot(folder)
    seen, said = ran(command, capsys)
    assert (seen, told in said) == (int(code), True), said
    if code is not Exit.STEP_FAILED:
        assert snapshot(folder) == before


def test_the_page_tells_every_row():
    page = (Path(__file__).parents[2] / "docs" / "pack-faults.md").read_text()
    rows = [line.strip("|").split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    told = {name.strip(): (command.strip("`"), said, int(code)) for name, command, said, code in rows}
    assert [(name, told[name][0], row[3] in told[name][1], told[name][2]) for name, row in TABLE.items()] == [
        (name, command, True, int(code)) for name, (_, command, code, _) in TABLE.items()
    ]
    assert list(told) == list(TABLE)
