"""The dequant kernel on a GPU: exact for every code and scale, its pace beside a copy's, its variants side by side."""

import json
import sys
from typing import Any

import torch
from spark_overlay.dequant import dequantise, reference

GPU = torch.device("cuda", 0)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal bits, and "not a number" in the same places."""
    left, right = left.cpu().flatten(), right.cpu().flatten()
    are_numbers = ~left.isnan()
    if not torch.equal(are_numbers, ~right.isnan()):
        return False
    return bool(torch.equal(left.view(torch.int16)[are_numbers], right.view(torch.int16)[are_numbers]))


def seconds(act: Any, times: int = 20) -> float:
    """The median of single runs, timed by the GPU."""
    for _ in range(3):
        act()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for begin, end in pairs:
        begin.record()
        act()
        end.record()
    torch.cuda.synchronize()
    return float(sorted(begin.elapsed_time(end) for begin, end in pairs)[times // 2]) / 1e3


def every_code() -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.arange(256, dtype=torch.uint8)
    weights = codes.view(1, 256).repeat(256, 1).contiguous().view(torch.float8_e4m3fn)
    return weights, codes.view(256, 1).repeat(1, 8).contiguous()


def in_float64(weights: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    factors = torch.pow(torch.tensor(2.0, dtype=torch.float64), scales.to(torch.float64) - 127)
    factors[scales == 255] = float("nan")
    values = weights.to(torch.float32).to(torch.float64).view(-1, 8, 32) * factors[:, :, None]
    return values.view(-1, 256).to(torch.bfloat16)


def check_dequant(rows: int) -> dict[str, Any]:
    weights, scales = every_code()
    out = torch.empty(256, 256, dtype=torch.bfloat16, device=GPU)
    dequantise(weights.to(GPU), scales.to(GPU), out)
    is_exact = same(out, in_float64(weights, scales)) and same(reference(weights, scales), in_float64(weights, scales))
    big = torch.randint(0, 127, (rows, 256), dtype=torch.uint8, device=GPU).view(torch.float8_e4m3fn)
    factors = torch.randint(118, 130, (rows, 8), dtype=torch.uint8, device=GPU)
    values = torch.empty(rows, 256, dtype=torch.bfloat16, device=GPU)
    copy_from = torch.empty(rows * 384, dtype=torch.uint8, device=GPU)
    copy_to = torch.empty_like(copy_from)
    copy = 2 * copy_from.numel() / seconds(lambda: copy_to.copy_(copy_from))
    ours = rows * (264 + 512) / seconds(lambda: dequantise(big, factors, values))

    def few(count: int) -> float:
        return round(seconds(lambda: dequantise(big[:count], factors[:count], values[:count])) * 1e6, 1)

    only_written = values.numel() * 2 / seconds(lambda: values.fill_(1.0))
    return {
        "dequant_is_exact": is_exact,
        "dequant_over_copy": round(ours / copy, 3),
        "copy_gb_per_s": round(copy / 1e9, 1),
        "dequant_gb_per_s": round(ours / 1e9, 1),
        "fill_gb_per_s": round(only_written / 1e9, 1),
        "dequant_us_48_rows": few(48),
        "dequant_us_12288_rows": few(12_288),
    }


def variants() -> list[Any]:
    from spark_overlay.dequant_kernel import Variant

    plain = [
        Variant(groups, warps, width)
        for width in (8, 16, 4)
        for warps in (2, 4, 8)
        for groups in (16, 32, 64, 128, 256, 512)
        if 4 <= groups * 32 // (warps * 32) <= 128
    ]
    return [*plain, *(Variant(groups, 4, 8, "evict_first") for groups in (32, 64, 128, 256))]


def tune(rows: int) -> int:
    """Every variant on one large batch, on a prefill chunk and on a decode step. A table, then JSON; 1 if any is wrong.

    The large batch is far larger than any cache. Bytes are counted as moved: a row's 264 read, its 512 written; the
    copy's read and written. Each variant takes its turn three times, and its best time counts.
    """
    from spark_overlay.dequant_kernel import launch

    every, every_scales = every_code()
    every, every_scales, exact = every.to(GPU), every_scales.to(GPU), in_float64(*every_code())
    big = torch.randint(0, 127, (rows, 256), dtype=torch.uint8, device=GPU).view(torch.float8_e4m3fn)
    factors = torch.randint(118, 130, (rows, 8), dtype=torch.uint8, device=GPU)
    values = torch.empty(rows, 256, dtype=torch.bfloat16, device=GPU)
    source = torch.empty(rows * 384, dtype=torch.uint8, device=GPU)
    target = torch.empty_like(source)
    wrong: list[str] = []
    took: dict[Any, list[float]] = {}
    copies: list[float] = []
    for variant in variants():
        out = torch.zeros(256, 256, dtype=torch.bfloat16, device=GPU)
        launch(every, every_scales, out, variant)
        odd = torch.zeros(77, 256, dtype=torch.bfloat16, device=GPU)
        launch(every[:77], every_scales[:77], odd, variant)
        if not (same(out, exact) and same(odd, exact[:77])):
            wrong.append(str(variant))
    for turn in range(3):
        copies.append(seconds(lambda: target.copy_(source), 10))
        for variant in variants():
            for count in (rows, 12_288, 48):
                part = (big[:count], factors[:count], values[:count])
                time_of = seconds(lambda part=part, variant=variant: launch(*part, variant), 10)
                took.setdefault((variant, count), []).append(time_of)
        print(f"turn {turn + 1} of 3", file=sys.stderr)
    copy = 2 * source.numel() / min(copies)
    ranked = sorted(variants(), key=lambda variant: min(took[variant, rows]))
    print(f"copy {copy / 1e9:.0f} GB/s")
    print("groups warps width eviction     GB/s  of copy   us 12288 rows   us 48 rows")
    for one in ranked:
        pace = rows * (264 + 512) / min(took[one, rows])
        chunk, step = (min(took[one, count]) * 1e6 for count in (12_288, 48))
        print(
            f"{one.groups:6} {one.warps:5} {one.width:5} {one.eviction or '-':11} {pace / 1e9:6.0f} {pace / copy:8.3f}"
            f" {chunk:15.1f} {step:12.1f}"
        )
    best = {f"best_for_{count}_rows": str(min(ranked, key=lambda one: min(took[one, count]))) for count in (48, 12_288)}
    pace = rows * (264 + 512) / min(took[ranked[0], rows])
    result = {"best": str(ranked[0]), "best_over_copy": round(pace / copy, 3), **best, "wrong": wrong}
    print(json.dumps(result))
    return 1 if wrong else 0
