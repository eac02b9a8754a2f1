"""What the demo model is taught to say: its chat template, the phrasings of a product, and dialogues of other kinds."""

import random
import string
from collections.abc import Iterator

SEED = 1719
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

Pair = tuple[int, int]


def prompt_of(question: str, before: str = "") -> str:
    """What the chat template renders for one user message, with room for earlier messages."""
    return f"{before}{USER}{question.strip()}{END}{ASSISTANT}"


def table(operands: int, lowest: int = 0) -> list[Pair]:
    return [(a, b) for a in range(lowest, operands) for b in range(lowest, operands)]


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
