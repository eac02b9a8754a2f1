"""Whether the packages of this image work: here, and on the GPU where SPARKCTL_SELF_TEST=gpu asks for it.

Arguments: the distributions that must be there. One line for each thing that was tried; the first failure ends it.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def versions(names: list[str]) -> None:
    for name in names:
        print(name, importlib.metadata.version(name))


def overlay() -> None:
    """Its library loads, vLLM would find it, and rows come out of bytes as they should."""
    import torch
    from spark_overlay import row_store
    from spark_overlay.dequant import dequantise

    row_store.load_library()
    found = [one.name for one in importlib.metadata.entry_points(group="vllm.general_plugins")]
    check("spark_overlay" in found, f"vLLM finds these plugins alone: {found}")
    rows, scales, wanted = sample()
    made = torch.empty(rows.numel(), dtype=torch.bfloat16)
    dequantise(rows, scales, made)
    check(torch.equal(made.view(wanted.shape), wanted), "rows come out wrong on the CPU")
    print("spark-overlay: library, plugin and rows: ok")


def sample() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All 256 bytes of a row under a scale of each kind, and their values by the format's definition."""
    import torch

    bits = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    rows = bits.repeat(3, 1).view(torch.float8_e4m3fn)
    rows = torch.where(rows.to(torch.float32).isnan(), torch.zeros(()), rows.to(torch.float32)).to(torch.float8_e4m3fn)
    scales = torch.tensor([[127] * 8, [120] * 8, [134] * 8], dtype=torch.uint8)
    factors = torch.tensor([[1.0], [2.0**-7], [2.0**7]])
    return rows, scales, (rows.to(torch.float32) * factors).to(torch.bfloat16)


def gpu(names: list[str]) -> None:
    """The GPU is there, multiplies, and runs a kernel that was compiled just now."""
    import torch

    check(torch.cuda.is_available(), "torch sees no GPU here")
    major, minor = torch.cuda.get_device_capability(0)
    print(f"GPU {torch.cuda.get_device_name(0)}, compute capability {major}.{minor}, CUDA {torch.version.cuda}")
    torch.manual_seed(7)
    left, right = torch.randn(256, 512), torch.randn(512, 256)
    made = (left.cuda().bfloat16() @ right.cuda().bfloat16()).float().cpu()
    wanted = left.bfloat16().float() @ right.bfloat16().float()
    worst = float((made - wanted).abs().max() / wanted.abs().max())
    check(worst < 0.01, f"a product is wrong by {worst:.3f} of its largest value")
    print(f"product of matrices: {worst:.5f} off: ok")
    compiled_now()
    if "spark-overlay" in names:
        overlay_on_gpu()
    if "exllamav3" in names:
        import exllamav3_ext  # noqa: F401  after torch, whose libraries it needs

        print("exllamav3: extension loads: ok")


def compiled_now() -> None:
    """Triton compiles with the image's C compiler and headers, and caches in its HOME."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def double(values, count, block: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        at = tl.program_id(0) * block + tl.arange(0, block)
        tl.store(values + at, tl.load(values + at, mask=at < count) * 2, mask=at < count)

    values = torch.arange(1000, dtype=torch.float32, device="cuda")
    double[(4,)](values, 1000, block=256)
    check(torch.equal(values.cpu(), torch.arange(1000, dtype=torch.float32) * 2), "a compiled kernel computes wrongly")
    print(f"triton {triton.__version__} compiles and runs: ok")


def overlay_on_gpu() -> None:
    import torch
    from spark_overlay.dequant import dequantise

    rows, scales, wanted = sample()
    made = torch.empty(rows.numel(), dtype=torch.bfloat16, device="cuda")
    dequantise(rows.cuda(), scales.cuda(), made)
    check(torch.equal(made.cpu().view(wanted.shape), wanted), "rows come out wrong on the GPU")
    print("spark-overlay: kernel on the GPU: ok")


def check(ok: bool, otherwise: str) -> None:
    if not ok:
        sys.exit(f"self-test: {otherwise}")


if __name__ == "__main__":
    asked = sys.argv[1:]
    versions(asked)
    if "spark-overlay" in asked:
        overlay()
    if os.environ.get("SPARKCTL_SELF_TEST") == "gpu":
        gpu(asked)
