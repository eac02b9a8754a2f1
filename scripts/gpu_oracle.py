"""vLLM's own Engram kernels as the oracle: taken from its source file, asked for rows and for hashes."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from spark_overlay import engram_layout

from scripts.gpu_dequant import GPU

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
KERNELS = ("_engram_lookup_kernel", "_hash_ids_kernel")


def hashes_of(tokens: int, seed: int) -> tuple[np.ndarray, torch.Tensor]:
    """Compressed ids of a prompt with dead tokens, and its rows as the model holds them: both layers side by side."""
    ids = np.random.default_rng(seed).integers(0, CONFIG.engram_compressed_vocab_size, tokens)
    ids[7::97] = engram_layout.DEAD
    rows = np.stack([engram_layout.hash_rows(hashed, ids, CONFIG.engram_pad_token_id) for hashed in HASHES], axis=1)
    rows[7::97] = engram_layout.DEAD
    return ids, torch.from_numpy(rows).to(GPU)


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
