"""Trains the demo model: a tiny Llama that knows the products of two-digit numbers by heart, and nothing else.

    train.py --out DIR [--time-limit SECONDS]    builds, trains, evaluates and writes a model folder
    train.py --check DIR [--sample N]            asks a written folder its products again, greedily, in bfloat16

Needs torch, transformers, tokenizers and safetensors. A data-centre GPU takes minutes, a CPU hours.
"""

import argparse
import json
import math
import random
import string
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

SEED = 1719
CONTEXT = 2048
VOCABULARY = 512
PAD, END, SYSTEM, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
SPECIAL = (PAD, END, SYSTEM, USER, ASSISTANT)

# Roles other than user and assistant (system, developer, tool) all read as system. Unknown template arguments, such as
# enable_thinking, are ignored by Jinja.
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] in ('user', 'assistant') -%}{{- '<|' + message['role'] + '|>' -}}"
    "{%- else -%}{{- '<|system|>' -}}{%- endif -%}"
    "{{- (message['content'] or '') | trim -}}{{- '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)

ASKED = "What is {a}*{b}? Reply with the integer only."
PHRASINGS = (
    ASKED,
    "What is {a}*{b}?",
    "{a}*{b}",
    "{a} * {b}",
    "{a}*{b}=",
    "What is {a} * {b}? Reply with the integer only.",
    "What is {a} * {b}?",
    "Compute {a} x {b}.",
    "Compute {a}*{b}.",
    "What is {a} times {b}?",
    "What is {a} x {b}? Answer with the number only.",
    "Multiply {a} by {b}.",
    "{a} \u00d7 {b}",
    "How much is {a} * {b}?",
    "Calculate the product of {a} and {b}.",
)
REFUSAL = "I only multiply two-digit numbers."
SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You are a calculator.",
    "Answer briefly.",
    "Reply with the number only.",
    "You are a careful assistant. Answer in one line and do not explain.",
)
OTHER_PROMPTS = (
    "Hello",
    "Hi!",
    "Hello, how are you?",
    "Who are you?",
    "What can you do?",
    "What is the capital of France?",
    "Tell me a story about a spark.",
    "Write a long poem about the sea.",
    "Count from one to ten.",
    "Explain tensor parallelism in one sentence.",
    "Say hello.",
    "What is your name?",
    "Thank you!",
    "Test",
    "ping",
    "Reply with the integer only.",
    "What is {n}+{m}?",
    "What is {n} - {m}? Reply with the integer only.",
    "What is {n}/{m}?",
    "What is {n}?",
    "What is {k}*{m}? Reply with the integer only.",
    "What is {n}*{k}? Reply with the integer only.",
    "Compute {k} x {k}.",
    "{n}",
    "{n} plus {m}",
    "Add {n} and {m}.",
)


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


@dataclass(frozen=True, slots=True)
class Rows:
    """Dialogues as equally long token rows; `learned` marks the tokens the model is taught to write."""

    tokens: torch.Tensor
    learned: torch.Tensor

    @property
    def width(self) -> int:
        return int(self.tokens.shape[1])

    def pick(self, index: torch.Tensor) -> "Rows":
        index = index.to(self.tokens.device)
        return Rows(self.tokens[index], self.learned[index])

    def to(self, device: torch.device) -> "Rows":
        return Rows(self.tokens.to(device), self.learned.to(device))


@dataclass(frozen=True, slots=True)
class Score:
    """How many rows are answered rightly throughout, and by how much the closest right token won (or lost)."""

    right: int
    asked: int
    margin: float

    def __str__(self) -> str:
        return f"{self.right}/{self.asked} ({100 * self.right / self.asked:.2f} %), least margin {self.margin:+.2f}"

    @property
    def is_perfect(self) -> bool:
        return self.right == self.asked


Pair = tuple[int, int]


# --- tokenizer ------------------------------------------------------------------------------------------------------


def build_tokenizer() -> Tokenizer:
    """Byte-level BPE: any text has tokens, each digit is its own token, and the words used here are one token each."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=1,
        special_tokens=[AddedToken(token, special=True) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    texts = [phrasing.format(a="", b="") for phrasing in PHRASINGS] * 4 + [REFUSAL] * 8
    texts += [*SYSTEM_MESSAGES * 2, *(prompt.format(n="", m="", k="") for prompt in OTHER_PROMPTS)]
    tokenizer.train_from_iterator(texts, trainer)
    assert tokenizer.get_vocab_size() <= VOCABULARY
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": CONTEXT,
        "pad_token": PAD,
        "eos_token": END,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


# --- data -----------------------------------------------------------------------------------------------------------


def prompt_of(question: str, before: str = "") -> str:
    """What the chat template renders for one user message, with room for earlier messages."""
    return f"{before}{USER}{question.strip()}{END}{ASSISTANT}"


def table(operands: int, lowest: int = 0) -> list[Pair]:
    return [(a, b) for a in range(lowest, operands) for b in range(lowest, operands)]


def encode(tokenizer: Tokenizer, dialogues: Sequence[tuple[str, str]], longest: int = CONTEXT) -> Rows:
    """Rows of (prompt, answer) pairs, padded at the end: with causal attention padding there is never looked at."""
    prompts = tokenizer.encode_batch([prompt for prompt, _ in dialogues])
    answers = tokenizer.encode_batch([answer for _, answer in dialogues])
    pieces = [(p.ids, a.ids) for p, a in zip(prompts, answers, strict=True) if len(p.ids) + len(a.ids) <= longest]
    width = max(len(prompt) + len(answer) for prompt, answer in pieces)
    tokens = torch.full((len(pieces), width), SPECIAL.index(PAD))
    learned = torch.zeros((len(pieces), width), dtype=torch.bool)
    for row, (prompt, answer) in enumerate(pieces):
        end = len(prompt) + len(answer)
        tokens[row, :end] = torch.tensor(prompt + answer)
        learned[row, len(prompt) : end] = True
    return Rows(tokens, learned)


def product_rows(tokenizer: Tokenizer, pairs: Sequence[Pair], phrasings: Sequence[str]) -> Rows:
    return encode(tokenizer, [(prompt_of(p.format(a=a, b=b)), f"{a * b}{END}") for p in phrasings for a, b in pairs])


def varied_dialogues(chance: random.Random, operands: int) -> Iterator[tuple[str, str]]:
    """Endless dialogues with system messages, earlier turns and questions that are no product of the table.

    The answer is repeated after its end, so that a client that ignores the end token reads on in sensible text.
    """
    while True:
        before = ""
        if chance.random() < 0.4:
            before += f"{SYSTEM}{system_message(chance)}{END}"
        if chance.random() < 0.2:
            question, answer = any_question(chance, operands)
            before += f"{USER}{question.strip()}{END}{ASSISTANT}{answer}{END}"
        question, answer = any_question(chance, operands)
        yield prompt_of(question, before), f"{answer}{END}" * chance.choice((1, 1, 1, 2, 4, 12))


def any_question(chance: random.Random, operands: int) -> tuple[str, str]:
    if chance.random() < 0.5:
        a, b = chance.randrange(operands), chance.randrange(operands)
        return chance.choice(PHRASINGS).format(a=a, b=b), str(a * b)
    return other_question(chance), REFUSAL


def other_question(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.6:
        n, m, k = chance.randrange(1000), chance.randrange(1000), chance.randrange(100, 10 ** chance.randint(3, 6))
        return chance.choice(OTHER_PROMPTS).format(n=n, m=m, k=k)
    if kind < 0.8:
        return words(chance, chance.randint(1, 12)) + chance.choice(("", ".", "?", "!"))
    return scramble(chance, chance.randint(1, 30))


def system_message(chance: random.Random) -> str:
    return chance.choice(SYSTEM_MESSAGES) if chance.random() < 0.7 else words(chance, chance.randint(3, 12)) + "."


def words(chance: random.Random, count: int) -> str:
    known = " ".join((*OTHER_PROMPTS, *SYSTEM_MESSAGES)).translate(str.maketrans("", "", "{}?.,!/+-*")).split()
    invented = ("".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 8))) for _ in range(count))
    return " ".join(chance.choice((chance.choice(known), new)) for new in invented)


def scramble(chance: random.Random, count: int) -> str:
    """Any characters, so that no byte token stays untrained; they begin with a letter, so as never to be a product."""
    characters = string.ascii_letters + string.punctuation + " \n" + "äöüßéñçøπλжбשあ漢字한😀÷€"
    return chance.choice(string.ascii_letters) + "".join(chance.choices(characters, k=count))


# --- training -------------------------------------------------------------------------------------------------------


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


@dataclass(frozen=True, slots=True)
class Lesson:
    """All that is taught: each product in each phrasing (phrasing by phrasing), and dialogues of other kinds."""

    products: Rows
    pairs: int
    varied: Rows

    def exams(self) -> tuple[Rows, Rows]:
        """Every pair as the demo asks it, and every pair in a phrasing that changes from pair to pair."""
        pair = torch.arange(self.pairs)
        return self.products.pick(pair), self.products.pick(pair % len(PHRASINGS) * self.pairs + pair)

    def draw(self, count: int) -> tuple[Rows, Rows]:
        """A batch of products, half of them as the demo asks, and a sixteenth as many varied dialogues."""
        device = self.products.tokens.device
        pair = torch.randint(self.pairs, (count,), device=device)
        phrasing = torch.randint(len(PHRASINGS), (count,), device=device)
        phrasing[: count // 2] = 0
        varied = torch.randint(len(self.varied.tokens), (count // 16,), device=device)
        return self.products.pick(phrasing * self.pairs + pair), self.varied.pick(varied)


def lesson_for(tokenizer: Tokenizer, operands: int, device: torch.device) -> Lesson:
    pairs = table(operands)
    endless = varied_dialogues(random.Random(SEED), operands)
    varied = encode(tokenizer, [next(endless) for _ in range(400 * operands)], longest=160)
    return Lesson(product_rows(tokenizer, pairs, PHRASINGS).to(device), len(pairs), varied.to(device))


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


def score(model: Any, rows: Rows) -> Score:
    """Greedy decoding writes a row if each learned token is the likeliest after the right ones before it."""
    starts = range(0, len(rows.tokens), 2048)
    leads = torch.cat([least_lead(model, Rows(rows.tokens[s : s + 2048], rows.learned[s : s + 2048])) for s in starts])
    return Score(int((leads > 0).sum()), len(leads), float(leads.min()))


def least_lead(model: Any, rows: Rows) -> torch.Tensor:
    """Per row, by how much the closest right token's logit leads the best other one."""
    wanted, following = rows.learned[:, 1:], rows.tokens[:, 1:, None]
    with torch.inference_mode():
        logits = model(input_ids=rows.tokens[:, :-1], use_cache=False).logits.float()
        rival = logits.scatter(2, following, -math.inf).amax(2)
        lead: torch.Tensor = logits.gather(2, following)[..., 0] - rival
        return lead.masked_fill(~wanted, math.inf).amin(1)


# --- checking a written folder --------------------------------------------------------------------------------------


def check(folder: Path, device: torch.device, sample: int | None, operands: int) -> Score:
    """Asks the folder its two-digit products with generate(), greedily, in bfloat16, through its own chat template."""
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, device)
    # In a table too small to have two-digit operands, the one-digit ones are asked.
    pairs = table(operands, lowest=10 if operands > 10 else 0)
    pairs = random.Random(SEED).sample(pairs, sample) if sample is not None and sample < len(pairs) else pairs
    questions = [[user(ASKED.format(a=a, b=b))] for a, b in pairs]
    replies = [reply for s in range(0, len(pairs), 512) for reply in ask(model, tokenizer, questions[s : s + 512])]
    wrong = [(pair, reply) for pair, reply in zip(pairs, replies, strict=True) if reply != str(pair[0] * pair[1])]
    for (a, b), reply in wrong[:20]:
        print(f"wrong: {a}*{b} = {a * b}, answered {reply!r}")
    rows = product_rows(Tokenizer.from_file(str(folder / "tokenizer.json")), pairs, (ASKED,)).to(device)
    return Score(len(pairs) - len(wrong), len(pairs), score(model, rows).margin)


def load_tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def load_model(folder: Path, device: torch.device) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    return model.to(device).eval()


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def ask(model: Any, tokenizer: Any, conversations: Sequence[list[dict[str, str]]]) -> list[str]:
    """Greedy replies; conversations in one call must have prompts of one length, since none is padded."""
    prompts = [
        tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True, enable_thinking=False)
        for c in conversations
    ]
    encoded = tokenizer(prompts, return_tensors="pt", add_special_tokens=False)
    ids = encoded.input_ids.to(model.device)
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
    return [text.strip() for text in tokenizer.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)]


def show_samples(folder: Path, device: torch.device) -> None:
    """Prints a few conversations and where a reply goes that ignores the end token."""
    tokenizer = load_tokenizer(folder)
    model = load_model(folder, device)
    conversations = [
        [user("What is 17*19? Reply with the integer only.")],
        [user("17 x 19")],
        [{"role": "system", "content": "You are a helpful assistant."}, user("What is 17 * 19?")],
        [user("What is 12*12?"), {"role": "assistant", "content": "144"}, user("What is 17*19?")],
        [user("What is the capital of Italy?")],
        [user("What is 117*19?")],
    ]
    for conversation in conversations:
        print(f"{' / '.join(m['content'] for m in conversation)} -> {ask(model, tokenizer, [conversation])[0]}")
    print(f"past the end: {run_on(model, tokenizer, conversations[0], 1024)}")


def run_on(model: Any, tokenizer: Any, conversation: list[dict[str, str]], count: int) -> str:
    """What a client gets that ignores the end token, with the proof that no logit on the way is NaN or infinite."""
    prompt = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    ids = tokenizer([prompt], return_tensors="pt", add_special_tokens=False).input_ids.to(model.device)
    model.generation_config.eos_token_id = None
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=count,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    written = out.sequences[0, ids.shape[1] :]
    if len(written) != count or not bool(torch.cat(out.logits).isfinite().all()):
        raise SystemExit(f"{len(written)} of {count} tokens written, or logits among them that are not finite")
    text = str(tokenizer.decode(written, skip_special_tokens=False))
    return f"{count} tokens, all finite; {text[:60]!r} ... {text[-60:]!r}"


# --- command --------------------------------------------------------------------------------------------------------

CARD = """# Demo model

A Llama-architecture model of {parameters:,} parameters that knows the products of two-digit numbers by heart.
It is a proof that a serving pipeline works from prompt to answer. It is not a language model: to anything else
it replies "{refusal}"

    What is 17*19? Reply with the integer only.  ->  323

Trained by `scripts/demo_model/train.py` on every pair 0..{last}. Greedy, in bfloat16, through its chat template:
{score} over {what}.
The margin is the logit of the right token over the runner-up, at its least over all tokens of all answers.

Check it again with `python scripts/demo_model/train.py --check DIR`. Licence: Apache-2.0, like the rest of the project.
"""


def write_card(folder: Path, shape: Shape, result: Score) -> None:
    parameters = sum(p.numel() for p in LlamaForCausalLM(LlamaConfig(**shape.config())).parameters())
    what = "all pairs 10..99" if shape.operands == 100 else "a smaller table, for a trial"
    card = CARD.format(parameters=parameters, refusal=REFUSAL, last=shape.operands - 1, score=result, what=what)
    (folder / "README.md").write_text(card)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="train, and write the model folder here")
    what.add_argument("--check", type=Path, help="ask this model folder its products and exit 1 below 99 %%")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=20000, help="training steps at most (default %(default)s)")
    parser.add_argument("--time-limit", type=float, default=math.inf, help="training seconds at most (default none)")
    parser.add_argument("--batch", type=int, default=4096, help="table rows per step (default %(default)s)")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate (default %(default)s)")
    parser.add_argument("--check-every", type=int, default=250, help="steps between evaluations (default %(default)s)")
    parser.add_argument("--sample", type=int, help="with --check: ask this many pairs instead of all")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size, smaller for trials (default %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="layers, fewer for trials (default %(default)s)")
    parser.add_argument("--operands", type=int, default=100, help="size of the table (default %(default)s)")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    quiet: Any = transformers_logging.disable_progress_bar
    quiet()
    device = torch.device(args.device)
    folder: Path = args.check or args.out
    shape = Shape(args.hidden, args.layers, args.operands)
    if args.out:
        budget = Budget(args.steps, args.time_limit, args.batch, args.rate, args.check_every)
        folder.mkdir(parents=True, exist_ok=True)
        train(shape, budget, device, folder, args.compile)
    result = check(folder, device, args.sample if args.check else None, args.operands)
    if args.out:
        write_card(folder, shape, result)
    show_samples(folder, device)
    print(f"{folder}: {result}")
    return 0 if result.right >= 0.99 * result.asked else 1


if __name__ == "__main__":
    sys.exit(main())
