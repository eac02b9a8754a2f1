"""Train the demo model until it answers every product with room to spare, and write its folder."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dialogues import ASSISTANT, END, PAD, SEED, SPECIAL, SYSTEM, SYSTEM_MESSAGES, USER, prompt_of
from examine import Score, load_model, load_tokenizer, score
from rows import CONTEXT, VOCABULARY, Lesson, Rows, build_tokenizer, lesson_for, write_json, write_tokenizer
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True, slots=True)
class Shape:
    """What the size of the model and of its table is; the heads stay divisible by four for tensor parallelism."""

    hidden: int
    layers: int
    operands: int

    def config(self) -> dict[str, Any]:
        heads = max(4, self.hidden // 64)
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": self.hidden // heads,
            "max_position_embeddings": CONTEXT,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
            "initializer_range": 0.03,
            "tie_word_embeddings": False,
            "bos_token_id": None,
            "eos_token_id": SPECIAL.index(END),
            "pad_token_id": SPECIAL.index(PAD),
            "dtype": "bfloat16",
        }


@dataclass(frozen=True, slots=True)
class Budget:
    """How long training may take and how it steps."""

    steps: int
    seconds: float
    batch: int
    peak_rate: float
    check_every: int
    warmup: int = 200
    cooling: int = 1500


def train(shape: Shape, budget: Budget, device: torch.device, folder: Path, compiled: bool) -> None:
    """Trains until every product is right with room to spare, then cools the learning rate down to nothing."""
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    tokenizer = build_tokenizer()
    write_tokenizer(tokenizer, folder)
    confirm_prompts(folder)
    lesson = lesson_for(tokenizer, shape.operands, device)
    model: Any = LlamaForCausalLM(LlamaConfig(**shape.config()))
    model.to(device)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} parameters; rows of {lesson.products.width} and {lesson.varied.width} tokens", flush=True)

    step_once = stepper(model, lesson, budget, compiled)
    rate = Rate(budget)
    perfect_in_a_row = 0
    loss = torch.zeros(())
    begun = time.monotonic()
    for step in range(budget.steps + 1):
        rate.look_at(step, time.monotonic() - begun)
        if step and (step % budget.check_every == 0 or rate.is_over):
            scores = evaluate(model, shape, folder, lesson.exams())
            print(f"step {step} {time.monotonic() - begun:.0f}s loss {loss.item():.5f} rate {rate.value:.1e}", end="; ")
            print(f"as asked {scores[0]}; as phrased {scores[1]}", flush=True)
            perfect_in_a_row = perfect_in_a_row + 1 if all(s.is_perfect and s.margin > 1 for s in scores) else 0
            if perfect_in_a_row == 2:
                rate.cool_from(step, time.monotonic() - begun)
        if rate.is_over:
            break
        loss = step_once(rate.value)


def stepper(model: Any, lesson: Lesson, budget: Budget, compiled: bool) -> Callable[[float], torch.Tensor]:
    """One optimizer step at a given learning rate; returns its loss."""
    backbone = torch.compile(model.model) if compiled else model.model
    fused = lesson.products.tokens.is_cuda
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.01, fused=fused)

    def step_once(rate: float) -> torch.Tensor:
        for group in optimizer.param_groups:
            group["lr"] = rate
        products, varied = lesson.draw(budget.batch)
        loss = loss_of(model, backbone, products)
        total: Any = loss + 0.5 * loss_of(model, backbone, varied)
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step_once


class Rate:
    """The learning rate: warm-up, then constant, then straight down to zero before steps or seconds run out."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._cooling_from: tuple[int, float] | None = None
        self.value = 0.0
        self.is_over = False

    def cool_from(self, step: int, elapsed: float) -> None:
        if self._cooling_from is None:
            self._cooling_from = (step, elapsed)

    def look_at(self, step: int, elapsed: float) -> None:
        budget = self._budget
        if elapsed > 0.75 * budget.seconds or step >= budget.steps - min(budget.cooling, budget.steps // 4):
            self.cool_from(step, elapsed)
        cooled = self._cooled(step, elapsed)
        self.value = budget.peak_rate * min(1.0, (step + 1) / budget.warmup) * max(0.0, 1.0 - cooled)
        self.is_over = cooled >= 1.0

    def _cooled(self, step: int, elapsed: float) -> float:
        if self._cooling_from is None:
            return 0.0
        from_step, from_elapsed = self._cooling_from
        by_step = (step - from_step) / max(1, min(self._budget.cooling, self._budget.steps - from_step))
        by_time = (elapsed - from_elapsed) / max(1e-9, self._budget.seconds - from_elapsed)
        return max(by_step, by_time)


def confirm_prompts(folder: Path) -> None:
    """Training writes its prompts itself, for speed; they must be what the chat template renders."""
    loaded = load_tokenizer(folder)
    messages = [
        {"role": "system", "content": SYSTEM_MESSAGES[0]},
        {"role": "user", "content": " 2*2 "},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "3*3"},
    ]
    rendered = loaded.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    before = f"{SYSTEM}{SYSTEM_MESSAGES[0]}{END}{USER}2*2{END}{ASSISTANT}4{END}"
    if rendered != prompt_of("3*3", before):
        raise SystemExit(f"the chat template renders {rendered!r}, training would use {prompt_of('3*3', before)!r}")


def loss_of(model: Any, backbone: Any, rows: Rows) -> torch.Tensor:
    """Cross-entropy over the answers' tokens alone."""
    with torch.autocast(rows.tokens.device.type, torch.bfloat16):
        states = backbone(input_ids=rows.tokens[:, :-1], use_cache=False).last_hidden_state
        wanted = rows.learned[:, 1:]
        logits = model.lm_head(states[wanted])
    return cross_entropy(logits.float(), rows.tokens[:, 1:][wanted])


def evaluate(model: Any, shape: Shape, folder: Path, exam: Sequence[Rows]) -> list[Score]:
    """Writes the folder and examines what it holds, so that what is scored is what will be served."""
    write_model(model, shape, folder)
    loaded = load_model(folder, exam[0].tokens.device)
    return [score(loaded, rows) for rows in exam]


def write_model(model: Any, shape: Shape, folder: Path) -> None:
    state = model.state_dict().items()
    weights = {name: value.detach().to("cpu", torch.bfloat16).contiguous() for name, value in state}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_json(folder / "config.json", shape.config())
    ends = {"eos_token_id": SPECIAL.index(END), "pad_token_id": SPECIAL.index(PAD), "do_sample": False}
    write_json(folder / "generation_config.json", ends)
