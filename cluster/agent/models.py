"""Ask the served API which models it has, from the node it listens on. Runs on a node, from standard input.

Argument: JSON {"url", "limit", "key_file"}. Answer: JSON {"models": [{"id", "context": tokens or null}], "error"}.
"""

import json
import os
import sys
import urllib.request
from typing import Any


def ask(want: dict[str, Any]) -> dict[str, Any]:
    headers = {}
    try:
        if want.get("key_file"):
            with open(os.path.expanduser(want["key_file"]), encoding="utf-8") as file:
                headers["Authorization"] = "Bearer " + file.read().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(want["url"], None, headers), timeout=want["limit"]) as reply:
            found = json.load(reply)["data"]
        models = [{"id": str(one["id"]), "context": one.get("max_model_len")} for one in found]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"models": [], "error": str(getattr(error, "reason", error)) or type(error).__name__}
    return {"models": models, "error": ""}


if __name__ == "__main__":
    json.dump(ask(json.loads(sys.argv[1])), sys.stdout)
