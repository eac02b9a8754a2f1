#!/usr/bin/env python3
"""Prove the path of an EXL3 pack on a GPU: quantise, inspect, re-lay, serve both layouts, compare their pace.

    python3 scripts/gpu_exl3.py [--wheels DIR] [--library FILE] [--packs DIR] [--folder DIR] [--keep DIR]

DIR/exllamav3 and DIR/sparkctl hold wheels of what is not installed: nothing is fetched. FILE is exllamav3's extension
as an earlier run kept it in --keep (.so or .so.gz); without it the extension is compiled, four minutes on 16 cores.
--packs names a folder with packs quantised before, `plain` and `demo`: then no GPU is needed to make them.

Every part is tried, whatever became of the ones before. The last line is JSON; exit code 1 when a part failed.
"""

import argparse
import gzip
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "scripts/demo_model/model"
RECIPE = "dsv41-sage-exl3-1x"
ARCHITECTURE = "9.0"
BITS, HEAD_BITS, DEMO_BITS = 3, 6, 6
SHARD_MEGABYTES = 2  # several shards, so that pads must have names of their own
SHAPE = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4}
LAYERS, HEAD_DIM, VOCABULARY, SEED = 4, 64, 512, 7
CONTEXT, TOKENS, ROUNDS = 2048, 768, 6
CALIBRATION = ("-cr", "8", "-cc", "512")
LONG, COMPILE = 90, 400
IMPORT = "import torch, exllamav3; torch.zeros(1, device='cuda')"


class Failed(Exception):
    """What a part saw instead of what it wanted."""


@dataclass
class Run:
    """One run of all parts: where things lie, and what has come out so far."""

    folder: Path
    keep: Path
    seen: dict[str, Any] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except Exception as error:  # the end of one part: the others go on
            self.failed.append(name)
            print(f"{name}: FAILED after {time.monotonic() - began:.1f} s: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)

    def call(self, *words: str | Path, limit: float = LONG, cwd: Path = ROOT, **more: str) -> str:
        argv, env = [str(one) for one in words], self.environment | more
        done = subprocess.run(argv, capture_output=True, text=True, timeout=limit, env=env, cwd=cwd)
        log = self.keep / "commands.log"
        with log.open("a") as file:
            file.write(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}-> {done.returncode}\n\n")
        if done.returncode:
            raise Failed(f"{' '.join(argv[:5])} ended with {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    def checks(self, *words: str | Path, cwd: Path) -> dict[str, Any]:
        """A report that is wanted although it ends with a refusal."""
        argv = [sys.executable, "-m", "cluster", *map(str, words), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG, env=self.environment, cwd=cwd)
        told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {"event": "nothing"}
        if told["event"] == "failed" and told["error"] != "Refused":
            raise Failed(f"{' '.join(map(str, words))}: {told}")
        if told["event"] == "nothing":
            raise Failed(f"{' '.join(map(str, words))} said nothing: {done.stderr[-1500:]}")
        return told

    def sparkctl(self, *words: str | Path, limit: float = LONG, cwd: Path = ROOT) -> dict[str, Any]:
        told = self.call(sys.executable, "-m", "cluster", *words, "--json", limit=limit, cwd=cwd)
        return json.loads(told.splitlines()[-1])  # type: ignore[no-any-return]


# --- what is not there yet


def install(run: Run, wheels: Path) -> None:
    """Beside what the machine has, in folders of their own: the two kinds want different versions of some packages."""
    for kind in ("exllamav3", "sparkctl"):
        found = sorted((wheels / kind).glob("*.whl"))
        if found:
            words = ("-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target")
            run.call(sys.executable, *words, run.folder / kind, *found)
    paths = [run.folder / "exllamav3", ROOT, ROOT / "exl3_server", run.folder / "sparkctl"]
    run.environment["PYTHONPATH"] = ":".join(map(str, [*paths, os.environ.get("PYTHONPATH", "")])).rstrip(":")


def extension(run: Run, library: Path | None) -> None:
    """Put the finished extension where it is imported from, compiled first if need be; keep a compressed copy.

    Three servers that find it unfinished would wait for each other's lock.
    """
    target = run.folder / "exllamav3/exllamav3_ext.so"
    if library:
        with (gzip.open if library.suffix == ".gz" else open)(library, "rb") as file:
            target.write_bytes(file.read())
    else:
        made = run.folder / "extensions"
        run.environment |= {"TORCH_CUDA_ARCH_LIST": ARCHITECTURE, "MAX_JOBS": str(os.cpu_count())}
        run.call(sys.executable, "-c", IMPORT, limit=COMPILE, TORCH_EXTENSIONS_DIR=str(made))
        (library,) = made.rglob("exllamav3_ext.so")
        shutil.copy(library, target)
        with gzip.open(run.keep / "exllamav3_ext.so.gz", "wb", compresslevel=6) as file:
            file.write(target.read_bytes())
    run.call(sys.executable, "-c", IMPORT, limit=60)


# --- packs


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


# --- the server, started and stopped by sparkctl


@dataclass(frozen=True)
class Deployment:
    name: str
    pack: Path
    port: int
    desk: Path


def deployment(run: Run, name: str, pack: Path) -> Deployment:
    """The recipe for one Spark, told that this GPU maps no files and that there is no container."""
    desk = run.folder / f"desk-{name}"
    desk.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [
        "--model",
        "{model}",
        "--name",
        "{name}",
        "--host",
        "{host}",
        "--port",
        "{port}",
        "--context",
        "{max_model_len}",
    ]
    told = {
        "deployment": name,
        "nodes": [{"name": "gpu", "control": "local", "address": "127.0.0.1", "state_dir": str(desk / "state")}],
        "serve": {"model": str(pack), "served_model_name": name, "port": port, "max_model_len": CONTEXT},
        "launch": {
            "runtime": "native",
            "command": [sys.executable, "-m", "spark_exl3", *words],
            "environment": {"PYTHONPATH": run.environment["PYTHONPATH"]},
        },
        "tuning": {"torch_arch": ARCHITECTURE},
        "exl3": {"profile": "none", "confidence": None},
        "image": {"name": ""},
    }
    (desk / "cluster.yaml").write_text(json.dumps(told))  # JSON is YAML
    return Deployment(name, pack, port, desk)


def start(run: Run, one: Deployment) -> None:
    """Checks of a box that this machine is not (a GB10, a large /dev/shm) are passed over by name, and told."""
    found = run.checks("preflight", "--recipe", RECIPE, cwd=one.desk)
    refusing = sorted({each["finding"]["id"] for each in found["results"] if each["finding"]["severity"] == "refusal"})
    began = time.monotonic()
    try:
        passed = [word for name in refusing for word in ("--force", name)]
        told = run.sparkctl("start", "--recipe", RECIPE, *passed, cwd=one.desk, limit=150)
    finally:
        with (run.keep / "servers.log").open("a") as file:
            for log in one.desk.glob("state/deployments/*/boots/*/rank0/*log"):
                file.write(f"=== {one.name}: {log.name}\n{log.read_text(errors='replace')}\n")
    seconds = round(time.monotonic() - began, 1)
    run.seen[f"start_{one.name}"] = {"event": told["event"], "seconds": seconds, "forced": refusing}


def stop(run: Run, one: Deployment) -> None:
    told = run.sparkctl("stop", "--recipe", RECIPE, cwd=one.desk, limit=90)
    run.seen[f"stop_{one.name}"] = told["event"]


def ask(one: Deployment, path: str, body: dict[str, Any]) -> dict[str, Any]:
    sent = json.dumps(body | {"model": one.name, "temperature": 0}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{one.port}{path}", sent, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def chat(run: Run, one: Deployment) -> None:
    told = ask(one, "/v1/chat/completions", {"messages": [{"role": "user", "content": "17*19"}], "max_tokens": 16})
    choice = told["choices"][0]
    run.seen[f"chat_{one.name}"] = {
        "text": choice["message"]["content"],
        "finish": choice["finish_reason"],
        "usage": told["usage"],
    }
    if told["usage"]["completion_tokens"] < 1:
        raise Failed(f"no token: {told}")


def smoke(run: Run, one: Deployment) -> None:
    told = run.sparkctl("smoke", "--recipe", RECIPE, cwd=one.desk)
    run.seen[f"smoke_{one.name}"] = [(each["name"], each["ok"], each["detail"]) for each in told["checks"]]


def pace(run: Run, pair: tuple[Deployment, Deployment]) -> None:
    """Tokens a second of both layouts, in turns, after one round that is not counted; and that both say the same."""
    rates: dict[str, list[float]] = {one.name: [] for one in pair}
    texts = {}
    for number in range(ROUNDS + 1):
        for one in pair if number % 2 else pair[::-1]:
            began = time.monotonic()
            told = ask(one, "/v1/completions", {"prompt": "the stone", "max_tokens": TOKENS})
            seconds = time.monotonic() - began
            texts[one.name] = told["choices"][0]["text"]
            if number:
                rates[one.name].append(told["usage"]["completion_tokens"] / seconds)
    medians = {name: statistics.median(each) for name, each in rates.items()}
    first, second = medians.values()
    run.seen["tokens_per_second"] = {
        name: {"median": round(medians[name], 1), "all": [round(one, 1) for one in rates[name]]} for name in rates
    }
    run.seen["relaid_over_plain"] = round(second / first, 3)
    run.seen["same_text"] = len(set(texts.values())) == 1
    if not run.seen["same_text"]:
        raise Failed("the two layouts answer differently")
    if not 0.9 <= second / first <= 1.1:
        raise Failed(f"the paces differ: {medians}")


def serve(run: Run, packs: dict[str, Path]) -> None:
    there = {name: pack for name, pack in packs.items() if (pack / "config.json").exists()}
    ones = {name: deployment(run, name, pack) for name, pack in there.items()}
    together(run, *((f"start {name}", start, one) for name, one in ones.items()))
    up = {name: one for name, one in ones.items() if f"start {name}" not in run.failed}
    for name, one in up.items():
        guarded(run, f"chat {name}", chat, one)
    if "demo" in up:
        guarded(run, "smoke demo", smoke, up["demo"])
    if {"plain", "relaid"} <= up.keys():
        guarded(run, "pace", pace, (up["plain"], up["relaid"]))
    together(run, *((f"stop {name}", stop, one) for name, one in ones.items()))


def together(run: Run, *parts: tuple[Any, ...]) -> None:
    with ThreadPoolExecutor() as pool:
        for one in [pool.submit(guarded, run, *part) for part in parts]:
            one.result()


def guarded(run: Run, name: str, act: Callable[..., None], *given: Any) -> None:
    with run.part(name):
        act(run, *given)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=ROOT / "build/wheels")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--packs", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", type=Path)
    choice = parser.parse_args()
    folder = choice.folder or Path(tempfile.mkdtemp(prefix="gpu-exl3-"))
    run = Run(folder.resolve(), (choice.keep or folder / "kept").resolve())
    for one in (run.folder, run.keep):
        one.mkdir(parents=True, exist_ok=True)
    guarded(run, "install", install, choice.wheels)
    packs = {name: run.folder / name for name in ("plain", "relaid", "demo")}
    if choice.packs:
        packs |= {name: choice.packs / name for name in ("plain", "demo")}
    else:
        # The first of these mostly waits for the compiler.
        together(run, ("extension", extension, choice.library), ("make model", make_model))
        plain = ("convert plain", convert, run.folder / "model", packs["plain"], BITS)
        together(run, plain, ("convert demo", convert, DEMO, packs["demo"], DEMO_BITS))
    guarded(run, "inspect plain", inspect, packs["plain"], BITS)
    guarded(run, "inspect demo", inspect, packs["demo"], DEMO_BITS)
    guarded(run, "relay", relay, packs["plain"], packs["relaid"])
    guarded(run, "serve", serve, packs)
    print(json.dumps(run.seen | {"failed": run.failed}), flush=True)
    return int(bool(run.failed))


if __name__ == "__main__":
    sys.exit(main())
