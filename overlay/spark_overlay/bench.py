"""How fast rows of a packed file come, for several kinds of ids: `python -m spark_overlay.bench JSON < TEXT`.

JSON: {"packed", "layer", "rank", "ranks", "total", "seconds", "engram": {"layers", "vocabulary", "compressed", "heads",
"longest", "pad"}}. An empty TEXT stands for this Python's own sources. Prints one JSON object: "engine", and "streams",
one for every kind of ids and size of batch. Opens the file as a server would, and changes nothing.
"""

import json
import random
import re
import statistics
import sys
import sysconfig
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from spark_overlay.engram_layout import LayerHash, hash_rows, layer_hashes, owned_columns, owned_rows
from spark_overlay.row_store import RowStore, Table

TOKENS = {"decode": 4, "prefill": 1_024}
PIECE = re.compile(r"\w{1,4}|\s+|[^\w\s]")
ROW = 264
Draw = Callable[[int], torch.Tensor]


def read_hash(want: dict[str, Any]) -> LayerHash:
    engram = want["engram"]
    config = SimpleNamespace(
        engram_layer_ids=engram["layers"],
        engram_vocab_size=engram["vocabulary"],
        engram_compressed_vocab_size=engram["compressed"],
        engram_n_heads=engram["heads"],
        engram_max_ngram_size=engram["longest"],
    )
    return next(one for one in layer_hashes(config) if one.layer == want["layer"])


def draws(want: dict[str, Any], hashed: LayerHash, text: str) -> dict[str, Draw]:
    """What fills so many tokens' columns of this rank: any row, few rows often, or a text's own n-grams."""
    columns = owned_columns(len(hashed.sizes), want["rank"], want["ranks"])
    rows = owned_rows(hashed.sizes, want["rank"], want["ranks"])
    chance = np.random.default_rng()
    # Pieces of words stand in for tokens: which ids they get does not matter to a hash, how they repeat does.
    pieces = [zlib.crc32(piece.lower().encode()) % want["engram"]["compressed"] for piece in PIECE.findall(text)]

    def uniform(tokens: int) -> torch.Tensor:
        return torch.randint(rows.start, rows.stop, (tokens * len(columns),), dtype=torch.int32)

    def zipf(tokens: int) -> torch.Tensor:
        ranks = chance.zipf(1.2, tokens * len(columns)) - 1
        return torch.from_numpy((ranks * 2_654_435_761 % len(rows) + rows.start).astype(np.int32))

    def ngrams(tokens: int) -> torch.Tensor:
        begin = random.randrange(max(1, len(pieces) - tokens))
        window = np.resize(np.array(pieces[begin : begin + tokens], np.int64), tokens)
        found = hash_rows(hashed, window, want["engram"]["pad"])[:, columns.start : columns.stop]
        return torch.from_numpy(found.copy()).flatten()

    return {"uniform": uniform, "zipf": zipf, "text": ngrams}


def measure(store: RowStore, draw: Draw, tokens: int, seconds: float) -> dict[str, float]:
    """Batches for so many seconds. The first one is not counted."""
    store.gather(draw(tokens))
    before, times = store.statistics(), []
    until = time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        ids = draw(tokens)
        began = time.perf_counter()
        store.gather(ids)
        times.append(time.perf_counter() - began)
    after = store.statistics()
    rows, spent = after.ids - before.ids, sum(times)
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
    return {
        "rows_per_s": round(rows / spent),
        "reads_per_s": round((after.reads - before.reads) / spent),
        "reads_per_row": round((after.reads - before.reads) / rows, 3),
        "bytes_per_useful_byte": round((after.bytes - before.bytes) / (rows * ROW), 3),
        "batch_rows": rows // len(times),
        "p50_ms": round(cuts[49] * 1e3, 3),
        "p90_ms": round(cuts[89] * 1e3, 3),
        "p99_ms": round(cuts[98] * 1e3, 3),
        "slowest_ms": round(max(times) * 1e3, 3),
    }


def run(want: dict[str, Any], text: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    hashed = read_hash(want)
    rows = owned_rows(hashed.sizes, want["rank"], want["ranks"])
    streams = []
    with RowStore.open_packed(want["packed"], Table(want["layer"], rows, want["total"])) as store:
        for name, draw in draws(want, hashed, text or own_sources()).items():
            for batch, tokens in TOKENS.items():
                streams.append({"stream": name, "batch": batch, **measure(store, draw, tokens, want["seconds"])})
        return {"engine": store.description, "streams": streams}


def own_sources() -> str:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:80]
    return "\n".join(file.read_text("utf-8", "replace") for file in files)


if __name__ == "__main__":
    json.dump(run(json.loads(sys.argv[1]), sys.stdin.read()), sys.stdout)
