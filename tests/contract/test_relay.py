"""`relay` on real files: what the real safetensors library reads afterwards, and what a second run finds."""

import fcntl
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.app.packs import ORDERS, Order
from cluster.app.relay import Wanted, align, relay
from cluster.config.load import load
from cluster.errors import Locked, Refused, SettingsError, SparkctlError
from cluster.model.need import Need
from cluster.model.packs import Made, PackReport
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.node.open import open_node
from cluster.weights.relay import PAD, Rules
from cluster.weights.safetensors import BadShard, read_header
from tests.contract import assembler
from tests.packs import index, linear, noise, odd, shard_bytes, tensors, write_shard

safetensors = pytest.importorskip("safetensors", reason="not run: the package safetensors is not installed")
numpy = pytest.importorskip("numpy", reason="not run: the package numpy is not installed")

pytestmark = pytest.mark.contract

RULES = Rules(smallest=256)
SETTINGS = load(Path("/nowhere"), environ={}, need=Need.NOTHING).settings
FIRST = {
    **tensors(embed__weight=("BF16", 33, 7), norm__weight=("F32", 5), mask=("U8", 13), empty=("F16", 0)),
    **linear("layers.0.attn.wq_a", 128, 64, 3),
}
SECOND = {**tensors(head__weight=("F16", 31, 9)), **linear("layers.0.ffn.experts.0.w1", 64, 128, 2)}
ALIGNED = tensors(layers__1__weight=("F16", 32, 32))
ENGRAM = tensors(layers__1__engram__embed__weight=("F8_E4M3", 600), layers__1__engram__wkv__weight=("F8_E4M3", 600))


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


def told(event: object) -> None:
    assert event is not None


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two shards off the grid, one on it, an Engram shard off it; plus what else lies in a pack."""
    folder = tmp_path / "cache" / "pack"
    write_shard(folder / "model-00001-of-00004.safetensors", FIRST, off=1)
    write_shard(folder / "model-00002-of-00004.safetensors", SECOND, off=2)
    write_shard(folder / "model-00003-of-00004.safetensors", ALIGNED)
    write_shard(folder / "model-00004-of-00004.safetensors", ENGRAM, off=24)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer").mkdir()
    index(folder)
    return folder


@pytest.fixture
def lay(pack: Path, tmp_path: Path) -> Callable[..., PackReport]:
    base = Wanted(str(pack), str(tmp_path / "new"), RULES, reserve=0)

    def run(**changes: object) -> PackReport:
        return relay(SETTINGS, open_here, told, replace(base, **changes))  # type: ignore[arg-type]

    return run


def made(report: PackReport) -> dict[str, str]:
    return {one.name: str(one.made) for one in report.files}


ALL = (
    "config.json",
    "model-00001-of-00004.safetensors",
    "model-00002-of-00004.safetensors",
    "model-00003-of-00004.safetensors",
    "model-00004-of-00004.safetensors",
    "model.safetensors.index.json",
    "tokenizer",
)


def everything(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor as the library reads it, the pads left out."""
    return {
        name: (found["dtype"], tuple(found["shape"]), bytes(found["data"]))
        for name, found in safetensors.deserialize(path.read_bytes())
        if not name.startswith(PAD)
    }


def pads(folder: Path) -> list[str]:
    found = []
    for path in folder.glob("*.safetensors"):
        found += [one.name for one in read_header(path.read_bytes(), "").tensors if one.name.startswith(PAD)]
    return found


def test_every_tensor_is_the_same_and_on_the_grid(pack, lay, tmp_path):
    report = lay()
    assert report.ok
    assert made(report) == dict(
        zip(ALL, ["linked", "written", "written", "linked", "linked", "linked", "linked"], strict=True)
    )
    for number in (1, 2):
        name = f"model-0000{number}-of-00004.safetensors"
        new = tmp_path / "new" / name
        assert everything(new) == everything(pack / name)
        header = read_header(new.read_bytes(), name)
        assert [one.name for one in header.tensors if one.start % 64 and not one.name.startswith(PAD)] == []
        assert struct.unpack("<Q", new.read_bytes()[:8])[0] % 64 == 56
        with safetensors.safe_open(new, "np") as file:
            assert set(FIRST if number == 1 else SECOND) <= set(file.keys())


def test_pads_have_names_of_their_own_and_hold_zeros(lay, tmp_path):
    lay()
    names = pads(tmp_path / "new")
    assert len(names) == len(set(names)) == 4
    for number in (1, 2):
        path = tmp_path / "new" / f"model-0000{number}-of-00004.safetensors"
        data = path.read_bytes()
        for one in read_header(data, "").tensors:
            if one.name.startswith(PAD):
                assert one.name.startswith(f"{PAD}.{path.stem}.")
                assert data[one.start : one.end] == bytes(one.end - one.start)


def test_what_is_on_the_grid_leads_straight_to_the_file_of_a_download_cache(tmp_path, pack, lay):
    name = "model-00003-of-00004.safetensors"
    blob = tmp_path / "cache" / "blobs" / "0123abc"
    blob.parent.mkdir()
    (pack / name).rename(blob)
    (pack / name).symlink_to("../blobs/0123abc")
    lay()
    assert (tmp_path / "new" / name).readlink() == blob


def test_a_second_run_has_nothing_to_do(lay):
    lay()
    assert set(made(lay()).values()) == {"kept"}


def test_a_re_laid_pack_laid_again_is_only_linked(lay, tmp_path):
    lay()
    report = lay(source=str(tmp_path / "new"), target=str(tmp_path / "again"))
    assert set(made(report).values()) == {"linked"}


def test_old_pads_are_made_anew(pack, lay, tmp_path):
    old = {"a": ("U8", (300,), noise("U8", (300,), "a")), f"{PAD}.0": ("U8", (20,), bytes(20))}
    write_shard(pack / "model-00001-of-00004.safetensors", {**old, **linear("b", 64, 64, 2)}, off=7)
    lay()
    assert f"{PAD}.0" not in pads(tmp_path / "new")


def test_a_narrower_skip_moves_the_engram_shard_too(lay):
    report = lay(rules=Rules(smallest=256, skip=(".engram.embed.",)))
    assert made(report)["model-00004-of-00004.safetensors"] == "written"


@pytest.mark.parametrize("left", ["part", "dangling", "stale link", "cut off"])
def test_what_an_ended_run_or_a_moved_cache_left_is_mended(left, lay, pack, tmp_path):
    lay()
    written = tmp_path / "new" / "model-00001-of-00004.safetensors"
    linked = tmp_path / "new" / "model-00003-of-00004.safetensors"
    good = written.read_bytes()
    match left:
        case "part":  # killed before the rename
            written.rename(written.with_name(written.name + ".part"))
        case "dangling":
            linked.unlink()
            linked.symlink_to("/nowhere/blob")
        case "stale link":
            linked.unlink()
            linked.symlink_to(pack / "model-00002-of-00004.safetensors")
        case _:
            written.write_bytes(good[:-1])
    report = lay()
    mended = [one for one in report.files if one.made is not Made.KEPT]
    assert [(one.name, one.made) for one in mended] == (
        [(linked.name, Made.LINKED)] if "link" in left or left == "dangling" else [(written.name, Made.WRITTEN)]
    )
    assert written.read_bytes() == good
    assert linked.read_bytes() == (pack / linked.name).read_bytes()
    assert not list((tmp_path / "new").glob("*.part"))


@pytest.mark.parametrize("link", ["hardlink", "copy"])
def test_unchanged_files_may_be_hard_links_or_copies(link, lay, pack, tmp_path):
    lay(link=link)
    name = "model-00003-of-00004.safetensors"
    new = tmp_path / "new" / name
    assert not new.is_symlink()
    assert (new.stat().st_ino == (pack / name).stat().st_ino) is (link == "hardlink")
    assert new.read_bytes() == (pack / name).read_bytes()
    assert set(made(lay(link=link)).values()) == {"kept"}


def test_overlay_parts_are_laid_beside_the_shards_and_counted(lay, pack, tmp_path):
    for number in range(2):
        write_shard(
            pack / "exllamav3" / f"requant_{number}.safetensors", linear(f"layers.{number}.attn.wq_b", 64, 64, 4)
        )
    report = lay(parts=2)
    assert {"requant_0.safetensors": "linked", "requant_1.safetensors": "linked"}.items() <= made(report).items()
    assert (tmp_path / "new" / "requant_0.safetensors").resolve() == pack / "exllamav3" / "requant_0.safetensors"
    assert report.notes[0] == "2 overlay parts beside the shards"


def test_the_format_keeps_its_metadata(lay, pack, tmp_path):
    name = "model-00001-of-00004.safetensors"
    (pack / name).write_bytes(shard_bytes(FIRST, {"format": "pt"}, pad=3))
    lay()
    with safetensors.safe_open(tmp_path / "new" / name, "np") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_dry_run_writes_nothing(lay, tmp_path):
    report = lay(dry=True)
    assert not report.done
    assert report.written > 0
    assert not (tmp_path / "new").exists()


def test_a_flipped_byte_is_seen_before_the_file_gets_its_name(lay, pack, tmp_path, monkeypatch):
    """The comparison is with the source as it is then: a copy that differs never appears."""
    writes = b'            os.ftruncate(writer.file, order["size"])\n'
    flips = b"            os.pwrite(writer.file, b'?', order['size'] - 1)\n"
    assembler.change(monkeypatch, {writes: writes + flips})
    report = lay()
    failed = [one for one in report.files if one.made is Made.FAILED]
    assert [one.name for one in failed] == [ALL[1], ALL[2]]
    assert "are not the source's" in failed[0].detail
    assert not (tmp_path / "new" / ALL[1]).exists()
    assert (tmp_path / "new" / ALL[3]).exists()


def test_orders_are_gone_when_all_is_well(lay, tmp_path):
    lay()
    assert not (tmp_path / "new" / ORDERS).exists()


def test_an_alignment_report_tells_what_would_be_copied(pack):
    report = align(SETTINGS, open_here, str(pack), RULES, threshold=100)
    assert not report.ok
    assert report.rewritten == (ALL[1], ALL[2])
    copied = [one for one in report.shares if one.reach == "copied"]
    assert [(one.dtype, one.examples) for one in copied] == [("BF16", ("embed.weight",))]
    assert [one.reach for one in report.shares if one.dtype == "F8_E4M3"] == ["aliased"]


WRONG = (
    "no such pack", "no shard", "into itself", "cut off", "pointer", "dangling", "twice", "parts missing",
    "no overlay folder", "no room", "odd grid", "not writable",
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_inputs_change_nothing(wrong, pack, lay, tmp_path):
    first = pack / ALL[1]
    changes: dict[str, object] = {}
    kind: type[SparkctlError] = Refused
    match wrong:
        case "no such pack":
            changes, kind, text = {"source": str(tmp_path / "none")}, SettingsError, "there is no such folder"
        case "no shard":
            (tmp_path / "empty").mkdir()
            changes, kind, text = (
                {"source": str(tmp_path / "empty")},
                SettingsError,
                "the folder holds no *.safetensors",
            )
        case "into itself":
            changes, kind = {"target": str(pack)}, SettingsError
            text = "the new pack cannot lie where the old one does"
        case "cut off":
            first.write_bytes(first.read_bytes()[:-1])
            kind, text = BadShard, "the file is cut off"
        case "pointer":
            first.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n")
            kind, text = BadShard, "the file is a Git LFS pointer, not the weights it stands for"
        case "dangling":
            first.unlink()
            first.symlink_to("../blobs/gone")
            text = "a shard is a link to a file that is gone"
        case "twice":
            write_shard(pack / "requant_1.safetensors", SECOND)
            text = "head.weight is in two files"
        case "parts missing":
            changes, text = {"parts": 12}, "there are 0 overlay parts, not 12"
        case "no overlay folder":
            changes, kind, text = {"overlay": str(tmp_path / "none")}, SettingsError, "there is no such folder"
        case "no room":
            changes, text = {"reserve": 2**60}, "are needed"
        case "odd grid":
            with pytest.raises(SettingsError, match="a grid is a power of two from 8 on, not 48"):
                Rules(48)
            return
        case _:
            if os.geteuid() == 0:
                pytest.skip("not run: root may write everywhere")
            (tmp_path / "shut").mkdir(mode=0o500)
            changes, text = {"target": str(tmp_path / "shut" / "new")}, "cannot write there"
    with pytest.raises(kind) as error:
        lay(**changes)
    assert text in error.value.what
    assert not (tmp_path / "new").exists()


def test_the_kernel_need_not_copy_from_file_to_file(lay, pack, tmp_path, monkeypatch):
    """A file system without copy_file_range, and pieces larger than a buffer."""
    lacking = b"def lacking(*_):\n    raise OSError(errno.ENOSYS, 'none')\n\n\n"
    assembler.change(
        monkeypatch,
        {
            b"BLOCK = 1 << 20": b"BLOCK = 1 << 10",
            b"LARGE = 1 << 20": b"LARGE = 1 << 9",
            b"os.copy_file_range(": b"lacking(",
            b"class Writer:": lacking + b"class Writer:",
        },
    )
    lay(order=Order(threads=1))
    assert everything(tmp_path / "new" / ALL[1]) == everything(pack / ALL[1])


def test_shards_with_odd_headers_open(tmp_path):
    """Whatever the header's length, the data begins on the grid."""
    for blanks in range(3):
        path = tmp_path / "pack" / "model.safetensors"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(shard_bytes(FIRST, pad=blanks) if blanks else odd(FIRST, 33))
        report = relay(
            SETTINGS, open_here, told, Wanted(str(path.parent), str(tmp_path / f"new{blanks}"), RULES, reserve=0)
        )
        assert report.ok
        assert everything(tmp_path / f"new{blanks}" / path.name) == everything(path)


def test_the_same_is_done_on_a_node_behind_ssh(pack, tmp_path, server):
    wanted = Wanted(str(pack), str(tmp_path / "new"), RULES, reserve=0)

    def open_there(settings: NodeSettings) -> Node:
        return open_node(settings.name, "node", ssh_config=server.ssh_config)

    assert relay(SETTINGS, open_there, told, wanted).ok
    assert everything(tmp_path / "new" / ALL[1]) == everything(pack / ALL[1])


def test_two_runs_do_not_write_into_one_folder(lay, tmp_path):
    (tmp_path / "new").mkdir()
    held = os.open(tmp_path / "new", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(Locked, match="another run writes into"):
            lay()
    finally:
        os.close(held)
    assert lay().ok


def test_the_report_is_json(lay):
    from datetime import UTC, datetime

    from cluster.report.schema import to_json

    assert json.loads(json.dumps(to_json(lay(), datetime.now(UTC))))["event"] == "pack"
