"""Weights in the page cache: which are copied, whether that fits, and that nothing drops the rest.

Sizes are those of the published pack: 111.16 GiB of text, 7.39 of the drafter, 189.13 of Engram tables.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from cluster.config.load import load
from cluster.config.texts import Option
from cluster.model.events import Severity
from cluster.model.memory import GIB, MemInfo, MemoryFacts, ModelShape, TensorGroup
from cluster.model.units import Bytes
from cluster.plan.exl3_checks import check_addressing, check_alone, resident
from cluster.plan.fit import report
from cluster.plan.memory import plan_nodes
from cluster.plan.memory_checks import check_memory, judge, wants_drop
from tests.build import facts


def size(gib: float) -> Bytes:
    return Bytes(int(gib * GIB))


PACK = ModelShape(
    (
        TensorGroup("layers.#.ffn.experts.*.w1.trellis", 0, 1, size(111.16)),
        TensorGroup("mtp.#.ffn.experts.*.w1.trellis", 0, 1, size(7.39)),
        TensorGroup("layers.#.engram.embed.weight", 1, 1, size(189.13)),
    )
)


RUNS = "812 python3 -m spark_exl3"


def settings_of(*said: str):
    options = [Option(*one.partition("=")[::2], "test") for one in ("RECIPE=dsv41-sage-exl3-1x", *said)]
    return load(Path("/nowhere"), environ={}, options=options).settings


def planned(settings, available: float, free: float = 3.0):
    info = MemInfo(*(size(one) for one in (121.69, free, available)))
    (plan,) = plan_nodes(settings, (PACK,), (MemoryFacts("spark", info, has_gpu=True),), (None,))
    return plan


@pytest.mark.parametrize(
    ("said", "gib"),
    [
        (("EXL3_PROFILE=measured",), 111.16),
        (("EXL3_PROFILE=aliased",), 0.0),
        (("EXL3_PROFILE=nodraft",), 118.55),
        (("EXL3_ATS_COPY=nothing",), 0.0),
        ((r"EXL3_ATS_COPY=^mtp\.",), 7.39),
    ],
)
def test_what_is_copied_follows_from_the_names(said, gib):
    assert resident(settings_of(*said), PACK) / GIB == pytest.approx(gib, abs=0.01)


@pytest.mark.parametrize(
    ("profile", "available", "fit"),
    [
        ("measured", 118.0, "fits"),
        ("measured", 117.0, "short"),
        ("aliased", 118.0, "fits"),
        ("aliased", 5.0, "short"),
        ("nodraft", 121.0, "never"),
    ],
)
def test_a_profile_fits_a_spark_or_not(profile, available, fit):
    settings = settings_of(f"EXL3_PROFILE={profile}")
    assert judge(planned(settings, available)).value == fit
    assert report(settings, PACK, (planned(settings, available),)).fit.value == fit


def test_a_refusal_says_what_to_choose_instead():
    findings = {
        one.id: one
        for one in check_memory(
            settings_of("EXL3_PROFILE=nodraft"), planned(settings_of("EXL3_PROFILE=nodraft"), 121.0)
        )
    }
    assert findings["MEM.BOOT_MARGIN"].severity is Severity.REFUSAL
    assert findings["MEM.BOOT_MARGIN"].fix == "spark has 121.7 GiB in all: set EXL3_PROFILE=measured or aliased"


def test_nothing_is_dropped_and_nobody_is_told_to():
    settings, plan = settings_of(), planned(settings_of(), 118.0, free=0.5)
    forced = replace(settings, tuning=replace(settings.tuning, drop_page_cache=True))
    assert not wants_drop(forced, plan)
    free = next(one for one in check_memory(settings, plan) if one.id == "MEM.FREE")
    assert (free.severity, free.observed, free.fix) == (
        Severity.OK,
        "0.5 GiB free; the page cache holds the weights",
        "",
    )


@pytest.mark.parametrize(
    ("mode", "severity"),
    [("ATS", Severity.OK), ("HMM", Severity.REFUSAL), ("", Severity.WARNING), (None, Severity.WARNING)],
)
def test_only_ats_can_read_the_page_cache(mode, severity):
    seen = replace(facts("spark"), addressing=mode)
    assert [(one.id, one.severity) for one in check_addressing(settings_of(), seen)] == [("EXL3.ATS", severity)]


def test_vllm_is_not_asked_for_an_addressing_mode():
    options = [Option(*one.partition("=")[::2], "test") for one in ("RECIPE=demo", "MODEL_DIR=/m", "VENV=/v")]
    assert check_addressing(load(Path("/nowhere"), environ={}, options=options).settings, facts("spark")) == ()


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (None, []),
        ((), [(Severity.OK, "")]),
        (
            ("812 python3 -m spark_exl3",),
            [(Severity.REFUSAL, "stop it with what started it, or kill 812   (on spark)")],
        ),
    ],
)
def test_a_box_has_one_native_server(servers, expected):
    seen = replace(facts("spark"), servers=servers)
    assert [(one.severity, one.fix) for one in check_alone(settings_of(), seen)] == expected


def test_vllm_does_not_mind_a_native_server():
    options = [Option("RECIPE", "demo", "test"), Option("MODEL_DIR", "/m", "test"), Option("VENV", "/v", "test")]
    seen = replace(facts("spark"), servers=(RUNS,))
    assert check_alone(load(Path("/nowhere"), environ={}, options=options).settings, seen) == ()
