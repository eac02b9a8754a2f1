#!/usr/bin/env python3
"""Prove the Engram path on a GPU: exact values, vLLM's own kernels as the oracle, pace against the copy bandwidth.

    python3 scripts/gpu_engram.py [--vllm-engram FILE] [--rows N] [--folder DIR]
    python3 scripts/gpu_engram.py --tune [--rows N]      the dequant kernel's variants, side by side

Builds the row store, makes synthetic tables, looks them up as a server would. FILE is vLLM's own
vllm/models/deepseek_v41/common/engram.py; without it the comparison is left out, and the result says so.
The last line is JSON; exit code 1 when anything is not exact.
"""

import argparse
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
from spark_overlay.dequant import reference  # noqa: E402
from spark_overlay.row_store import Options, RowStoreError  # noqa: E402
from spark_overlay.settings import EngramSettings  # noqa: E402

from scripts.gpu_dequant import GPU, check_dequant, same, tune  # noqa: E402
from scripts.gpu_oracle import CONFIG, HASHES, by_their_lookup, check_hashes, hashes_of, load_kernels  # noqa: E402

TOKENS = 1_536


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
