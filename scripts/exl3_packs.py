"""The packs of the EXL3 proof: a model made and quantised, counted, re-laid and compared. A part of gpu_exl3.py."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.exl3_run import CONTEXT, Failed, Run

BITS, HEAD_BITS, DEMO_BITS = 3, 6, 6
SHARD_MEGABYTES = 2  # several shards, so that pads must have names of their own
SHAPE = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4}
LAYERS, HEAD_DIM, VOCABULARY, SEED = 4, 64, 512, 7
CALIBRATION = ("-cr", "8", "-cc", "512")


def make_model(run: Run) -> None:
    """A model of the shapes that the format takes, with seeded weights and a tokenizer of its own."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = run.folder / "model"
    folder.mkdir()
    generator = torch.Generator().manual_seed(SEED)
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    keys = SHAPE["num_key_value_heads"] * HEAD_DIM
    linears = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    weights = {
        f"model.layers.{layer}.{name}.weight": torch.randn(shape, generator=generator) * shape[1] ** -0.5
        for layer in range(LAYERS)
        for name, shape in linears.items()
    }
    names = ("input_layernorm", "post_attention_layernorm")
    norms = [f"model.layers.{layer}.{name}" for layer in range(LAYERS) for name in names]
    weights |= {f"{name}.weight": torch.ones(hidden) for name in (*norms, "model.norm")}
    weights["model.embed_tokens.weight"] = torch.randn(VOCABULARY, hidden, generator=generator)
    weights["lm_head.weight"] = torch.randn(VOCABULARY, hidden, generator=generator) * hidden**-0.5
    weights["lm_head.weight"][-2:] = 0  # never the likeliest: a text goes on to its limit
    save_file({name: one.bfloat16() for name, one in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    config = SHAPE | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": LAYERS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 510,
        "eos_token_id": 511,
        "dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(left, right) for left in "etaoinshrdlu" for right in "etaoinshrdlu"]
    pieces = letters + ["".join(pair) for pair in pairs]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fillers = [f"<|{number}|>" for number in range(len(pieces), VOCABULARY - 2)]
    tokenizer.add_special_tokens([*fillers, "<|begin|>", "<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>"}
    template = "<|begin|>{% for one in messages %}{{ one.role + ': ' + one.content + '\n' }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps(told | {"chat_template": template}))


def convert(run: Run, source: Path, target: Path, bits: int) -> None:
    work = run.folder / f"work-{target.name}"
    work.mkdir()
    words = ("-b", str(bits), "-hb", str(HEAD_BITS), "-ss", str(SHARD_MEGABYTES), *CALIBRATION)
    run.call(sys.executable, "-m", "exllamav3.conversion.convert_model", "-i", source, "-w", work, "-o", target, *words)


def inspect(run: Run, pack: Path, bits: int) -> None:
    """What sparkctl says of a pack beside what the converter wrote down, and what the real library reads."""
    told = run.sparkctl("inspect", pack)
    run.seen[f"inspect_{pack.name}"] = {key: told[key] for key in ("ok", "codebook", "bits", "widths", "components")}
    with_config = json.loads((pack / "config.json").read_text())["quantization_config"]
    tensors = dict(_tensors(pack))
    linears = [name for name in tensors if name.endswith(".trellis")]
    expected = {
        "problems": [],
        "codebook": with_config["codebook"],
        "widths": {bits: len(linears) - 1, HEAD_BITS: 1} if bits != HEAD_BITS else {bits: len(linears)},
        "bytes": sum(size for _, size in tensors.values()),
        "markers": len(linears),
    }
    found = {
        "problems": told["problems"],
        "codebook": told["codebook"],
        "widths": {one["bits"]: one["count"] for one in told["widths"]},
        "bytes": sum(one["disk"] for one in told["components"]),
        "markers": sum(name.endswith(f".{with_config['codebook']}") for name in tensors),
    }
    if found != expected:
        raise Failed(f"{found}, and not {expected}")
    from_shapes = {name: shape[-1] // 16 for name, (shape, _) in tensors.items() if name in linears}
    wrong = {name: k for name, k in from_shapes.items() if k != (HEAD_BITS if "lm_head" in name else bits)}
    if wrong:
        raise Failed(f"widths of {wrong}")


def relay(run: Run, pack: Path, target: Path) -> None:
    """On the grid, opened by the real library, and equal tensor by tensor."""
    before = run.sparkctl("relay", "--report", "--min-bytes", "1", pack)
    told = run.sparkctl("relay", pack, target, "--min-bytes", "1", "--reserve", "0")
    after = run.sparkctl("relay", "--report", "--min-bytes", "1", target)
    shares = {
        name: sum(one["size"] for one in report["shares"] if one["reach"] == "copied")
        for name, report in (("before", before), ("after", after))
    }
    run.seen["relay"] = {"made": [one["made"] for one in told["files"]], "off_the_grid": shares}
    if shares["after"]:
        raise Failed(f"{shares['after']} bytes are still off the grid")
    if "written" not in run.seen["relay"]["made"]:
        raise Failed("no shard was written: nothing was off the grid")
    new = dict(_tensors(target))
    pads = [name for name in new if "__align_pad__" in name]
    real = {name: one for name, one in new.items() if name not in pads}
    if real != dict(_tensors(pack)) or _digests(pack) != {k: v for k, v in _digests(target).items() if k not in pads}:
        raise Failed("the new pack holds other tensors than the old one")
    run.seen["relay"]["pads"] = len(pads)


def _tensors(pack: Path) -> Iterator[tuple[str, tuple[list[int], int]]]:
    from safetensors import safe_open

    for shard in sorted(pack.glob("*.safetensors")):
        with safe_open(shard, "pt") as file:
            for name in file.keys():  # noqa: SIM118  # no dict
                tensor = file.get_tensor(name)
                yield name, (list(tensor.shape), tensor.numel() * tensor.element_size())


def _digests(pack: Path) -> dict[str, int]:
    import torch
    from safetensors import safe_open

    found = {}
    for shard in sorted(pack.glob("*.safetensors")):
        with safe_open(shard, "pt") as file:
            for name in file.keys():  # noqa: SIM118  # no dict
                tensor = file.get_tensor(name)
                found[name] = hash(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found
