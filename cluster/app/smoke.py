"""Ask the served API a question with a known answer, from the node it listens on."""

import json
import re
from typing import Any

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.session import OpenNode, Session
from cluster.model.events import SmokeCheck, SmokeReport
from cluster.model.settings import Settings
from cluster.plan.launch import api_url, key_file

QUESTION = "What is 17*19? Reply with the integer only."
ANSWER = "323"


def smoke(settings: Settings, open_one: OpenNode) -> SmokeReport:
    """Thinking is off, so that the answer is not buried in it; a model without that switch ignores it."""
    want: dict[str, Any] = {
        "url": f"{api_url(settings)}/v1/chat/completions",
        "model": settings.serve.served_model_name or settings.serve.model,
        "prompt": QUESTION,
        "max_tokens": 32,
        "limit": settings.watch.completion_timeout,
        "key_file": key_file(settings),
        "extra": {"chat_template_kwargs": {"enable_thinking": False}},
    }
    with Session(settings, open_one) as session:
        head = session.head
        answer = json.loads(told(head, head.run(agent("chat", want, settings.watch.completion_timeout + 15))))
    check = SmokeCheck("17*19", is_right(answer["text"]), answer["seconds"], _detail(answer))
    return SmokeReport(settings.deployment, api_url(settings), want["model"], check.ok, (check,))


def is_right(text: str) -> bool:
    """The number, alone or in a sentence; 1323 is another one."""
    return re.search(rf"(?<!\d){ANSWER}(?!\d)", text) is not None


def _detail(answer: dict[str, Any]) -> str:
    if answer["error"]:
        status = f"HTTP {answer['status']}: " if answer["status"] else ""
        return f"{status}{answer['error'][:300]}"
    usage = answer["usage"] or {}
    text = " ".join(answer["text"].split())
    shown = text if len(text) <= 80 else text[:77] + "..."
    first = f", first token after {answer['first_token']:.2f} s" if answer["first_token"] is not None else ""
    return f"answered “{shown}” ({usage.get('completion_tokens', '?')} tokens{first})"
