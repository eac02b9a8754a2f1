"""Run probes on a node, all in one round trip, and say what was seen."""

import json
from collections.abc import Sequence
from typing import Any

from cluster.app.agents import agent
from cluster.errors import StepFailed, TimedOut, Unreadable
from cluster.model.facts import NodeFacts
from cluster.model.host import NO_HOST
from cluster.model.settings import NodeSettings, RuntimeKind, Settings
from cluster.model.steps import Command
from cluster.node.base import Node, Result
from cluster.plan.launch import filled_words
from cluster.probe.addressing import ADDRESSING
from cluster.probe.base import TIMED_OUT, Answer, Probe
from cluster.probe.host import GPUS, HOST
from cluster.probe.native_servers import SERVERS
from cluster.probe.rank_acts import parse_failure
from cluster.probe.rdma import FABRIC
from cluster.probe.system import ADDRESSES, HCAS, LISTENERS, MEMORY

PROBES: tuple[Probe[Any], ...] = (ADDRESSES, LISTENERS, MEMORY, HCAS, FABRIC)
REACHED = "the other nodes"
ASK_LIMIT = 75.0  # above the longest that `agent/ask.py` gives one question
SPARE = 15.0  # seconds beyond a program's own limit, in which it is ended and told of
DIGEST_LIMIT = 600.0  # a small model is hashed whole, from a disk that may be busy


def facts_of(node: Node, probes: tuple[Probe[Any], ...] = PROBES) -> NodeFacts:
    """What the probes see, all in one round trip. `survey` asks more of them than a quick look needs."""
    return facts_and(node, probes, ())[0]


def facts_and(
    node: Node, probes: Sequence[Probe[Any]], programs: Sequence[Command]
) -> tuple[NodeFacts, tuple[str, ...]]:
    """In the same round trip also what programs of ours answer: a login for each would cost more than they do."""
    questions = [{"argv": one.ask.argv} if one.ask.argv else {"file": one.ask.file} for one in probes]
    asked = [{"argv": one.argv, "stdin": one.stdin.decode(), "limit": one.limit} for one in programs]
    limit = max((ASK_LIMIT, *(one.limit + SPARE for one in programs)))
    answers = [Answer(**one) for one in json.loads(told(node, node.run(agent("ask", [*questions, *asked], limit))))]
    first, others = answers[: len(probes)], answers[len(probes) :]
    seen = {probe.name: _parsed(node, probe, answer) for probe, answer in zip(probes, first, strict=True)}
    return _facts(node, seen), tuple(_said(node, one) for one in others)


def _facts(node: Node, seen: dict[str, Any]) -> NodeFacts:
    return NodeFacts(
        node.name,
        addresses=seen[ADDRESSES.name],
        listeners=seen[LISTENERS.name],
        memory=seen[MEMORY.name],
        hcas=seen[HCAS.name],
        fabric=seen[FABRIC.name],
        host=seen.get(HOST.name, NO_HOST),
        gpus=seen.get(GPUS.name, ()),
        reached=seen.get(REACHED, ()),
        addressing=seen.get(ADDRESSING.name),
        servers=seen.get(SERVERS.name),
    )


def _parsed(node: Node, probe: Probe[Any], answer: Answer) -> Any:
    try:
        return probe.read(answer)
    except Unreadable as error:
        where = f"{node.name}, {probe.name}"
        raise Unreadable(error.what, where=where, evidence=error.evidence, fix=error.fix) from error


def _said(node: Node, answer: Answer) -> str:
    if answer.exit == TIMED_OUT:
        raise TimedOut("a question to the node was not answered in time", where=node.name, evidence=[answer.err])
    exit_code = 127 if answer.exit is None else answer.exit
    return told(node, Result(exit_code, answer.out.encode(), answer.err.encode()))


def identity_question(settings: Settings, mine: NodeSettings) -> Command:
    """What the rank on that node would run."""
    in_box = settings.launch.runtime is RuntimeKind.CONTAINER
    want = {
        "venv": "" if in_box else settings.launch.venv,
        "program": "" if in_box or not settings.launch.command else filled_words(settings)[0],
        "model": (mine.model or settings.serve.model) if in_box and settings.serve.model else settings.serve.model,
        "key_file": settings.serve.api_key_file if mine is settings.head else "",
        "state_dir": mine.state_dir,
    }
    return agent("identity", want, DIGEST_LIMIT)


def told(node: Node, result: Result) -> str:
    """What a program of ours answered; anything but exit 0 is an error with its last words."""
    if result.exit != 0:
        words = result.err_text.strip() or parse_failure(result.text)
        raise StepFailed(
            f"a question to the node failed with exit code {result.exit}",
            where=node.name,
            evidence=words.splitlines()[-5:],
        )
    return result.text
