"""`bench chat`: how fast the served model answers, asked from the node it listens on."""

import json
from math import ceil
from typing import Any

from cluster.app.agents import agent
from cluster.app.observe import told
from cluster.app.receipts import running
from cluster.app.session import OpenNode, Session
from cluster.errors import Unreadable
from cluster.model.pace import ChatBenchReport
from cluster.model.settings import Settings
from cluster.plan.launch import api_url, key_file
from cluster.plan.served_pace import Sample, pace

QUESTIONS = (
    "Why does a hash table need a load factor?",
    "Explain what a page fault is, and when one is cheap.",
    "How does TCP tell congestion from a lossy link?",
    "What is the difference between a mutex and a semaphore?",
    "Why are B-trees used for indices on disks?",
    "How does copy-on-write make fork cheap?",
    "What does a memory barrier order, and for whom?",
    "Why do floating point sums depend on their order?",
    "How does a write-ahead log survive a crash?",
    "What is false sharing, and how is it seen?",
    "Explain the difference between latency and bandwidth with an example.",
    "How does RDMA write into another machine without its processor?",
)
SHOWN = 3  # different errors


def bench_chat(
    settings: Settings, open_one: OpenNode, *, requests: int, at_once: int, max_tokens: int
) -> ChatBenchReport:
    """Changes nothing; other requests of the server wait meanwhile, or slow it down."""
    limit = settings.watch.completion_timeout
    with Session(settings, open_one) as session:
        head = session.head
        settings = running(head, settings)
        want = {
            "url": f"{api_url(settings)}/v1/chat/completions",
            "model": settings.serve.served_model_name or settings.serve.model,
            "questions": QUESTIONS,
            "requests": requests,
            "at_once": at_once,
            "max_tokens": max_tokens,
            "limit": limit,
            "key_file": key_file(settings),
        }
        samples = _samples(told(head, head.run(agent("load", want, limit * (ceil(requests / at_once) + 1) + 15))))
    return _report(settings, want, samples)


def _samples(text: str) -> tuple[Sample, ...]:
    try:
        return tuple(Sample(**one | {"gaps": tuple(one["gaps"])}) for one in json.loads(text)["samples"])
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("cannot read how the answers came", evidence=[text[:300], repr(error)]) from error


def _report(settings: Settings, want: dict[str, Any], samples: tuple[Sample, ...]) -> ChatBenchReport:
    seen, good = pace(samples), [one for one in samples if not one.error]
    return ChatBenchReport(
        deployment=settings.deployment,
        url=api_url(settings),
        model=want["model"],
        at_once=want["at_once"],
        requests=len(samples),
        answered=len(good),
        prompt_tokens=sum(one.prompt_tokens or 0 for one in good),
        new_tokens=seen.new_tokens,
        counted=seen.counted,
        seconds=seen.seconds,
        aggregate_tps=seen.aggregate_tps,
        llmkube_tps=seen.llmkube_tps,
        first_token=seen.first_token,
        between_pieces=seen.between_pieces,
        errors=tuple(dict.fromkeys(one.error for one in samples if one.error))[:SHOWN],
    )
