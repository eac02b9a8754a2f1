"""The patch for wide windows: merged slices against one softmax in float64, and the calls that the helper makes."""

import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch", reason="not run: torch is not installed")

PATCHES = Path(__file__).resolve().parents[2] / "cluster" / "patches" / "vllm-deepseek-v4.yaml"
HEADS, DIM, WIDTH, SLICE = 4, 512, 512, 128


def helper() -> dict[str, Any]:
    found = next(one for one in yaml.safe_load(PATCHES.read_text())["patches"] if one["id"] == "wide-window-merge")
    names: dict[str, Any] = {"torch": torch}
    exec(found["text"], names)  # the very text that the patch puts in
    return names


@dataclass
class Case:
    """Scores and values of one window per row; entries from `length` on do not count."""

    scores: Any
    values: Any
    lengths: Any
    sink: Any

    def part(self, first: int, width: int, with_sink: bool) -> tuple[Any, Any]:
        """What the kernel gives for a slice, in float32; garbage where it has no key."""
        left = (self.lengths - first).clamp(0, width)
        scores = self.scores[:, :, first : first + width].clone()
        scores.masked_fill_((torch.arange(width, device=left.device) >= left[:, None])[:, None], -torch.inf)
        lse = torch.logsumexp(scores, -1)
        values = torch.einsum("thk,tkd->thd", torch.softmax(scores, -1), self.values[:, first : first + width])
        if with_sink:
            values = values * torch.sigmoid(lse - self.sink)[..., None]
            lse = torch.logaddexp(lse, self.sink)
        dead = left == 0
        values[dead] = torch.nan
        return values, lse.masked_fill(dead[:, None], -torch.inf)

    def whole(self) -> Any:
        scores = self.scores.double()
        scores = scores.masked_fill(
            (torch.arange(WIDTH, device=self.lengths.device) >= self.lengths[:, None])[:, None], -torch.inf
        )
        sink = self.sink.double().expand(scores.shape[:2])[..., None]
        weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
        return torch.einsum("thk,tkd->thd", weights, self.values.double())


def case(lengths: list[int], spread: float, device: str = "cpu") -> Case:
    torch.manual_seed(len(lengths) + int(spread))
    rows = len(lengths)
    return Case(
        torch.randn(rows, HEADS, WIDTH).to(device) * spread,
        torch.randn(rows, WIDTH, DIM).to(device),
        torch.tensor(lengths).to(device),
        torch.randn(HEADS).to(device),
    )


ROWS = {
    "random": [512, 300, 129, 128, 127, 257, 400, 64],
    "one row": [333],
    "one key": [1, 1, 1],
    "some empty": [0, 512, 0, 200],
    "all dead": [0, 0, 0],
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("rows", ROWS)
def test_merged_slices_are_one_softmax(rows, spread, device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("not run: no GPU")
    given = case(ROWS[rows], spread, device)
    parts = (given.part(first, SLICE, first == 0) for first in range(0, WIDTH, SLICE))
    merged = helper()["merge_by_lse"](parts)
    want = given.whole()
    assert torch.isfinite(merged).all()
    assert (merged.double() - want).abs().max() <= 1e-5 * max(1.0, float(want.abs().max()))
    assert (merged[given.lengths == 0] == 0).all()


def test_the_kernel_is_asked_slice_by_slice(monkeypatch):
    """A stand-in for the kernel's module, which needs the GPU: it computes each slice in plain torch."""
    given = case([512, 100, 300], 1.0)
    asked: list[tuple[int, bool, bool]] = []

    @dataclass
    class Segment:
        indices: Any
        lengths: Any
        kv_cache: Any = None

    def kernel(*, sparse_mla_segments: list[Segment], sinks: Any, return_lse: bool, query: Any, **_: Any) -> Any:
        first = int(sparse_mla_segments[0].indices[0, 0])
        asked.append((first, sinks is not None, len(sparse_mla_segments) == 2))
        assert return_lse
        values, lse = given.part(first, SLICE, sinks is not None)
        return values[:, None].to(query.dtype), lse

    core = types.ModuleType("flashinfer.mla._core")
    core.__dict__.update(
        _SparseMLASegment=Segment,
        _trtllm_batch_decode_sparse_mla_sm120=kernel,
        _check_sm120_dsv4_kv_cache_layout=lambda cache, layout, name: cache,
    )
    mla = types.ModuleType("flashinfer.mla")
    mla.__dict__["_core"] = core
    monkeypatch.setitem(sys.modules, "flashinfer", types.ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.mla", mla)
    monkeypatch.setitem(sys.modules, "flashinfer.mla._core", core)
    out = torch.empty(3, HEADS, DIM)
    helper()["wide_window_attention"](
        query=torch.zeros(3, HEADS, DIM), swa_kv_cache=None, workspace=None,
        indices=torch.arange(WIDTH).expand(3, WIDTH), lengths=given.lengths, compressed_kv_cache=object(),
        extra_indices=torch.zeros(3, 1), extra_lengths=torch.zeros(3), scale=1.0, sinks=given.sink, out=out,
    )  # fmt: skip
    assert asked == [(0, True, True), (128, False, False), (256, False, False), (384, False, False)]
    want = given.whole()
    assert (out.double() - want).abs().max() <= 1e-5 * float(want.abs().max())


def test_a_window_that_does_not_divide_is_refused(monkeypatch):
    mla = types.ModuleType("flashinfer.mla")
    mla.__dict__["_core"] = None
    monkeypatch.setitem(sys.modules, "flashinfer", types.ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.mla", mla)
    with pytest.raises(ValueError, match="a window of 200 entries does not divide into slices of 128"):
        helper()["wide_window_attention"](
            query=torch.zeros(1, 1, 1), swa_kv_cache=None, workspace=None, indices=torch.zeros(1, 200),
            lengths=None, compressed_kv_cache=None, extra_indices=None, extra_lengths=None, scale=1.0,
            sinks=None, out=None,
        )  # fmt: skip
