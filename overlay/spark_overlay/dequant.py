"""FP8 rows with one power of two per 32 columns, as bfloat16. A reference for the CPU, one Triton kernel for the GPU.

A scale byte is the exponent of its factor, 2^(byte - 127), and 255 is "not a number", as float8_e8m0fnu has it. Every
product has four significant bits, so that only the smallest bfloat16 values are ever rounded.
"""

import torch

BLOCK = 32  # columns that share a scale


def dequantise(weights: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> None:
    """[rows, columns] of float8_e4m3fn and [rows, columns / 32] of uint8 into bfloat16 of the rows' total size."""
    check(weights, scales, out)
    if not weights.numel():
        return
    if weights.device.type == "cpu":
        out.view(weights.shape).copy_(reference(weights, scales))
        return
    # Triton is there wherever a GPU is, and only there.
    from spark_overlay.dequant_kernel import launch

    launch(weights, scales, out)


def check(weights: torch.Tensor, scales: torch.Tensor, out: torch.Tensor) -> None:
    """Rows taken for plain bytes would be thirty times too large, and fluent: the types have to be right."""
    types = (weights.dtype, scales.dtype, out.dtype)
    if types != (torch.float8_e4m3fn, torch.uint8, torch.bfloat16):
        raise TypeError(f"rows are float8_e4m3fn, scales uint8 and values bfloat16, not {types}")
    rows, columns = weights.shape
    if scales.shape != (rows, columns // BLOCK) or columns % BLOCK or out.numel() != weights.numel():
        raise ValueError(f"{tuple(weights.shape)} rows, {tuple(scales.shape)} scales and {tuple(out.shape)} do not fit")
    if not (weights.is_contiguous() and scales.is_contiguous() and out.is_contiguous()):
        raise ValueError("rows, scales and values must be contiguous")


def reference(weights: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The same in float32, which holds every product exactly, one rounding to bfloat16 at the end."""
    rows, columns = weights.shape
    bits = scales.to(torch.int32) << 23
    bits[scales == 0] = 1 << 22  # 2^-127 is below the smallest normal number
    bits[scales == 255] = 0x7FC00000
    factors = bits.view(torch.float32)
    values = weights.to(torch.float32).view(rows, columns // BLOCK, BLOCK) * factors[:, :, None]
    return values.view(rows, columns).to(torch.bfloat16)
