"""`fabric test`: measure every way between the nodes, each alone and then all at once, for about ten seconds."""

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import Any

from cluster.app.agents import agent
from cluster.app.observe import facts_of, told
from cluster.app.pace import REAL, Pace
from cluster.app.rdma_test import both_ways
from cluster.app.session import OpenNode, Session
from cluster.app.stages import Stages
from cluster.errors import SettingsError, SparkctlError, StepFailed
from cluster.model.events import Emit, Severity, StepStarted, Told
from cluster.model.fabric_test import FabricReport, Grade, How, Measured
from cluster.model.rules import is_local
from cluster.model.settings import Settings
from cluster.node.base import Node
from cluster.plan.fabric_checks import join
from cluster.plan.fabric_ways import (
    End,
    coverage,
    judge,
    judge_together,
    missing,
    name,
    pairs,
    totals,
    way,
)

STAGE = "measure"
SECONDS = 10.0  # for all of it
LEAST, MOST = 0.3, 1.0  # seconds that one way is measured alone
STREAMS = 4
LIMIT = 60.0
PATIENCE = 15.0

Pair = tuple[End, End]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one way carried, before it is judged."""

    gbps: float | None
    latency_us: float | None
    error: str = ""


Carry = Callable[[Sequence[Pair], float], list[Figures]]  # several ways at once, for so many seconds


def fabric_test(settings: Settings, open_one: OpenNode, emit: Emit, pace: Pace = REAL) -> FabricReport:
    """Sends only between the configured nodes' own fabric addresses, with small buffers. Changes nothing."""
    if all(is_local(node) for node in settings.nodes):
        raise SettingsError("all ranks are on this machine: there is no fabric to test")
    stages, session, began = Stages(emit, pace.clock), Session(settings, open_one, emit), pace.clock()
    try:
        with stages.stage("connect", tuple(node.name for node in settings.nodes)):
            session.open().need_all()
        with stages.stage(STAGE):
            ranks, findings = join(settings, session.each(facts_of))
            for one in findings:
                if one.severity is Severity.REFUSAL:
                    emit(Told(Severity.WARNING, one.observed, one.node))
            ways = pairs(ranks)
            alone, together = _measure(session, ways, emit)
    finally:
        session.close()
    total = totals(together)
    judged = [replace(one, grade=judge_together(alone, total, one)) for one in together]
    covered = coverage(alone, missing(ranks))
    sound = all(one.covered for one in covered) and all(one.grade is Grade.OK for one in (*alone, *judged))
    return FabricReport(
        settings.deployment,
        sound and bool(covered),
        pace.clock() - began,
        covered,
        (*alone, *judged),
        tuple((f"{source} -> {target}", round(gbps, 1)) for (source, target), gbps in total.items()),
    )


def _measure(session: Session, ways: Sequence[Pair], emit: Emit) -> tuple[list[Measured], list[Measured]]:
    if not ways:
        return [], []
    seconds = max(LEAST, min(MOST, SECONDS * 0.7 / len(ways)))
    with carriers(session, ways) as (how, carry):
        alone = []
        for pair in ways:
            emit(StepStarted(STAGE, pair[0].node, f"sending {name(way(*pair))}"))
            (found,) = carry([pair], seconds)
            grade, detail = judge(pair[0], how, found.gbps, found.latency_us, found.error)
            alone.append(Measured(way(*pair), how, False, found.gbps, found.latency_us, grade, detail))
        emit(StepStarted(STAGE, session.settings.head.name, f"sending {len(ways)} ways at once"))
        figures = carry(ways, seconds * 2)
    together = [
        Measured(way(*pair), how, True, one.gbps, one.latency_us, Grade.OK, one.error)
        for pair, one in zip(ways, figures, strict=True)
    ]
    return alone, together


@contextmanager
def carriers(session: Session, ways: Sequence[Pair]) -> Iterator[tuple[How, Carry]]:
    """RDMA where every end has a device and the program; plain sockets otherwise."""
    if all(one.device for pair in ways for one in pair) and _has_perftest(session):

        def by_rdma(chosen: Sequence[Pair], seconds: float) -> list[Figures]:
            found = both_ways(session, [(way(*pair), pair[0].gid or 0, pair[1].gid or 0) for pair in chosen], seconds)
            return [Figures(*one) for one in found]

        yield How.RDMA, by_rdma
        return
    token = secrets.token_hex(16)
    with _receivers(session, ways, token) as ports:
        yield How.SOCKETS, lambda chosen, seconds: _send(session, chosen, ports, token, seconds)


def _has_perftest(session: Session) -> bool:
    def look(node: Node) -> bool:
        questions = [{"argv": [tool, "--version"]} for tool in ("ib_write_bw", "ib_write_lat")]
        return all(one["exit"] is not None for one in json.loads(told(node, node.run(agent("ask", questions)))))

    return all(session.each(look).values())


@contextmanager
def _receivers(session: Session, ways: Sequence[Pair], token: str) -> Iterator[dict[str, int]]:
    """One receiver on each node, ended when we leave; yields the port of each address that listens."""
    stop, ports = Event(), {}
    answers: dict[str, dict[str, Any]] = {}
    told_all = {node: Event() for node in {target.node for _, target in ways}}

    def serve(node: str) -> None:
        mine = sorted({target.address for _, target in ways if target.node == node})
        peers = sorted({source.address for source, target in ways if target.node == node})
        want = {"serve": {"addresses": mine, "peers": peers, "token": token, "limit": LIMIT}}

        def hear(line: str) -> None:
            answers[node] = json.loads(line)
            told_all[node].set()

        try:
            session.node(node).stream(agent("fabric", want, LIMIT + 5), hear, stop)
        except SparkctlError as error:
            answers.setdefault(node, {"ports": {}, "error": error})
        told_all[node].set()

    threads = [Thread(target=serve, args=(node,), name=f"receiver {node}", daemon=True) for node in told_all]
    for thread in threads:
        thread.start()
    try:
        for node, heard in told_all.items():
            if not heard.wait(PATIENCE) or "error" in answers[node]:
                raise answers.get(node, {}).get("error") or StepFailed("the receiver did not begin", where=node)
            ports.update(answers[node]["ports"])
        yield ports
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)


def _send(session: Session, chosen: Sequence[Pair], ports: dict[str, int], token: str, seconds: float) -> list[Figures]:
    """Every source node sends all of its ways at once, all nodes side by side."""
    lacking = Figures(None, None, "the other end could not listen")
    found: dict[Pair, Figures] = {pair: lacking for pair in chosen if pair[1].address not in ports}
    by_node: dict[str, list[Pair]] = {}
    for pair in chosen:
        if pair not in found:
            by_node.setdefault(pair[0].node, []).append(pair)

    def act(node: str) -> None:
        mine = by_node[node]
        want = {
            "send": [{"from": one.address, "to": two.address, "port": ports[two.address]} for one, two in mine],
            "token": token,
            "seconds": seconds,
            "streams": STREAMS,
        }
        told_by = json.loads(told(session.node(node), session.node(node).run(agent("fabric", want, LIMIT))))
        for pair, one in zip(mine, told_by, strict=True):
            found[pair] = Figures(one["gbps"], one["latency_us"], one["error"] or "")

    if by_node:
        with ThreadPoolExecutor(len(by_node), thread_name_prefix="sender") as pool:
            list(pool.map(act, by_node))
    return [found[pair] for pair in chosen]
