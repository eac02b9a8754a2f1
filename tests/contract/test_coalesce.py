"""`coalesce` and `draft` on real files: joined bytes as numpy joins them, digests, and what a second run keeps."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.app import coalesce as joining
from cluster.app.draft import Wanted as DraftWanted
from cluster.app.draft import make_draft
from cluster.app.packs import Order
from cluster.config.load import load
from cluster.errors import Refused, SettingsError, SparkctlError
from cluster.model.need import Need
from cluster.model.packs import Made, PackReport
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.weights.coalesce import MANIFEST
from tests.contract import assembler
from tests.packs import index, linear, tensors, write_shard

numpy = pytest.importorskip("numpy", reason="not run: the package numpy is not installed")
library = pytest.importorskip("safetensors.numpy", reason="not run: the package safetensors is not installed")

pytestmark = pytest.mark.contract
SETTINGS = load(Path("/nowhere"), environ={}, need=Need.NOTHING).settings
RANKS = 4
TAIL = {"format": "exl3-trellis", "tp": RANKS}


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


def told(event: object) -> None:
    assert event is not None


def expert(name: str, proj: str, rank: int) -> dict[str, Any]:
    """A slice; what must be equal on all ranks is that of rank 0."""
    key, first = f"{name}.{proj}.rank{rank}", f"{name}.{proj}.rank0"
    mine, other = linear(key, 32, 64, 3), linear(first, 32, 64, 3)
    field = "svh" if proj == "w2" else "suh"
    return mine | {f"{key}.{field}": other[f"{first}.{field}"]}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two families of four ranks, one unsliced file, and the three texts."""
    folder = tmp_path / "tp4"
    for layer in range(2):
        for rank in range(RANKS):
            content: dict[str, Any] = {}
            for number in range(2):
                for proj in ("w1", "w2", "w3"):
                    content |= expert(f"layers.{layer}.ffn.experts.{number}", proj, rank)
            write_shard(folder / f"layer{layer}-tp{RANKS}-rank{rank}.safetensors", content, off=rank)
    write_shard(folder / "model-00001-of-00001.safetensors", tensors(embed__weight=("F16", 50)), off=3)
    (folder / "config.json").write_text(json.dumps({"hybrid_tr3_tail": TAIL, "hidden_size": 4}))
    (folder / "quantization_config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    index(folder)
    return folder


def join(pack: Path, **changes: Any) -> PackReport:
    wanted = joining.Wanted(str(pack), str(pack.parent / "tp1"), reserve=0)
    return joining.coalesce(SETTINGS, open_here, told, replace(wanted, **changes))


def check(pack: Path) -> PackReport:
    return joining.check(SETTINGS, open_here, told, str(pack.parent / "tp1"))


def made(report: PackReport) -> dict[str, Made]:
    return {one.name: one.made for one in report.files}


@pytest.mark.parametrize("block", ["1 << 20", "5 << 10", "1 << 10"])
def test_joined_tensors_are_what_numpy_joins(pack, monkeypatch, block):
    """In blocks of all, of some, and of less than one of the rounds of rows, 1536 bytes here."""
    assembler.change(monkeypatch, {b"BLOCK = 1 << 20": f"BLOCK = {block}".encode()})
    assert join(pack).ok
    for layer in range(2):
        new = library.load_file(pack.parent / "tp1" / f"layer{layer}-tp1-rank0.safetensors")
        old = [library.load_file(pack / f"layer{layer}-tp4-rank{rank}.safetensors") for rank in range(RANKS)]
        assert len(new) == len(old[0])
        for name, value in new.items():
            base, field = name.split(".rank0.")
            parts = [old[rank][f"{base}.rank{rank}.{field}"] for rank in range(RANKS)]
            axis = {"trellis": 0, "suh": 0} if base.endswith("w2") else {"trellis": 1, "svh": 0}
            want = numpy.concatenate(parts, axis[field]) if field in axis else parts[0]
            assert (name, value.dtype, value.tobytes()) == (name, want.dtype, want.tobytes())


def test_the_new_pack_has_its_own_texts(pack):
    join(pack)
    new = pack.parent / "tp1"
    assert json.loads((new / "config.json").read_text())["hybrid_tr3_tail"] == {
        **TAIL, "tp": 1, "source_tp": 4, "source_operation": "lossless_tp_rank_coalesce",
    }  # fmt: skip
    placed = json.loads((new / "model.safetensors.index.json").read_text())["weight_map"]
    assert len(placed) == 2 * 2 * 3 * 4 + 1
    assert all((new / file).exists() for file in placed.values())
    assert (new / "tokenizer.json").exists()
    assert (new / "model-00001-of-00001.safetensors").stat().st_nlink == 2
    assert json.loads((pack / "config.json").read_text())["hybrid_tr3_tail"] == TAIL


def test_the_manifest_holds_every_file_and_notices_a_flipped_byte(pack):
    join(pack)
    new = pack.parent / "tp1"
    listed = json.loads((new / MANIFEST).read_text())
    assert {one["name"]: one["sha256"] for one in listed["files"]} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in new.glob("*.safetensors")
    }
    assert listed["tensor_count"] == 2 * 2 * 3 * 4 + 1
    assert check(pack).ok
    path = new / "layer1-tp1-rank0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = check(pack)
    assert [one.name for one in report.files if one.made is Made.FAILED] == [path.name]
    assert made(join(pack))[path.name] is Made.WRITTEN
    assert check(pack).ok


def test_a_second_run_keeps_everything(pack):
    join(pack)
    assert set(made(join(pack)).values()) == {Made.KEPT}


def test_a_run_that_was_ended_goes_on(pack):
    join(pack)
    new = pack.parent / "tp1"
    (new / MANIFEST).unlink()
    (new / "layer0-tp1-rank0.safetensors").rename(new / "layer0-tp1-rank0.safetensors.part")
    report = join(pack)
    assert {name for name, one in made(report).items() if one is not Made.KEPT} == {"layer0-tp1-rank0.safetensors"}
    assert check(pack).ok
    assert not list(new.glob("*.part"))


def test_slices_that_must_be_equal_and_are_not_fail_the_file_alone(pack):
    name = "layer0-tp4-rank2.safetensors"
    content: dict[str, Any] = {}
    for number in range(2):
        for proj in ("w1", "w2", "w3"):
            content |= linear(f"layers.0.ffn.experts.{number}.{proj}.rank2", 32, 64, 3)
    write_shard(pack / name, content)
    report = join(pack)
    assert made(report)["layer0-tp1-rank0.safetensors"] is Made.FAILED
    assert made(report)["layer1-tp1-rank0.safetensors"] is Made.WRITTEN
    failed = next(one for one in report.files if one.made is Made.FAILED)
    assert failed.detail.startswith("layers.0.ffn.experts.0.w1.rank0.suh differs between the ranks, and must not")
    assert not (pack.parent / "tp1" / MANIFEST).exists()


def test_without_digests_there_is_nothing_to_check(pack):
    assert join(pack, order=Order(sums=False)).ok
    with pytest.raises(Refused, match="the manifest holds no digests"):
        check(pack)


WRONG: dict[str, tuple[type[SparkctlError], str]] = {
    "rank missing": (Refused, "layer0 has not exactly the ranks 0 to 3"),
    "other config": (Refused, "is of 4 ranks, config.json says 2"),
    "not sliced": (Refused, "config.json does not say that the pack is sliced"),
    "no config": (SettingsError, "there is no config.json"),
    "index cut off": (Refused, "is not JSON"),
    "into itself": (SettingsError, "the new pack cannot lie where the old one does"),
    "no room": (Refused, "are needed"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_packs_change_nothing(wrong, pack):
    changes: dict[str, Any] = {}
    match wrong:
        case "rank missing":
            (pack / "layer0-tp4-rank2.safetensors").unlink()
        case "other config":
            (pack / "config.json").write_text(json.dumps({"hybrid_tr3_tail": {**TAIL, "tp": 2}}))
        case "not sliced":
            (pack / "config.json").write_text("{}")
        case "no config":
            (pack / "config.json").unlink()
        case "index cut off":
            (pack / "model.safetensors.index.json").write_text("{")
        case "into itself":
            changes = {"target": str(pack)}
        case _:
            changes = {"reserve": 2**60}
    kind, text = WRONG[wrong]
    with pytest.raises(kind) as error:
        join(pack, **changes)
    assert text in error.value.what
    assert not (pack.parent / "tp1").exists()


@pytest.fixture
def drafted(tmp_path: Path) -> DraftWanted:
    """A pack of 10 experts in one stage, its plan, and what is wanted of it."""
    folder = tmp_path / "pack"
    content = tensors(embed__weight=("F16", 8), mtp__0__norm__weight=("F16", 3))
    for number in range(10):
        content |= linear(f"mtp.0.ffn.experts.{number}.w1", 32, 32, 2)
    content |= tensors(mtp__0__ffn__gate__weight=("F32", 10, 3), mtp__0__ffn__gate__bias=("F32", 10))
    write_shard(folder / "model.safetensors", content, off=5)
    (folder / "config.json").write_text(json.dumps({"n_routed_experts": 10}))
    keep = list(range(100, 110))
    maps = {
        "mtp_keep": keep,
        "mtp_keep_from_layer": 0,
        "structured_ranked_by_category": {"agentic_tool_trajectory": {"0": [109]}, "tool_calling": {"0": [108]}},
        "mtp_ranked": keep,
    }
    (tmp_path / "plan.json").write_text(json.dumps({"keep_maps": maps}))
    return DraftWanted(str(folder), str(tmp_path / "draft"), str(tmp_path / "plan.json"), experts=8, reserve=0)


def test_a_draft_holds_the_experts_of_the_plan(drafted):
    report = make_draft(SETTINGS, open_here, told, drafted)
    assert report.ok
    new = Path(drafted.target)
    assert sorted(path.name for path in new.iterdir()) == [
        "DSPARK_DRAFT_PLAN.json", "config.json", "dspark-draft.safetensors", "model.safetensors.index.json",
    ]  # fmt: skip
    kept = [0, 1, 2, 3, 4, 5, 8, 9]
    old, made = (
        library.load_file(path)
        for path in (Path(drafted.source) / "model.safetensors", new / "dspark-draft.safetensors")
    )
    assert set(made) == {
        name
        for name in old
        if name.startswith("mtp.") and not name.startswith(("mtp.0.ffn.experts.8", "mtp.0.ffn.experts.9"))
    }
    for field in ("trellis", "suh", "svh", "mul1"):
        for number, was in enumerate(kept):
            before, after = old[f"mtp.0.ffn.experts.{was}.w1.{field}"], made[f"mtp.0.ffn.experts.{number}.w1.{field}"]
            assert before.tobytes() == after.tobytes()
    for name in ("weight", "bias"):
        gate = f"mtp.0.ffn.gate.{name}"
        assert made[gate].tobytes() == old[gate][kept].tobytes()
    assert json.loads((new / "config.json").read_text()) == {"n_routed_experts": 8}
    plan = json.loads((new / "DSPARK_DRAFT_PLAN.json").read_text())
    assert plan["kept_experts"] == kept
    assert plan["file"]["sha256"] == hashlib.sha256((new / "dspark-draft.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("wrong", ["there already", "no plan", "too many", "no draft"])
def test_a_draft_that_cannot_be_made_changes_nothing(wrong, drafted, tmp_path):
    kind: type[SparkctlError] = Refused
    before = (Path(drafted.source) / "model.safetensors").read_bytes()
    match wrong:
        case "there already":
            Path(drafted.target).mkdir()
            text = "the draft's folder is there already"
        case "no plan":
            kind, text = SettingsError, "there is no none.json"
            drafted = replace(drafted, plan=str(tmp_path / "none.json"))
        case "too many":
            kind, text = SettingsError, "the draft keeps from 8 to 9 experts, not 10"
            drafted = replace(drafted, experts=10)
        case _:
            before = write_shard(Path(drafted.source) / "model.safetensors", tensors(a=("F16", 4))).read_bytes()
            text = "the pack has no drafting part"
    with pytest.raises(kind) as error:
        make_draft(SETTINGS, open_here, told, drafted)
    assert text in error.value.what
    assert not Path(drafted.target).exists() or not list(Path(drafted.target).iterdir())
    assert (Path(drafted.source) / "model.safetensors").read_bytes() == before
