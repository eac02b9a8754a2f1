"""`inspect` and `packconfig` on real files."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.app.inspect import inspect
from cluster.app.packconfig import packconfig
from cluster.config.load import load
from cluster.errors import Refused, SettingsError, SparkctlError
from cluster.model.need import Need
from cluster.model.packs import Width
from cluster.model.settings import NodeSettings
from cluster.node.base import Node
from cluster.node.local import LocalNode
from cluster.weights.packconfig import Route, block
from cluster.weights.safetensors import BadShard
from tests.packs import index, linear, tensors, write_shard

pytestmark = pytest.mark.contract
SETTINGS = load(Path("/nowhere"), environ={}, need=Need.NOTHING).settings
FP8 = {"quantization_config": {"quant_method": "fp8"}, "text_config": {}, "model_type": "deepseek_v4"}


def open_here(settings: NodeSettings) -> Node:
    return LocalNode(settings.name)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two shards of experts, 2 bits in layer 0 and 3 in layer 1, the config of the source model."""
    for layer, bits in ((0, 2), (1, 3)):
        content: dict[str, Any] = {}
        for expert in range(2):
            content |= linear(f"layers.{layer}.ffn.experts.{expert}.w1", 64, 32, bits, "mcg")
        write_shard(tmp_path / f"model-0000{layer + 1}-of-00002.safetensors", content)
    (tmp_path / "config.json").write_text(json.dumps(FP8))
    index(tmp_path)
    return tmp_path


def test_a_repaired_pack_is_sound(pack):
    before = inspect(SETTINGS, open_here, str(pack))
    assert before.problems == ("config.json says fp8, the pack is EXL3: sparkctl packconfig mends it",)
    packconfig(SETTINGS, open_here, str(pack), Route.A)
    after = inspect(SETTINGS, open_here, str(pack))
    assert (after.ok, after.codebook, after.bits) == (True, "mcg", 2.5)
    assert after.widths == (Width(2, 2, 1024), Width(3, 2, 1536))
    assert (after.files, after.tensors) == (2, 16)
    assert sum(one.disk for one in after.components) == 2 * (1024 + 1536) // 2 + 4 * (192 + 4)


def test_the_first_config_is_kept_once(pack):
    first = (pack / "config.json").read_text()
    assert packconfig(SETTINGS, open_here, str(pack), Route.A).changed
    assert packconfig(SETTINGS, open_here, str(pack), Route.B).changed
    assert (pack / "config.json.bak").read_text() == first
    assert json.loads((pack / "config.json").read_text()) == {
        "model_type": "deepseek_v4",
        "quantization_config": block({0: 2, 1: 3}, Route.B),
    }


def test_a_second_repair_writes_nothing(pack):
    packconfig(SETTINGS, open_here, str(pack), Route.A)
    before = (pack / "config.json").stat().st_mtime_ns
    report = packconfig(SETTINGS, open_here, str(pack), Route.A)
    assert (report.changed, report.changes, report.layer_bits) == (False, (), (("1", "3"),))
    assert (pack / "config.json").stat().st_mtime_ns == before


def test_a_config_linked_from_a_cache_is_not_written_through(pack, tmp_path_factory):
    blob = tmp_path_factory.mktemp("blobs") / "abc"
    (pack / "config.json").rename(blob)
    (pack / "config.json").symlink_to(blob)
    packconfig(SETTINGS, open_here, str(pack), Route.A)
    assert json.loads(blob.read_text()) == FP8


def test_a_dry_repair_only_shows_the_lines(pack):
    report = packconfig(SETTINGS, open_here, str(pack), Route.A, dry=True)
    assert '-    "quant_method": "fp8"' in report.changes
    assert json.loads((pack / "config.json").read_text()) == FP8
    assert not (pack / "config.json.bak").exists()


WRONG: dict[str, tuple[type[SparkctlError], str]] = {
    "no config": (SettingsError, "there is no config.json"),
    "config cut off": (Refused, "is not JSON"),
    "mixed widths": (Refused, "the experts of layer 0 have different widths"),
    "no experts": (Refused, "no routed expert is EXL3"),
    "cut off": (BadShard, "the file is cut off"),
    "a web page": (BadShard, "the file is not a safetensors file"),
    "empty shard": (BadShard, "the file is empty"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_packs_change_nothing(wrong, pack):
    first = pack / "model-00001-of-00002.safetensors"
    match wrong:
        case "no config":
            (pack / "config.json").unlink()
        case "config cut off":
            (pack / "config.json").write_text('{"a":')
        case "mixed widths":
            write_shard(pack / "model-00003-of-00003.safetensors", linear("layers.0.ffn.experts.9.w3", 32, 32, 4))
        case "no experts":
            for path in pack.glob("*.safetensors"):
                write_shard(path, tensors(a=("F16", 3)))
        case "cut off":
            first.write_bytes(first.read_bytes()[:-2])
        case "a web page":
            first.write_text("<!DOCTYPE html><html>")
        case _:
            first.write_bytes(b"")
    kind, text = WRONG[wrong]
    with pytest.raises(kind) as error:
        packconfig(SETTINGS, open_here, str(pack), Route.A)
    assert text in error.value.what
    assert not (pack / "config.json.bak").exists()


def test_everything_that_is_wrong_is_told_together(pack):
    packconfig(SETTINGS, open_here, str(pack), Route.A)
    second = linear("layers.1.ffn.experts.0.w1", 64, 32, 2, "mcg")
    second["layers.1.ffn.experts.0.w1.mcg"] = ("I32", (), b"\1\0\0\0")
    second.pop("layers.1.ffn.experts.0.w1.suh")
    write_shard(pack / "model-00002-of-00002.safetensors", second)
    missing = [f"layers.1.ffn.experts.{name}" for name in ("0.w1.suh", "1.w1.trellis", "1.w1.suh")]
    assert inspect(SETTINGS, open_here, str(pack)).problems == (
        "layers.1.ffn.experts.0.w1: no suh",
        "layers.1.ffn.experts.0.w1.mcg: the marker mcg holds 0x1, not 0xcbac1fed",
        f"5 tensors of the index are not where it says: {', '.join(missing)} and 2 more",
        "layer 1 has 2 bits, config.json says 3",
    )
