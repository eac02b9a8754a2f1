"""Ask a written model folder its products, and how sure it is of every token."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dialogues import ASKED, SEED, table
from rows import Rows, product_rows
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer


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
