"""Run probes on a node, all in one round trip, and say what was seen."""

import json
from typing import Any

from cluster.app.agents import agent
from cluster.errors import StepFailed, Unreadable
from cluster.model.facts import Identity, NodeFacts
from cluster.model.host import NO_HOST
from cluster.model.settings import NodeSettings, RuntimeKind, Settings
from cluster.node.base import Node, Result
from cluster.plan.launch import filled_words
from cluster.probe.addressing import ADDRESSING
from cluster.probe.base import Answer, Probe
from cluster.probe.host import GPUS, HOST
from cluster.probe.identity import parse_identity
from cluster.probe.native_servers import SERVERS
from cluster.probe.rank_acts import parse_failure
from cluster.probe.rdma import FABRIC
from cluster.probe.system import ADDRESSES, HCAS, LISTENERS, MEMORY

PROBES: tuple[Probe[Any], ...] = (ADDRESSES, LISTENERS, MEMORY, HCAS, FABRIC)
REACHED = "the other nodes"
DIGEST_LIMIT = 600.0  # a small model is hashed whole, from a disk that may be busy


def facts_of(node: Node, probes: tuple[Probe[Any], ...] = PROBES) -> NodeFacts:
    """What the probes see, all in one round trip. `survey` asks more of them than a quick look needs."""
    questions = [{"argv": one.ask.argv} if one.ask.argv else {"file": one.ask.file} for one in probes]
    answers = [Answer(**one) for one in json.loads(told(node, node.run(agent("ask", questions))))]
    seen = {probe.name: _parsed(node, probe, answer) for probe, answer in zip(probes, answers, strict=True)}
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


def identity_of(node: Node, settings: Settings, mine: NodeSettings) -> Identity:
    """What the rank on `node` would run."""
    in_box = settings.launch.runtime is RuntimeKind.CONTAINER
    want = {
        "venv": "" if in_box else settings.launch.venv,
        "program": "" if in_box or not settings.launch.command else filled_words(settings)[0],
        "model": (mine.model or settings.serve.model) if in_box and settings.serve.model else settings.serve.model,
        "key_file": settings.serve.api_key_file if mine is settings.head else "",
        "state_dir": mine.state_dir,
    }
    return parse_identity(told(node, node.run(agent("identity", want, DIGEST_LIMIT))))


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
