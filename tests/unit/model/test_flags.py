"""What settings say to every rank: flags and variables, each once, in one order."""

from decimal import Decimal
from typing import Any

import pytest

from cluster.model.flags import serve_flags, variables
from cluster.model.serve import Serve, Speculation
from cluster.model.settings import SECTIONS, NodeSettings, Settings
from cluster.model.tuning import Nccl, Tuning
from cluster.model.units import Bytes, Seconds

ALWAYS = ("--tensor-parallel-size", "2", "--pipeline-parallel-size", "1")


def settings(**sections: Any) -> Settings:
    whole = {name: cls() for name, cls in SECTIONS.items()} | sections
    return Settings(deployment="x", recipe="", nodes=(NodeSettings(), NodeSettings()), **whole)


def flags(**values: Any) -> tuple[str, ...]:
    return tuple(word for word in serve_flags(settings(serve=Serve(**values))) if word not in ALWAYS)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ()),
        ({"served_model_name": "m"}, ("--served-model-name", "m")),
        ({"kv_cache_memory_bytes": Bytes(67108864)}, ("--kv-cache-memory-bytes", "67108864")),
        ({"gpu_memory_utilization": Decimal("0.88")}, ("--gpu-memory-utilization", "0.88")),
        ({"enforce_eager": True}, ("--enforce-eager",)),
        ({"language_model_only": False}, ()),
        ({"quantization": "exl3"}, ("--quantization", "exl3")),
        ({"quantization": "none"}, ()),
        ({"speculative_tokens": 5}, ()),
        (
            {"speculation": Speculation.DSPARK, "speculative_tokens": 5},
            ("--speculative-config", '{"method":"dspark","num_speculative_tokens":5}'),
        ),
        (
            {"limit_mm": '{"image":9}', "skip_mm_profiling": True},
            ("--limit-mm-per-prompt", '{"image":9}', "--skip-mm-profiling"),
        ),
        ({"limit_mm": '{"image":9}', "language_model_only": True}, ("--language-model-only",)),
        ({"flags": (("a", ()), ("b", ("x",)), ("c", ("3", "4")))}, ("--a", "--b", "x", "--c", "3", "4")),
        ({"flags": (("a", ("x",)),), "extra_args": ("--a=y",)}, ()),
        ({"flags": (("cudagraph-capture-sizes", ("3",)),), "enforce_eager": True}, ("--enforce-eager",)),
    ],
)
def test_a_setting_becomes_its_flag(values, said):
    assert flags(**values) == said


def test_variables_come_from_settings_and_the_environment_map_wins():
    launch = SECTIONS["launch"](environment=(("A", ""), ("EXL3_FUSED_MOE", "9")))
    watch = SECTIONS["watch"](ready_timeout=Seconds(90.5))
    tuning = Tuning(fused_moe=True, fat_kernel=False, pretune_sizes=(1, 2), temp_rows_fused=0)
    given = settings(launch=launch, watch=watch, nccl=Nccl(proto="^LL128"), tuning=tuning)
    assert variables(given) == (
        ("A", ""),
        ("DSV41_EXL3_PRETUNE_SIZES", "1,2"),
        ("EXL3_FAT_KERNEL", "0"),
        ("EXL3_FUSED_MOE", "9"),
        ("EXL3_TEMP_ROWS_FUSED", "0"),
        ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_SUBSYS", "INIT,ENV,NET"),
        ("NCCL_PROTO", "^LL128"),
        ("VLLM_ENGINE_READY_TIMEOUT_S", "91"),
    )
