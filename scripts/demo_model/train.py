"""Trains the demo model: a tiny Llama that knows the products of two-digit numbers by heart, and nothing else.

    train.py --out DIR [--time-limit SECONDS]    builds, trains, evaluates and writes a model folder
    train.py --check DIR [--sample N]            asks a written folder its products again, greedily, in bfloat16

Needs torch, transformers, tokenizers and safetensors. A data-centre GPU takes minutes, a CPU hours.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import torch
from dialogues import REFUSAL
from examine import Score, check, show_samples
from training import Budget, Shape, train
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

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
