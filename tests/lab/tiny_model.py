"""Write a tiny Llama with random weights: it boots and answers in any vLLM, and says nothing sensible.

    python tests/lab/tiny_model.py FOLDER

Run it with the Python of the vLLM environment (torch, safetensors, tokenizers). For faults that must be provoked in a
server and do not need a right answer; tensor parallel 1 and 2 fit (4 heads, 2 key-value heads).
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 320, 128, 256, 2, 4, 2, 32
SPECIAL = ("<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tiny_model(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    write_weights(folder / "model.safetensors")
    write_json(folder / "config.json", configuration())
    write_json(folder / "generation_config.json", {"bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258})


def configuration() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "head_dim": HEAD,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 258,
    }  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    """Byte-level, no merges: 256 bytes and six special tokens."""
    tokenizers: Any = import_module("tokenizers")
    decoders, models, pre_tokenizers = tokenizers.decoders, tokenizers.models, tokenizers.pre_tokenizers
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": 2048, "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE,
    }  # fmt: skip
    write_json(folder / "tokenizer_config.json", settings)


def write_weights(file: Path) -> None:
    torch: Any = import_module("torch")
    torch.manual_seed(0)
    shapes = {"model.embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)}
    norms = ["model.norm"]
    for layer in (f"model.layers.{number}" for number in range(LAYERS)):
        shapes[f"{layer}.self_attn.q_proj"] = (HEADS * HEAD, HIDDEN)
        shapes[f"{layer}.self_attn.k_proj"] = shapes[f"{layer}.self_attn.v_proj"] = (KV_HEADS * HEAD, HIDDEN)
        shapes[f"{layer}.self_attn.o_proj"] = (HIDDEN, HEADS * HEAD)
        shapes[f"{layer}.mlp.gate_proj"] = shapes[f"{layer}.mlp.up_proj"] = (INNER, HIDDEN)
        shapes[f"{layer}.mlp.down_proj"] = (HIDDEN, INNER)
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    weights = {f"{name}.weight": (torch.randn(shape) * 0.05).bfloat16() for name, shape in shapes.items()}
    weights |= {f"{name}.weight": torch.ones(HIDDEN, dtype=torch.bfloat16) for name in norms}
    import_module("safetensors.torch").save_file(weights, str(file), metadata={"format": "pt"})


def write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")


if __name__ == "__main__":
    write_tiny_model(Path(sys.argv[1]))
