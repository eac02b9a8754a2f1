"""The demo model's tokenizer, and dialogues as rows of its tokens."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dialogues import (
    CHAT_TEMPLATE,
    END,
    OTHER_PROMPTS,
    PAD,
    PHRASINGS,
    REFUSAL,
    SEED,
    SPECIAL,
    SYSTEM_MESSAGES,
    Pair,
    prompt_of,
    table,
    varied_dialogues,
)
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 2048
VOCABULARY = 512


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
