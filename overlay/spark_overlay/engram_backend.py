"""Engram tables in files instead of memory: the class that takes the place of vLLM's own.

vLLM looks the class up in its module when it builds a layer, so that setting the name there before is enough. It hands
over the size of each hash column's range; these are primes that no other layer has, and so they name the layer.
"""

import logging
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spark_overlay.anchors import Anchor, check_anchors
from spark_overlay.checkpoint import find_table
from spark_overlay.dequant import BLOCK, dequantise
from spark_overlay.engram_layout import layer_hashes
from spark_overlay.row_store import RowStore, Table
from spark_overlay.settings import EngramSettings

logger = logging.getLogger("vllm.spark_overlay")

ANCHORS = (
    Anchor("Engram._create_embedding", "return ParallelEngramEmbedding(", "the class is taken from the module"),
    Anchor(
        "Engram._create_embedding",
        "tuple(size for order in layout.primes[layer_hash_index] for size in order)",
        "the ranges of the columns are handed over",
    ),
    Anchor("Engram._init_staging", "if not self.embed_tokens.cpu_offload:", "lookups have a stream of their own"),
    Anchor("Engram._start_prefetch", "self.embed_tokens.lookup(hash_ids, rows", "lookups fill a buffer", 2),
    Anchor("Engram._start_prefetch", "with torch.cuda.stream(stream):", "lookups run on the current stream"),
    Anchor("Engram.embed", "tensor_model_parallel_all_gather(rows, dim=1)", "ranks join their columns"),
    Anchor(
        "ParallelEngramEmbedding._get_shard_info",
        "return self.tp_size, get_tensor_model_parallel_rank()",
        "columns are shared among the ranks",
    ),
    Anchor("ParallelEngramEmbedding.forward", "self.lookup(indices, out)", "a plain lookup uses the same method"),
)


def install(module: Any, settings: EngramSettings) -> type:
    """Put the file-backed class in the place of `module.ParallelEngramEmbedding`; twice is as good as once."""
    if getattr(module.ParallelEngramEmbedding, "is_file_backed", False):
        return module.ParallelEngramEmbedding  # type: ignore[no-any-return]
    check_anchors(module, ANCHORS)
    module.ParallelEngramEmbedding = file_backed(module, settings)
    return module.ParallelEngramEmbedding  # type: ignore[no-any-return]


def file_backed(module: Any, settings: EngramSettings) -> type:
    """The class, bound to vLLM's module: what it does beyond storage stays vLLM's own."""

    class FileEngramEmbedding(module.ParallelEngramEmbedding):  # type: ignore[misc]
        is_file_backed = True

        def __init__(
            self,
            num_embeddings: int,
            dim: int,
            head_sizes: tuple[int, ...],
            block_size: int = BLOCK,
            cpu_offload: bool = False,
            dp_shared_memory: bool = False,
            use_thp: bool = False,
        ) -> None:
            nn.Module.__init__(self)
            if block_size != BLOCK or dp_shared_memory or use_thp or module.get_engram_dp_size() != 1:
                raise RuntimeError("file-backed Engram tables are for tensor parallelism alone, with blocks of 32")
            self.cpu_offload = True  # the lookups then have a stream of their own
            self.dp_shared_memory = self.use_thp = False
            self.dp_size = 1
            self.num_embeddings = num_embeddings
            self.dim = dim
            self.block_size = block_size
            self.n_hash_cols = len(head_sizes)
            self.tp_size = module.get_tensor_model_parallel_world_size()
            ranks, rank = self._get_shard_info()
            self.part_n_hash_cols = -(-self.n_hash_cols // ranks)
            if (ranks - 1) * self.part_n_hash_cols >= self.n_hash_cols:
                raise RuntimeError(f"{ranks} ranks cannot share {self.n_hash_cols} hash columns")
            self.head_start = rank * self.part_n_hash_cols
            head_end = min(self.head_start + self.part_n_hash_cols, self.n_hash_cols)
            self._columns = slice(self.head_start, head_end)
            self.vocab_start_idx = sum(head_sizes[: self.head_start])
            self.vocab_end_idx = sum(head_sizes[:head_end])
            self.part_num_embeddings = self.vocab_end_idx - self.vocab_start_idx
            self._add_empty_parameters(module)
            self._open(module, head_sizes, rank, ranks)

        def _add_empty_parameters(self, module: Any) -> None:
            """The loader finds the names it looks for, and reads nothing for them."""
            for name, width, dtype in (
                ("weight", self.dim, torch.float8_e4m3fn),
                ("weight_scale_inv", self.dim // BLOCK, torch.uint8),
            ):
                empty = torch.empty(0, width, dtype=dtype, device="cpu")
                setattr(self, name, nn.Parameter(empty, requires_grad=False))
                attributes = {"weight_loader": ignore_weight, "engram_vocab_start": self.vocab_start_idx}
                module.set_weight_attrs(getattr(self, name), attributes)

        def _open(self, module: Any, head_sizes: tuple[int, ...], rank: int, ranks: int) -> None:
            config = module.get_current_vllm_config()
            layer = layer_of(config.model_config.hf_text_config, self.num_embeddings, head_sizes)
            rows = range(self.vocab_start_idx, self.vocab_end_idx)
            table = Table(layer, rows, self.num_embeddings, self.dim, self.dim // BLOCK)
            self._store = open_store(settings, table, rank, ranks)
            self._staging = None
            self._reported = time.monotonic()
            if torch.cuda.is_available():
                # Now, and not at the first lookup: what it takes has to count when the server sizes its KV cache.
                from spark_overlay.staging import Staging

                most = config.scheduler_config.max_num_batched_tokens
                device = torch.device("cuda", torch.cuda.current_device())
                self._staging = Staging(self._store, most, self.part_n_hash_cols, device)
            logger.info(
                "spark_overlay: file-backed Engram active layer=%d rank=%d/%d rows=[%d,%d) file=%s by %s",
                *(layer, rank, ranks, rows.start, rows.stop, self._store.path, self._store.description),
            )

        def lookup(self, indices: torch.Tensor, out: torch.Tensor, background: bool = False) -> None:
            """This rank's columns of the rows, dequantised; dead ids and padding columns give zeros."""
            tokens = indices.shape[0]
            if not tokens:
                return
            ids = indices[:, self._columns]
            if indices.device.type == "cpu":
                self._lookup_here(ids, out)
            elif self._staging is None or tokens > self._staging.most:
                raise RuntimeError(f"a lookup of {tokens} tokens, more than max_num_batched_tokens")
            elif torch.cuda.is_current_stream_capturing():
                raise RuntimeError("an Engram lookup cannot be part of a CUDA graph")
            else:
                self._staging.lookup(ids, out)
            self._report()

        def _lookup_here(self, ids: torch.Tensor, out: torch.Tensor) -> None:
            padded = torch.full((ids.shape[0], self.part_n_hash_cols), -1, dtype=torch.int32)
            padded[:, : ids.shape[1]] = ids
            weights, scales = self._store.gather(padded)
            dequantise(weights, scales, out)

        def _report(self) -> None:
            if settings.report_every and time.monotonic() - self._reported >= settings.report_every:
                self._reported = time.monotonic()
                seen = asdict(self._store.statistics())
                text = " ".join(f"{name}={value}" for name, value in seen.items())
                logger.info("spark_overlay: Engram layer=%d %s", self._store.table.layer, text)

        def collapse_huge_pages(self) -> None:
            """There are none: nothing is in memory."""

    return FileEngramEmbedding


def ignore_weight(param: nn.Parameter, loaded: torch.Tensor) -> None:
    """The rows stay in their file."""


def layer_of(config: Any, rows: int, head_sizes: tuple[int, ...]) -> int:
    """The layer whose column ranges these are. RuntimeError when the config and the server disagree on the layout."""
    for hashed, total in zip(layer_hashes(config), config.engram_num_embeddings, strict=True):
        if tuple(hashed.sizes.tolist()) == head_sizes and total == rows:
            return hashed.layer
    raise RuntimeError(f"no Engram layer of the model's config has {rows} rows in ranges of {head_sizes[:3]}...")


def open_store(settings: EngramSettings, table: Table, rank: int, ranks: int) -> RowStore:
    """The rank's packed file when there is one: it must be right then. Else the checkpoint's shard, if allowed."""
    path = settings.packed / f"engram-l{table.layer}-r{rank}of{ranks}.bin" if settings.packed else None
    if path and path.exists():
        return RowStore.open_packed(path, table, settings.options)
    if settings.source is None:
        raise FileNotFoundError(f"{path} does not exist, and SPARK_OVERLAY_ENGRAM_SOURCE names no checkpoint")
    places = find_table(Path(settings.source), table.layer, table.total, table.weight_bytes)
    return RowStore.open_tensors(places.shard, table, places.weight_at, places.scale_at, settings.options)
