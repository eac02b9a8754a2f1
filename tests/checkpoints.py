"""Synthetic checkpoints with the tensor shapes of published ones: names and sizes, no data."""

from collections.abc import Iterator

from cluster.model.memory import ModelShape, TensorGroup
from cluster.model.units import Bytes

HIDDEN, INTER, VOCAB = 5120, 2304, 129280
LAYERS, EXPERTS, DRAFT_LAYERS, DRAFT_EXPERTS = 40, 384, 3, 128
LATENT, HEADS, HEAD, GROUPS, LOW = 1536, 64, 512, 8, 1024


def packed(rows: int, columns: int, bits: int) -> int:
    """One EXL3 matrix: its trellis, a scale for each row and column, and the marker of its codebook."""
    return rows * columns * bits // 8 + 2 * (rows + columns) + 4


def flash_2x() -> ModelShape:
    """DeepSeek-V4.1-Flash, EXL3 at 2.9 bits: 40 layers of 384 experts, a drafting part, vision, no Engram tables."""
    groups = [
        *_one("embed.weight", VOCAB * HIDDEN * 2),
        *_one("head.trellis", packed(HIDDEN, VOCAB, 6)),
        *_one("norm.weight", HIDDEN * 2),
        *_one("vision.blocks.weight", 10**9, 259),
    ]
    for layer in range(LAYERS):
        groups += _layer("layers", layer, EXPERTS, 2 if 18 <= layer <= 22 else 3, 4 if 11 <= layer <= 29 else 5, 5)
    for layer in (1, 14):
        groups += _one("layers.#.engram.wkv.trellis", packed(6144, 25600, 5), 1, layer)
    for layer in range(DRAFT_LAYERS):
        groups += _layer("mtp", layer, DRAFT_EXPERTS, 4, 4, 4)
    groups += _one("mtp.#.main_proj.trellis", packed(3 * HIDDEN, HIDDEN, 4), 1, 0)
    return ModelShape(tuple(groups), files=39, kind="deepseek_v41", layers=LAYERS, longest=1048576)


def _layer(top: str, layer: int, experts: int, routed: int, shared: int, attention: int) -> Iterator[TensorGroup]:
    name = f"{top}.#."
    for matrix in ("w1", "w2", "w3"):
        size = packed(HIDDEN, INTER, routed)
        yield from _one(f"{name}ffn.experts.*.{matrix}.trellis", size * experts, experts, layer)
        yield from _one(f"{name}ffn.shared_experts.{matrix}.trellis", packed(HIDDEN, INTER, shared), 1, layer)
    yield from _one(f"{name}ffn.gate.weight", HIDDEN * experts * 2, 1, layer)
    yield from _one(f"{name}attn.wq_a.trellis", packed(HIDDEN, LATENT, attention), 1, layer)
    yield from _one(f"{name}attn.wq_b.trellis", packed(LATENT, HEADS * HEAD, attention), 1, layer)
    yield from _one(f"{name}attn.wkv.trellis", packed(HIDDEN, HEAD, attention), 1, layer)
    yield from _one(f"{name}attn.wo_a.slice.*.trellis", packed(HEADS * HEAD, LOW, attention), GROUPS, layer)
    yield from _one(f"{name}attn.wo_b.trellis", packed(GROUPS * LOW, HIDDEN, attention), 1, layer)
    yield from _one(f"{name}attn_norm.weight", HIDDEN * 2, 1, layer)


def one_spark_pack() -> ModelShape:
    """The one-Spark pack of the same model at 1.59 bits, with its Engram tables; sizes of its parts as published."""
    rows = {1: 384_006_168, 14: 384_016_682}
    groups: list[TensorGroup] = []
    for layer, count in rows.items():
        groups += _one("layers.#.engram.embed.weight", count * 256, 1, layer)
        groups += _one("layers.#.engram.embed.scale", count * 8, 1, layer)
        groups += _one("layers.#.engram.wkv.weight", 157_286_400, 1, layer)
        groups += _one("layers.#.engram.q_weight", 235_320, 1, layer)
    engram = sum(one.size for one in groups)
    groups += _one("layers.#.engram.k_weight", 203_073_076_240 - engram, 1, 14)
    text = 0
    for layer in range(LAYERS):
        for one in _layer("layers", layer, EXPERTS, 1, 3, 8):
            groups.append(one)
            text += one.size
    groups += _one("layers.#.ffn.experts.*.w1.trellis", 119_360_343_488 - text, 1, 0)  # experts of more bits
    groups += _one("mtp.#.ffn.experts.*.w1.trellis", 7_932_874_632, DRAFT_EXPERTS, 0)
    return ModelShape(tuple(groups), files=17, kind="deepseek_v41", layers=LAYERS)


def llama(layers: int = 4, kv_heads: int = 4, hidden: int = 256, inter: int = 1024, vocab: int = 512) -> ModelShape:
    """A dense model with the usual names, 16 bits a weight, 64 numbers a head."""
    heads, head = hidden // 64, 64
    sizes = {
        "self_attn.q_proj.weight": hidden * heads * head,
        "self_attn.k_proj.weight": hidden * kv_heads * head,
        "self_attn.v_proj.weight": hidden * kv_heads * head,
        "self_attn.o_proj.weight": hidden * heads * head,
        "mlp.gate_proj.weight": hidden * inter,
        "mlp.up_proj.weight": hidden * inter,
        "mlp.down_proj.weight": hidden * inter,
        "input_layernorm.weight": hidden,
        "post_attention_layernorm.weight": hidden,
    }
    groups = [
        one
        for layer in range(layers)
        for name, size in sizes.items()
        for one in _one(f"model.layers.#.{name}", size * 2, 1, layer)
    ]
    groups += _one("model.embed_tokens.weight", vocab * hidden * 2)
    groups += _one("lm_head.weight", vocab * hidden * 2)
    groups += _one("model.norm.weight", hidden * 2)
    return ModelShape(
        tuple(groups), 1, (), "llama", layers=layers, heads=heads, kv_heads=kv_heads, head_size=head, longest=2048
    )


def _one(name: str, size: int, count: int = 1, layer: int | None = None) -> Iterator[TensorGroup]:
    yield TensorGroup(name, layer, count, Bytes(size))
