"""Import what a server would import, in a process of its own, and say how far that went. Runs on a node.

Argument: JSON {"python": path of the interpreter, "exl3": bool, "limit": seconds}. Answer: JSON {"python": version,
"steps": [{"name", "ok", "told"}, ...], "died": text}: the steps in the order they were tried, each by itself, since
one that fails must not hide the others. `died` says how the process ended if it did not finish, e.g. by a signal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

# Runs in the server's own interpreter. torch comes first: the extension links to its libraries without naming them.
STEPS = r"""
import json, sys

def torch():
    import torch as one
    cuda = one.version.cuda or "none"
    told = {"version": one.__version__, "cuda": cuda, "gpu": ""}
    if one.cuda.is_available():
        told["gpu"] = "%d.%d" % one.cuda.get_device_capability()
    return told

def vllm():
    import vllm as one
    return {"version": one.__version__}

def exllamav3_ext():
    import exllamav3_ext as one
    return {"moe": hasattr(one, "exl3_moe")}

def plugin():
    from vllm.plugins import load_general_plugins
    load_general_plugins()
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
    if "exl3" not in QUANTIZATION_METHODS:
        raise RuntimeError("its plugins are loaded, and exl3 is not among the quantisations of vLLM")
    return {}

def say(name, ok, told):
    sys.__stdout__.write("\0" + json.dumps({"name": name, "ok": ok, "told": told}) + "\n")
    sys.__stdout__.flush()

for step in (torch, vllm) + ((exllamav3_ext, plugin) if sys.argv[1] == "1" else ()):
    try:
        say(step.__name__, True, step())
    except BaseException as error:
        say(step.__name__, False, {"error": "%s: %s" % (type(error).__name__, error)})
"""


def look(want: dict[str, Any]) -> dict[str, Any]:
    python = os.path.expanduser(want["python"])
    answer: dict[str, Any] = {"python": "", "steps": [], "died": ""}
    environment = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
    try:
        said = subprocess.run(
            [python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        answer["python"] = said.stdout.strip()
        words = [python, "-c", STEPS, "1" if want["exl3"] else "0"]
        done = subprocess.run(words, capture_output=True, env=environment, timeout=want["limit"])
        output, answer["died"] = done.stdout, how_it_ended(done)
    except subprocess.TimeoutExpired as late:
        output, answer["died"] = late.stdout or b"", "no end within %.0f s" % want["limit"]
    except OSError as error:
        output, answer["died"] = b"", error.strerror or str(error)
    for line in output.decode("utf-8", "replace").splitlines():
        if line.startswith("\0"):
            answer["steps"].append(json.loads(line[1:]))
    return answer


def how_it_ended(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == 0:
        return ""
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    told = "signal %d" % -done.returncode if done.returncode < 0 else "exit code %d" % done.returncode
    return ": ".join([told, *last])


if __name__ == "__main__":
    json.dump(look(json.loads(sys.argv[1])), sys.stdout)
