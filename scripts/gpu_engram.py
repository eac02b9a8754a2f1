#!/usr/bin/env python3
"""Prove the Engram path on a GPU: exact values, vLLM's own kernels as the oracle, pace against the copy bandwidth.

    python3 scripts/gpu_engram.py [--vllm-engram FILE] [--rows N] [--folder DIR]
    python3 scripts/gpu_engram.py --tune [--rows N]      the dequant kernel's variants, side by side

Builds the row store, makes synthetic tables, looks them up as a server would. FILE is vLLM's own
vllm/models/deepseek_v41/common/engram.py; without it the comparison is left out, and the result says so.
The last line is JSON; exit code 1 when anything is not exact.
"""

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "overlay")]

from spark_overlay import engram_backend, engram_layout  # noqa: E402  # found only after the line above
from spark_overlay.dequant import dequantise, reference  # noqa: E402
from spark_overlay.row_store import Options, RowStoreError  # noqa: E402
from spark_overlay.settings import EngramSettings  # noqa: E402

GPU = torch.device("cuda", 0)
CONFIG = SimpleNamespace(
    engram_layer_ids=[1, 14],
    engram_vocab_size=20_000,
    engram_compressed_vocab_size=9_000,
    engram_n_heads=8,
    engram_max_ngram_size=4,
    engram_head_dim=256,
    engram_pad_token_id=2,
)
HASHES = engram_layout.layer_hashes(CONFIG)
CONFIG.engram_num_embeddings = [int(hashed.sizes.sum()) for hashed in HASHES]
TOKENS = 1_536
KERNELS = ("_engram_lookup_kernel", "_hash_ids_kernel")


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


def make_tables(folder: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Both layers' tables in memory, and packed for one, two and four ranks."""
    made = []
    for hashed, rows in zip(HASHES, CONFIG.engram_num_embeddings, strict=True):
        weight = torch.randint(0, 127, (rows, 256), dtype=torch.uint8)
        weight |= torch.randint(0, 2, (rows, 256), dtype=torch.uint8) << 7
        scale = torch.randint(118, 130, (rows, 8), dtype=torch.uint8)
        joined = torch.cat([weight, scale], dim=1).numpy()
        for ranks in (1, 2, 4):
            for rank in range(ranks):
                own = engram_layout.owned_rows(hashed.sizes, rank, ranks)
                fields = np.array([hashed.layer, own.start, own.stop, rows, 264], "<u8")
                header = (b"DSV1EN41" + fields.tobytes()).ljust(4096, b"\0")
                with (folder / f"engram-l{hashed.layer}-r{rank}of{ranks}.bin").open("wb") as file:
                    file.write(header)
                    file.write(joined[own.start : own.stop].tobytes())
        made.append((weight.view(torch.float8_e4m3fn), scale))
    return made


class Groups:
    """What the file-backed class takes from vLLM's module, for one process that plays every rank."""

    def __init__(self) -> None:
        self.rank, self.ranks = 0, 1

    def module(self) -> Any:
        groups = self

        class Base(nn.Module):  # type: ignore[misc]  # torch is not where this is checked
            def _get_shard_info(self) -> tuple[int, int]:
                return groups.ranks, groups.rank

        def set_weight_attrs(tensor: Any, attributes: dict[str, Any]) -> None:
            for name, value in attributes.items():
                setattr(tensor, name, value)

        config = SimpleNamespace(
            model_config=SimpleNamespace(hf_text_config=CONFIG),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=TOKENS),
        )
        return SimpleNamespace(
            ParallelEngramEmbedding=Base,
            get_engram_dp_size=lambda: 1,
            get_tensor_model_parallel_world_size=lambda: groups.ranks,
            get_current_vllm_config=lambda: config,
            set_weight_attrs=set_weight_attrs,
        )


def table_of(groups: Groups, folder: Path, layer: int, rank: int, ranks: int) -> Any:
    groups.rank, groups.ranks = rank, ranks
    settings = EngramSettings(folder, None, Options(), report_every=0.0)
    kind = engram_backend.file_backed(groups.module(), settings)
    return kind(CONFIG.engram_num_embeddings[layer], 256, tuple(HASHES[layer].sizes.tolist()), cpu_offload=True)


def hashes_of(tokens: int, seed: int) -> tuple[np.ndarray, torch.Tensor]:
    """Compressed ids of a prompt with dead tokens, and its rows as the model holds them: both layers side by side."""
    ids = np.random.default_rng(seed).integers(0, CONFIG.engram_compressed_vocab_size, tokens)
    ids[7::97] = engram_layout.DEAD
    rows = np.stack([engram_layout.hash_rows(hashed, ids, CONFIG.engram_pad_token_id) for hashed in HASHES], axis=1)
    rows[7::97] = engram_layout.DEAD
    return ids, torch.from_numpy(rows).to(GPU)


def looked_up(table: Any, hashes: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    """As vLLM does it: on a stream of its own, into a buffer that lives on."""
    out = torch.full((len(hashes), table.part_n_hash_cols, 256), 9.0, dtype=torch.bfloat16, device=GPU)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        table.lookup(hashes, out, background=True)
    torch.cuda.current_stream().wait_stream(stream)
    return out


def plain_rows(tables: list[Any], hashes: torch.Tensor, layer: int) -> torch.Tensor:
    weights, scales = tables[layer]
    ids = hashes[:, layer].cpu().long()
    rows = reference(weights, scales)[ids.clamp(min=0)]
    rows[ids < 0] = 0
    return rows


def check_lookups(folder: Path, tables: list[Any], kernels: ModuleType | None) -> dict[str, Any]:
    groups, stream = Groups(), torch.cuda.Stream()
    are_equal = is_oracle_equal = True
    for ranks in (1, 2, 4):
        for layer in (0, 1):
            every = [table_of(groups, folder, layer, rank, ranks) for rank in range(ranks)]
            for tokens in (1, 4, 333, TOKENS):
                _, hashes = hashes_of(tokens, seed=tokens + ranks)
                parts = [looked_up(table, hashes[:, layer], stream) for table in every]
                are_equal &= same(torch.cat(parts, dim=1)[:, :24], plain_rows(tables, hashes, layer))
                for table, part in zip(every, parts, strict=True):
                    if kernels:
                        is_oracle_equal &= same(part, by_their_lookup(kernels, tables[layer], table, hashes[:, layer]))
    return {
        "lookups_equal_a_plain_gather": are_equal,
        "lookups_equal_vllms_kernel": is_oracle_equal if kernels else None,
    }


def load_kernels(path: Path, folder: Path) -> ModuleType:
    """The two kernels alone: the module itself needs all of vLLM."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in KERNELS]
    lines = path.read_text(encoding="utf-8").splitlines()
    parts = ["import triton", "import triton.language as tl", "_SORTED_IS_CONSTEXPR = tl.constexpr(False)"]
    for node in wanted:
        first = min(decorator.lineno for decorator in node.decorator_list)
        parts.append("\n".join(lines[first - 1 : node.end_lineno]))
    target = folder / "their_kernels.py"
    target.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    specification = importlib.util.spec_from_file_location("their_kernels", target)
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["their_kernels"] = module
    specification.loader.exec_module(module)
    return module


def by_their_lookup(kernels: ModuleType, table: Any, ours: Any, ids: torch.Tensor) -> torch.Tensor:
    own = slice(ours.vocab_start_idx, ours.vocab_end_idx)
    weights, scales = table[0][own].to(GPU), table[1][own].to(GPU)
    local = ours.part_n_hash_cols
    rows = ids.shape[0] * local
    out = torch.empty(ids.shape[0], local, 256, dtype=torch.bfloat16, device=GPU)
    grid = min(-(-rows // 16), 66)
    kernels._engram_lookup_kernel[(grid,)](
        *(weights, scales, ids, ids, out, own.start, own.stop, rows, *ids.stride()),
        HEAD_START=ours.head_start,
        LOCAL_HEADS=local,
        TOTAL_HEADS=24,
        DIM=256,
        QUANT_BLOCK=32,
        BLOCK_R=16,
        GRID=grid,
        SORTED=False,
        PACKED=False,
        OUT_STRIDE=out.stride(0),
    )
    return out


def check_hashes(kernels: ModuleType) -> bool:
    """vLLM's hash kernel on a prompt that begins at its first token, against ours."""
    ids, want = hashes_of(700, seed=3)
    want[7::97] = torch.from_numpy(
        np.stack([engram_layout.hash_rows(hashed, ids, CONFIG.engram_pad_token_id) for hashed in HASHES], axis=1)
    ).to(GPU)[7::97]
    dead = torch.from_numpy(ids == engram_layout.DEAD).to(GPU)
    tokens = torch.from_numpy(np.where(ids < 0, 0, ids)).to(GPU)
    count = len(tokens)
    # One request, no slot cache: everything lies side by side, and there is no block table.
    ones = ("input", "mask", "position", "query", "lookback_col", "lookback_mask_col")
    strides = {f"{name}_stride": 1 for name in ones} | {"lookback_row_stride": 3, "lookback_mask_row_stride": 3}
    strides |= {"table_stride": 0, "table_col_stride": 0, "num_query_rows": 1, "num_table_rows": 0}
    strides |= {"max_blocks": 0, "cache_block_size": 16}
    window = torch.full((1, 3), -1, dtype=torch.int32, device=GPU)
    out = torch.empty(count, 2, 24, dtype=torch.int32, device=GPU)
    kernels._hash_ids_kernel[(-(-count // 32), 2)](
        tokens,
        torch.arange(CONFIG.engram_compressed_vocab_size, dtype=torch.int32, device=GPU),
        dead,
        torch.arange(count, device=GPU),
        None,
        torch.tensor([0, count], dtype=torch.int32, device=GPU),
        torch.tensor(np.stack([hashed.multipliers for hashed in HASHES]), device=GPU),
        torch.tensor(np.stack([hashed.sizes for hashed in HASHES]), device=GPU),
        torch.tensor(np.stack([hashed.offsets for hashed in HASHES]), device=GPU),
        None,
        window,
        torch.zeros_like(window, dtype=torch.bool),
        out,
        count,
        0,
        CONFIG.engram_pad_token_id,
        **strides,
        MAX_NGRAM=4,
        num_heads=8,
        BLOCK_T=32,
        BLOCK_H=8,
        dead_id=engram_layout.DEAD,
        lookback_depth=3,
    )
    return bool(torch.equal(out, want))


def check_failure(folder: Path) -> dict[str, Any]:
    """A file that ends too early gives "not a number", and the next lookup raises the row."""
    groups, stream = Groups(), torch.cuda.Stream()
    table = table_of(groups, folder, 1, 0, 1)
    os.truncate(folder / "engram-l14-r0of1.bin", 4096 + 264 * 1000)
    _, hashes = hashes_of(20, seed=9)
    spoiled = looked_up(table, hashes[:, 1], stream)
    torch.cuda.synchronize()
    try:
        looked_up(table, hashes[:, 1], stream)
    except RowStoreError as error:
        return {"failure_is_nan": bool(spoiled.isnan().all()), "failure_is_raised": error.row is not None}
    return {"failure_is_nan": bool(spoiled.isnan().all()), "failure_is_raised": False}


def measure_lookups(folder: Path) -> dict[str, Any]:
    """How long a lookup takes, and how much of it the caller and the computing stream feel."""
    groups, stream = Groups(), torch.cuda.Stream()
    table = table_of(groups, folder, 0, 0, 2)
    seen: dict[str, Any] = {"engine": table._store.description}
    work = torch.randn(4096, 4096, device=GPU)
    for tokens in (4, 1024):
        _, hashes = hashes_of(tokens, seed=1)
        looked_up(table, hashes[:, 0], stream)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(20):
            looked_up(table, hashes[:, 0], stream)
        called = time.perf_counter()
        torch.cuda.synchronize()
        ended = time.perf_counter()
        seen[f"lookup_ms_{tokens}_tokens"] = round((ended - began) / 20 * 1e3, 3)
        seen[f"call_ms_{tokens}_tokens"] = round((called - began) / 20 * 1e3, 3)
        out = torch.empty(tokens, table.part_n_hash_cols, 256, dtype=torch.bfloat16, device=GPU)
        alone = wall(lambda: [work @ work for _ in range(40)])

        def both(hashes: torch.Tensor = hashes, out: torch.Tensor = out) -> None:
            with torch.cuda.stream(stream):
                table.lookup(hashes[:, 0], out)
            for _ in range(40):
                work @ work

        seen[f"compute_beside_over_alone_{tokens}_tokens"] = round(wall(both) / alone, 3)
    return seen


def wall(act: Any) -> float:
    act()
    torch.cuda.synchronize()
    began = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def check_staged_load() -> dict[str, bool]:
    """A copy from a private mapping goes through the pinned buffers, and arrives whole."""
    from spark_overlay.staged_load import StagedCopies

    source = torch.randint(0, 255, (10_000_001,), dtype=torch.uint8)
    to = torch.zeros_like(source, device=GPU)
    with StagedCopies(buffer_bytes=1 << 20) as copies:
        to.copy_(source)
    return {"staged_load_is_right": torch.equal(to.cpu(), source) and copies.staged == source.numel()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-engram", type=Path)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    if given.tune:
        return tune(given.rows)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        build = folder / "build"
        subprocess.run(["make", "-s", "-C", ROOT / "overlay" / "csrc", f"BUILD={build}"], check=True)
        os.environ["SPARK_ROW_STORE"] = str(build / "librow_store.so")
        kernels = load_kernels(given.vllm_engram, folder) if given.vllm_engram else None
        tables = make_tables(folder)
        result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(GPU), "torch": torch.__version__}
        result |= check_dequant(given.rows)
        result |= check_lookups(folder, tables, kernels)
        result["hashes_equal_vllms_kernel"] = check_hashes(kernels) if kernels else None
        result |= measure_lookups(folder)
        result |= check_staged_load()
        result |= check_failure(folder)
    failed = [name for name, value in result.items() if value is False]
    print(json.dumps(dict(result, failed=failed)))
    return 1 if failed or result["dequant_over_copy"] < 0.8 else 0


if __name__ == "__main__":
    sys.exit(main())
