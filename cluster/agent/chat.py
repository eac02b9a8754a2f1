"""Ask the served API one question from the node it listens on, streaming. Runs on a node, from standard input.

Argument: JSON {"url", "model", "prompt", "max_tokens", "limit", "key_file", "extra": {...}}. Answer: JSON {"status": n
or null, "text", "finish", "usage", "first_token": seconds or null, "seconds", "error"}. The key is read from its file
here.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from typing import Any


def ask(want: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "status": None,
        "text": "",
        "finish": None,
        "usage": None,
        "first_token": None,
        "error": "",
    }
    body = {
        "model": want["model"],
        "messages": [{"role": "user", "content": want["prompt"]}],
        "max_tokens": want["max_tokens"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body.update(want.get("extra") or {})
    headers = {"Content-Type": "application/json"}
    if want.get("key_file"):
        with open(os.path.expanduser(want["key_file"]), encoding="utf-8") as file:
            headers["Authorization"] = "Bearer " + file.read().strip()
    request = urllib.request.Request(want["url"], json.dumps(body).encode(), headers)
    started = time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=want["limit"]) as reply:
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
        piece = choice.get("delta", {}).get("content") or ""
        if piece and answer["first_token"] is None:
            answer["first_token"] = time.monotonic() - started
        answer["text"] += piece
        answer["finish"] = choice.get("finish_reason") or answer["finish"]


if __name__ == "__main__":
    json.dump(ask(json.loads(sys.argv[1])), sys.stdout)
