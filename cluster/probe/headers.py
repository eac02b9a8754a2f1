"""A model's shape as its files' headers and its config.json tell it."""

import json
from collections.abc import Iterator
from typing import Any

from cluster.errors import Unreadable
from cluster.model.memory import ModelShape, TensorGroup
from cluster.model.units import Bytes


def parse_shape(node: str, text: str) -> ModelShape | None:
    """The answer of the program `agent/headers.py`; None when there is no such folder."""
    try:
        seen: dict[str, Any] = json.loads(text)
        if not seen["present"]:
            return None
        config = seen["config"] or {}
        return shape_of(tuple(_groups(seen["groups"])), config, int(seen["files"]), tuple(seen["problems"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(
            f"cannot read what its model's headers say: {error}", where=node, evidence=[text[:200]]
        ) from error


def _groups(entries: list[list[Any]]) -> Iterator[TensorGroup]:
    for name, first, last, count, size in entries:
        layers = [None] if first is None else list(range(first, last + 1))
        for layer in layers:
            yield TensorGroup(name, layer, count, Bytes(size))


def shape_of(
    groups: tuple[TensorGroup, ...], config: dict[str, Any], files: int = 0, problems: tuple[str, ...] = ()
) -> ModelShape:
    """Multimodal models keep the numbers of their language part one level down."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else config

    def number(*names: str) -> int:
        return next((int(text[name]) for name in names if isinstance(text.get(name), int)), 0)

    heads = number("num_attention_heads", "n_heads", "n_head")
    size = number("head_dim", "head_size")
    if not size and heads:
        size = number("hidden_size", "dim", "n_embd") // heads
    latent = number("kv_lora_rank")
    return ModelShape(
        groups=groups,
        files=files,
        problems=problems,
        kind=str(config.get("model_type", "") or text.get("model_type", "")),
        layers=number("num_hidden_layers", "n_layers", "n_layer"),
        heads=heads,
        kv_heads=number("num_key_value_heads", "n_kv_heads"),
        head_size=size,
        latent=latent + number("qk_rope_head_dim") if latent else 0,
        longest=number("max_position_embeddings", "max_seq_len"),
    )
