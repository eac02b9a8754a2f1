"""Dequantised rows are exact: every code, every scale, on the CPU and in the kernel."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed here")

from spark_overlay.dequant import dequantise, reference  # noqa: E402  # only where torch is


def every_code():
    """Each of the 256 codes of e4m3 under each of the 256 scales: 2,048 rows of 32 different columns of it."""
    codes = torch.arange(256, dtype=torch.uint8)
    weights = codes.view(1, 256).repeat(256, 1)
    scales = codes.view(256, 1).repeat(1, 8)
    return weights.contiguous().view(torch.float8_e4m3fn), scales.contiguous()


def in_float64(weights, scales):
    """The definition, and torch's rounding to bfloat16."""
    factors = torch.pow(torch.tensor(2.0, dtype=torch.float64), scales.to(torch.float64) - 127)
    factors[scales == 255] = float("nan")
    values = weights.to(torch.float32).to(torch.float64).view(-1, 8, 32) * factors[:, :, None]
    return values.view(-1, 256).to(torch.bfloat16)


def same(left, right):
    return torch.equal(left.view(torch.int16)[~left.isnan()], right.view(torch.int16)[~right.isnan()]) and torch.equal(
        left.isnan(), right.isnan()
    )


def numbers_only(weights):
    """Triton's interpreter reads the code for "not a number" as 480, and it rounds values wrong that bfloat16 holds
    with fewer bits (scales below 10). GPUs do neither: their own check covers every code and every scale.
    """
    codes = weights.view(torch.uint8).clone()
    codes[(codes & 0x7F) == 0x7F] = 0
    return codes.view(torch.float8_e4m3fn)


def test_the_reference_is_exact_for_every_code_and_scale():
    weights, scales = every_code()
    assert same(reference(weights, scales), in_float64(weights, scales))


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # numpy, in the interpreter
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 246])
def test_the_kernel_is_exact_for_every_code_and_scale(rows):
    kernel = pytest.importorskip("spark_overlay.dequant_kernel", reason="triton is not installed here")
    weights, scales = (tensor[-rows:].contiguous() for tensor in every_code())
    weights = numbers_only(weights)
    out = torch.full((rows, 256), 7.0, dtype=torch.bfloat16)
    kernel.launch(weights, scales, out)
    assert same(out, in_float64(weights, scales))


def test_dead_rows_are_zero():
    out = torch.ones(3, 256, dtype=torch.bfloat16)
    dequantise(torch.zeros(3, 256).to(torch.float8_e4m3fn), torch.zeros(3, 8, dtype=torch.uint8), out)
    assert torch.equal(out.view(torch.int16), torch.zeros(3, 256, dtype=torch.int16))


def test_spoiled_rows_are_no_numbers():
    weights = torch.full((1, 256), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
    assert reference(weights, torch.tensor([[0, 1, 100, 127, 128, 200, 254, 255]], dtype=torch.uint8)).isnan().all()


def test_the_result_may_have_another_shape():
    weights, scales = every_code()
    out = torch.empty(64, 4, 256, dtype=torch.bfloat16)
    dequantise(weights, scales, out)
    assert same(out.view(256, 256), in_float64(weights, scales))


@pytest.mark.parametrize(
    ("position", "dtype"), [(0, torch.uint8), (1, torch.int8), (1, torch.float8_e8m0fnu), (2, torch.float32)]
)
def test_other_types_are_refused(position, dtype):
    tensors = [
        torch.zeros(2, 256).to(torch.float8_e4m3fn),
        torch.zeros(2, 8, dtype=torch.uint8),
        torch.zeros(2, 256, dtype=torch.bfloat16),
    ]
    tensors[position] = tensors[position].view(torch.uint8).view(dtype) if position < 2 else tensors[2].to(dtype)
    with pytest.raises(TypeError):
        dequantise(*tensors)


@pytest.mark.parametrize(
    "shapes", [((2, 256), (2, 4), (2, 256)), ((2, 256), (2, 8), (3, 256)), ((2, 40), (2, 1), (2, 40))]
)
def test_shapes_that_do_not_fit_are_refused(shapes):
    weights, scales, out = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match="do not fit"):
        dequantise(weights.to(torch.float8_e4m3fn), scales.to(torch.uint8), out.to(torch.bfloat16))
