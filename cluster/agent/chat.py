"""Ask the served API one question from the node it listens on, streaming. Runs on a node, from standard input.

Argument: JSON {"url", "model", "prompt", "max_tokens", "limit", "key_file", "extra": {...}}. Answer: JSON {"status": n
or null, "text", "reasoning", "finish", "usage", "first_token": seconds or null, "seconds", "error"}. The key is read
from its file here.

With "needle": {"tokens", "depth": percent, "seed", "phrase"} the prompt is made here: random words that no cache has
seen, the phrase among them, as many tokens as asked for by the server's own count. Then the answer has "tokens", the
length that was reached. With "image", a data URI, the question is about that image.
"""

import json
import os
import random
import sys
import time
import urllib.error
import urllib.request
from typing import Any, Iterator

WORDS = """
stone river light garden winter paper silver window mountain evening letter harbor copper meadow station engine
number shadow bridge candle forest market summer island bottle thunder ladder pepper saddle velvet anchor barrel
"""
PADDING = " a"  # one token for every tokenizer that we know
FURTHER = 64  # tries to reach the length exactly


def ask(want: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": None,
        "text": "",
        "reasoning": "",
        "finish": None,
        "usage": None,
        "first_token": None,
        "error": "",
    }
    started = time.monotonic()
    try:
        if want.get("needle"):
            answer["tokens"], want["prompt"] = haystack(want)
            started = time.monotonic()
        with post(want, want["url"], body(want)) as reply:
            answer["status"] = reply.status
            for line in reply:
                take(line, answer, started)
                if time.monotonic() - started > want["limit"]:
                    answer["error"] = "no end within %.0f s" % want["limit"]
                    break
    except urllib.error.HTTPError as error:
        answer["status"] = error.code
        answer["error"] = error.read(2000).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        answer["error"] = str(getattr(error, "reason", error)) or type(error).__name__
    answer["seconds"] = time.monotonic() - started
    return answer


def body(want: dict[str, Any]) -> dict[str, Any]:
    content = want["prompt"]
    if want.get("image"):
        content = [{"type": "image_url", "image_url": {"url": want["image"]}}, {"type": "text", "text": content}]
    asked = {
        "model": want["model"],
        "messages": [{"role": "user", "content": content}],
        "max_tokens": want["max_tokens"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    asked.update(want.get("extra") or {})
    return asked


def post(want: dict[str, Any], url: str, asked: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    if want.get("key_file"):
        with open(os.path.expanduser(want["key_file"]), encoding="utf-8") as file:
            headers["Authorization"] = "Bearer " + file.read().strip()
    request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(request, timeout=want["limit"])


def take(line: bytes, answer: dict[str, Any], started: float) -> None:
    """One server-sent event line into the answer."""
    if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
        return
    chunk = json.loads(line[6:])
    if "error" in chunk:
        answer["error"] = str(chunk["error"])
        return
    answer["usage"] = chunk.get("usage") or answer["usage"]
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta", {})
        piece, thought = delta.get("content") or "", delta.get("reasoning_content") or delta.get("reasoning") or ""
        if (piece or thought) and answer["first_token"] is None:
            answer["first_token"] = time.monotonic() - started
        answer["text"] += piece
        answer["reasoning"] += thought
        answer["finish"] = choice.get("finish_reason") or answer["finish"]


def haystack(want: dict[str, Any]) -> tuple[int, str]:
    """The longest prompt of random words that is not too long, filled up to the very length; and that length."""
    needle = want["needle"]
    words = list(random_words(needle["seed"], needle["tokens"]))
    fits, too_many = 0, len(words) + 1  # a word is one token at least
    if count(want, prompt(needle, [], "")) > needle["tokens"]:
        raise ValueError("%d tokens are too few for the question itself" % needle["tokens"])
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if count(want, prompt(needle, words[:middle], "")) <= needle["tokens"]:
            fits = middle
        else:
            too_many = middle
    padding, text = "", prompt(needle, words[:fits], "")
    length = count(want, text)
    for _ in range(FURTHER):
        if length >= needle["tokens"]:
            break
        padding += PADDING
        longer = prompt(needle, words[:fits], padding)
        made = count(want, longer)
        if made > needle["tokens"]:
            break
        length, text = made, longer
    return length, text


def random_words(seed: str, number: int) -> Iterator[str]:
    chance, words = random.Random(seed), WORDS.split()
    return (chance.choice(words) for _ in range(number))


def prompt(needle: dict[str, Any], words: list[str], padding: str) -> str:
    """The seed comes first: a server that has seen the rest before has not seen this beginning."""
    place = len(words) * needle["depth"] // 100
    told = "The passphrase is %s." % needle["phrase"]
    before, after = " ".join(words[:place]), " ".join(words[place:])
    question = "What is the passphrase in the text above? Reply with the passphrase only."
    return "%s\n%s\n%s\n%s%s\n%s" % (needle["seed"], before, told, after, padding, question)


def count(want: dict[str, Any], text: str) -> int:
    """Tokens of the whole request as the server counts them, template and all."""
    asked = {"model": want["model"], "messages": [{"role": "user", "content": text}], "add_special_tokens": False}
    kwargs = (want.get("extra") or {}).get("chat_template_kwargs")
    if kwargs:
        asked["chat_template_kwargs"] = kwargs
    with post(want, want["url"].split("/v1/", 1)[0] + "/tokenize", asked) as reply:
        return int(json.load(reply)["count"])


if __name__ == "__main__":
    json.dump(ask(json.loads(sys.argv[1])), sys.stdout)
