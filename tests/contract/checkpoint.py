"""A checkpoint with Engram tables of synthetic size: shards, config.json, an index that names other weights too."""

import json
from dataclasses import dataclass
from pathlib import Path

from cluster.weights.engram import Engram, Table, owned_rows, tables
from tests.overlay.tables import Shard, packed, write_shard


@dataclass(frozen=True)
class Checkpoint:
    folder: Path
    tables: tuple[Table, ...]
    shards: tuple[Shard, ...]

    def wanted(self, rank: int, ranks: int = 2, layout: str = "dense") -> dict[str, bytes]:
        """The rank's packed files, byte by byte, by name."""
        return {
            f"engram-l{table.layer}-r{rank}of{ranks}.bin": packed(layout, shard, owned_rows(table, rank, ranks))
            for table, shard in zip(self.tables, self.shards, strict=True)
        }


def write_checkpoint(folder: Path, vocabulary: int = 300, layers: tuple[int, ...] = (1, 14)) -> Checkpoint:
    """Tables of about 24 times `vocabulary` rows, 264 bytes each."""
    folder.mkdir(parents=True)
    engram = Engram(layers, (0,) * len(layers), vocabulary, 90, 8, 4, 256, 2)
    made = tuple(Table(one.layer, sum(one.sizes), one.sizes) for one in tables(engram))
    names = [f"model-{47 + number:05d}-of-00048.safetensors" for number in range(len(made))]
    shards = tuple(
        write_shard(folder / name, table.layer, table.rows, seed=table.layer)
        for name, table in zip(names, made, strict=True)
    )
    config = {
        "model_type": "deepseek_v41",
        "text_config": {
            "engram_layer_ids": list(layers),
            "engram_num_embeddings": [table.rows for table in made],
            "engram_vocab_size": vocabulary,
            "engram_compressed_vocab_size": 90,
            "engram_n_heads": 8,
            "engram_max_ngram_size": 4,
            "engram_head_dim": 256,
            "engram_pad_token_id": 2,
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    weights = {"layers.0.attention.q": "model-00001-of-00048.safetensors"}
    for name, table in zip(names, made, strict=True):
        weights |= {f"layers.{table.layer}.engram.{part}": name for part in ("q_weight", "embed.weight", "embed.scale")}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    return Checkpoint(folder, made, shards)
