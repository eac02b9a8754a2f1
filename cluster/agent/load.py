"""Ask a served API many questions, some at once, and say how each answer came. Runs on a node, from standard input.

Argument: JSON {"url", "model", "questions": [...], "requests", "at_once", "max_tokens", "limit", "key_file"}. Before
the questions that count, each asker asks one that does not: what is compiled at first use is no pace. Answer: JSON
{"samples": [{"began", "ended", "first": seconds or null, "gaps": [...], "pieces", "prompt_tokens": n or null,
"new_tokens": n or null, "error"}, ...]}; times are seconds since the first question that counts, `gaps` those between
pieces of an answer.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any, Iterator

Sample = dict[str, Any]
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def load(want: dict[str, Any]) -> list[Sample]:
    askers = min(want["at_once"], want["requests"])
    together(askers, lambda: ask(want, want["questions"][0], time.monotonic()))
    numbers: Iterator[int] = iter(range(want["requests"]))
    turn, samples, start = threading.Lock(), list[Sample](), time.monotonic()

    def work() -> None:
        while True:
            with turn:
                number = next(numbers, None)
            if number is None:
                return
            one = ask(want, want["questions"][number % len(want["questions"])], start)
            with turn:
                samples.append(one)

    together(askers, work)
    return sorted(samples, key=lambda one: one["began"])


def together(askers: int, act: Any) -> None:
    threads = [threading.Thread(target=act) for _ in range(askers)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def ask(want: dict[str, Any], question: str, start: float) -> Sample:
    """One answer, as a stream; an answer without a single piece of text is an error too."""
    sample: Sample = {
        "began": time.monotonic() - start,
        "first": None,
        "gaps": [],
        "pieces": 0,
        "prompt_tokens": None,
        "new_tokens": None,
        "error": "",
    }
    last = began = time.monotonic()
    try:
        with OPENER.open(request(want, question), timeout=want["limit"]) as reply:
            for line in reply:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                now = time.monotonic()
                if take(json.loads(line[6:]), sample):
                    if sample["first"] is None:
                        sample["first"] = now - began
                    else:
                        sample["gaps"].append(now - last)
                    last = now
                if now - began > want["limit"]:
                    sample["error"] = "no end within %.0f s" % want["limit"]
                    break
    except urllib.error.HTTPError as error:
        sample["error"] = "HTTP %d: %s" % (error.code, error.read(200).decode("utf-8", "replace"))
    except (OSError, ValueError) as error:
        sample["error"] = str(getattr(error, "reason", error)) or type(error).__name__
    sample["ended"] = time.monotonic() - start
    if sample["first"] is None and not sample["error"]:
        sample["error"] = "an answer without text"
    return sample


def request(want: dict[str, Any], question: str) -> urllib.request.Request:
    body = {
        "model": want["model"],
        "messages": [{"role": "user", "content": question}],
        "max_tokens": want["max_tokens"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    }
    headers = {"Content-Type": "application/json"}
    if want["key_file"]:
        with open(os.path.expanduser(want["key_file"]), encoding="utf-8") as file:
            headers["Authorization"] = "Bearer " + file.read().strip()
    return urllib.request.Request(want["url"], json.dumps(body).encode(), headers)


def take(chunk: dict[str, Any], sample: Sample) -> bool:
    """Whether the event brought text, of an answer or of a thought."""
    if "error" in chunk:
        sample["error"] = str(chunk["error"])[:200]
        return False
    usage = chunk.get("usage")
    if usage:
        sample["prompt_tokens"], sample["new_tokens"] = usage.get("prompt_tokens"), usage.get("completion_tokens")
    deltas = [choice.get("delta") or {} for choice in chunk.get("choices", ())]
    has_text = any(one.get("content") or one.get("reasoning_content") or one.get("reasoning") for one in deltas)
    sample["pieces"] += has_text
    return has_text


if __name__ == "__main__":
    json.dump({"samples": load(json.loads(sys.argv[1]))}, sys.stdout)
