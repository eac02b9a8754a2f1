"""The GPU's half of `dequant`: one pass, each byte read once and each value written once.

A program takes whole groups of 32 columns, so that a scale is read and turned into a factor once for all of them, and
`WIDTH` columns of a thread: eight of them fill the widest store there is, 16 bytes, without gaps between threads.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class Variant:
    """How the work is cut. What is computed is the same for all."""

    groups: int  # of one program
    warps: int
    width: int = 8
    eviction: str = ""


# From a batch that fills the GPU on, by the number of groups; see scripts/gpu_engram.py --tune.
FROM_GROUPS = ((1 << 15, Variant(groups=64, warps=4)), (0, Variant(groups=32, warps=4)))


@triton.jit  # type: ignore[untyped-decorator]
def _dequantise(  # type: ignore[no-untyped-def]  # noqa: ANN202
    weights,  # noqa: ANN001
    scales,  # noqa: ANN001
    out,  # noqa: ANN001
    groups,  # noqa: ANN001
    GROUPS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr,  # noqa: N803
    EVICTION: tl.constexpr,  # noqa: N803
):
    first = tl.program_id(0).to(tl.int64) * GROUPS
    group = tl.arange(0, GROUPS)
    is_group = group < groups - first
    scale = tl.load(scales + first + group, mask=is_group, other=127).to(tl.int32)
    bits = tl.where(scale == 0, 1 << 22, scale << 23)
    bits = tl.where(scale == 255, 0x7FC00000, bits)
    factor = bits.to(tl.float32, bitcast=True)
    at = group[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = tl.max_contiguous(tl.multiple_of(at, [1, WIDTH]), [1, WIDTH])
    mask = is_group[:, None]
    value = tl.load(weights + first * BLOCK + at, mask=mask, other=0.0, eviction_policy=EVICTION).to(tl.float32)
    tl.store(out + first * BLOCK + at, (value * factor[:, None]).to(tl.bfloat16), mask=mask, eviction_policy=EVICTION)


def launch(weights: torch.Tensor, scales: torch.Tensor, out: torch.Tensor, variant: Variant | None = None) -> None:
    groups = scales.numel()
    chosen = variant or next(one for least, one in FROM_GROUPS if groups >= least)
    grid = ((groups + chosen.groups - 1) // chosen.groups,)
    _dequantise[grid](
        *(weights, scales, out, groups),
        GROUPS=chosen.groups,
        BLOCK=32,
        WIDTH=chosen.width,
        EVICTION=chosen.eviction,
        num_warps=chosen.warps,
    )
