"""The recipe with sparkinfer on a GB10: 0.94 of all memory must be free, which the image tells only after minutes."""

from pathlib import Path

import pytest

from cluster.config.load import load
from cluster.config.texts import Option
from cluster.model.events import Severity
from cluster.model.memory import GIB, MemInfo, MemoryFacts, ModelShape, TensorGroup
from cluster.model.units import Bytes
from cluster.plan.memory import plan_nodes
from cluster.plan.memory_checks import check_memory

SAID = {"RECIPE": "dsv4-sparkinfer-1x", "MAX_MODEL_LEN": "65536"}  # its pool is then what is left of the share
SETTINGS = load(Path("/nowhere"), environ={}, options=[Option(*one, "test") for one in SAID.items()]).settings
PACK = ModelShape((TensorGroup("layers.#.ffn.experts.*.w1.trellis", 0, 1, Bytes(99 * GIB)),), layers=43, kv_heads=1)


def gate(free: float, available: float) -> tuple[Severity, str]:
    info = MemInfo(*(Bytes(int(one * GIB)) for one in (121.63, free, available)))
    (plan,) = plan_nodes(SETTINGS, (PACK,), (MemoryFacts("spark", info, has_gpu=True),), (None,))
    (found,) = [one for one in check_memory(SETTINGS, plan) if one.id == "MEM.FREE"]
    return found.severity, found.expected


@pytest.mark.parametrize(
    ("free", "available", "expected"),
    [
        (117.0, 118.0, (Severity.OK, "")),
        (110.0, 118.0, (Severity.WARNING, "115.0 GiB free")),
        (110.0, 114.0, (Severity.REFUSAL, "114.3 GiB available")),
    ],
)
def test_what_the_page_cache_holds_is_told_and_what_nothing_can_free_is_refused(free, available, expected):
    assert gate(free, available) == expected


def test_the_gate_is_a_share_of_all_memory():
    (need,) = plan_nodes(
        SETTINGS, (PACK,), (MemoryFacts("spark", MemInfo(*(Bytes(int(121.63 * GIB)),) * 3), has_gpu=True),), (None,)
    )[0].needs
    assert need.wanted_free / GIB == pytest.approx(114.33, abs=0.01)
