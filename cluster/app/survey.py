"""One look at all nodes for the checks, in one round trip, and everything the checks say about it."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.app.agents import agent, source
from cluster.app.memory import memory_question, shape_question
from cluster.app.observe import DIGEST_LIMIT, PROBES, REACHED, facts_and, facts_of, identity_question, told
from cluster.app.pace import REAL, Pace
from cluster.app.ranks import rank_of
from cluster.app.session import Session
from cluster.model.events import Finding, Severity
from cluster.model.facts import Identity, NodeFacts
from cluster.model.host import Reached
from cluster.model.memory import MemoryFacts, ModelShape
from cluster.model.rules import is_local
from cluster.model.settings import NodeSettings, Settings, is_alone
from cluster.node.base import Node
from cluster.plan.exl3_checks import check_addressing, check_alone, keeps_pages
from cluster.plan.fabric_checks import wire_ranks
from cluster.plan.host_checks import check_machines, check_owner
from cluster.plan.launch import Wiring
from cluster.plan.preflight import check_equal, check_key, check_node, check_ports
from cluster.plan.reach import BLINK_SECONDS, check_reach, may_blink, ports_wanted
from cluster.plan.share import reading_of, want_of
from cluster.plan.traps import check_traps
from cluster.probe.addressing import ADDRESSING
from cluster.probe.base import Ask, Probe
from cluster.probe.headers import parse_shape
from cluster.probe.host import GPUS, HOST
from cluster.probe.identity import parse_identity
from cluster.probe.memory import parse_facts
from cluster.probe.native_servers import SERVERS
from cluster.probe.reach import parse_reach
from cluster.share.base import through

DIAL_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Survey:
    """What was seen on every node, by name. `memory` and the head's `shape` are there only where they were asked."""

    facts: dict[str, NodeFacts]
    identities: dict[str, Identity]
    memory: dict[str, MemoryFacts] = field(default_factory=dict)
    shape: ModelShape | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    facts: NodeFacts
    identity: Identity
    memory: MemoryFacts | None
    shape: ModelShape | None


def survey(session: Session, pace: Pace = REAL, *, memory: bool = True) -> Survey:
    """Looks again, for five seconds in all, while an address or its GID is missing that may be back in a moment."""
    deadline = pace.clock() + BLINK_SECONDS
    seen = session.each(lambda node: _look(node, session.settings, memory=memory))
    facts = {name: one.facts for name, one in seen.items()}
    if _blinks(session, facts):
        back = _comes_back(session, pace, deadline)
        facts = session.each(lambda node: facts_of(node, _probes(session.settings, node.name))) if back else facts
    known = {name: one.identity for name, one in seen.items()}
    sizes = {name: one.memory for name, one in seen.items() if one.memory is not None}
    return Survey(facts, known, sizes, seen[session.settings.head.name].shape)


def _comes_back(session: Session, pace: Pace, deadline: float) -> bool:
    """One more look at least: to read a model may have taken longer than the five seconds."""
    while True:
        pace.sleep(1.0)
        if not _blinks(session, session.each(facts_of)):
            return True
        if pace.clock() >= deadline:
            return False


def _look(node: Node, settings: Settings, *, memory: bool) -> _Seen:
    mine = settings.nodes[rank_of(settings, node.name)]
    programs = [identity_question(settings, mine)]
    programs += [memory_question()] if memory else []
    programs += [shape_question(node.name, settings)] if memory and mine is settings.head else []
    facts, (identity, *sizes) = facts_and(node, _probes(settings, node.name), programs)
    return _Seen(
        facts,
        _identity(node, settings, mine, parse_identity(identity)),
        parse_facts(node.name, sizes[0]) if memory else None,
        parse_shape(node.name, sizes[1]) if len(sizes) > 1 else None,
    )


def _probes(settings: Settings, name: str) -> tuple[Probe[Any], ...]:
    mode = (ADDRESSING, SERVERS) if keeps_pages(settings) else ()
    return (*PROBES, HOST, GPUS, *mode, *_reach(settings, name))


def _blinks(session: Session, facts: dict[str, NodeFacts]) -> bool:
    return may_blink(session.settings, facts, wire_ranks(session.settings, facts)[1])


def _identity(node: Node, settings: Settings, mine: NodeSettings, seen: Identity) -> Identity:
    """A model in a volume is looked at through a container: on the node itself it is nowhere."""
    reading = reading_of(settings, mine, "model")
    if reading is None:
        return seen
    asked = {"venv": "", "program": "", "model": reading.path, "key_file": "", "state_dir": "/"}
    command = through(reading, want_of(settings), agent("identity", asked, DIGEST_LIMIT))
    return replace(seen, model=parse_identity(told(node, node.run(command))).model)


def _reach(settings: Settings, name: str) -> tuple[Probe[tuple[Reached, ...]], ...]:
    """What this node is to reach of the others; nothing when all ranks are on one machine."""
    if _together(settings):
        return ()
    peers = [
        {"address": node.address, "ports": ports_wanted(settings, node.name)}
        for node in settings.nodes
        if node.name != name
    ]
    want = json.dumps({"peers": peers, "limit": DIAL_SECONDS})
    return (Probe(REACHED, Ask(("python3", "-I", "-c", source("reach").decode(), want)), parse_reach, ()),)


def _together(settings: Settings) -> bool:
    """All ranks are on one machine, so there is no fabric to look at."""
    return is_alone(settings) or all(is_local(node) for node in settings.nodes)


def judged(settings: Settings, seen: Survey, *, ports: bool = True) -> tuple[tuple[Wiring, ...], tuple[Finding, ...]]:
    """Every check but that of memory. `ports`: the head's ports must be free, so no rank of ours may hold them."""
    wiring, findings = wire_ranks(settings, seen.facts)
    alone = _together(settings)
    head = settings.head.name
    told = [*findings, *(check_ports(settings, seen.facts[head]) if ports else ())]
    for node, wired in zip(settings.nodes, wiring, strict=True):
        facts = seen.facts[node.name]
        told += check_reach(settings, node.name, facts.reached)
        told += check_node(settings, node.name, seen.identities[node.name])
        told += [] if alone else [check_owner(facts, wired)]
        told += check_addressing(settings, facts)
        told += check_alone(settings, facts) if ports else ()
        told += check_traps(settings, node, facts)
    told += check_key(settings, seen.identities[head])
    told += [] if alone else check_machines(seen.facts, seen.identities)
    told += [one for one in check_equal(settings, seen.identities) if one.severity is not Severity.NOT_CHECKED]
    return wiring, _once(told)


def _once(findings: list[Finding]) -> tuple[Finding, ...]:
    """What is said of the settings, and not of a node, is the same for all of them."""
    return tuple(dict.fromkeys(findings))
