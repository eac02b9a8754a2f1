"""Measure ways by RDMA writes: a server on one end, a client on the other, several at once on ports of their own."""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from cluster.app.session import Session
from cluster.errors import SparkctlError
from cluster.model.fabric_test import Way
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.probe.perftest import bandwidth, latency, parse_bandwidth, parse_failure, parse_latency

FIRST_PORT = 18515
HEAD_START = 0.5  # seconds the server has before its client comes, and comes again
PATIENCE = 8.0  # seconds in which a server must have begun to listen; a busy node takes a few
LIMIT = 40.0  # seconds of one program; emulated nodes and busy ones take ten times what they should
NOBODY = ("Couldn't connect to", "Unable to open file descriptor for socket connection")  # the client, too early

Figures = tuple[float | None, float | None, str]  # Gb/s, microseconds, what went wrong


def both_ways(session: Session, ways: Sequence[tuple[Way, int, int]], seconds: float) -> list[Figures]:
    """All of them at once; each with the GID index of its source and of its target."""
    with ThreadPoolExecutor(len(ways), thread_name_prefix="perftest") as pool:
        waits = [pool.submit(_one, session, each, number, seconds, len(ways) == 1) for number, each in enumerate(ways)]
        return [one.result() for one in waits]


def _one(session: Session, each: tuple[Way, int, int], number: int, seconds: float, alone: bool) -> Figures:
    way, mine, theirs = each
    port, whole = FIRST_PORT + 2 * number, max(1, math.ceil(seconds))
    told = _pair(
        session,
        way,
        bandwidth(way.target_device, theirs, port, whole),
        bandwidth(way.source_device, mine, port, whole, way.target_address),
    )
    gbps = parse_bandwidth(told)
    if gbps is None:
        return None, None, parse_failure(told)
    if not alone:
        return gbps, None, ""
    took = _pair(
        session,
        way,
        latency(way.target_device, theirs, port + 1),
        latency(way.source_device, mine, port + 1, way.target_address),
    )
    return gbps, parse_latency(took), ""


def _pair(session: Session, way: Way, server: tuple[str, ...], client: tuple[str, ...]) -> str:
    """What the client printed; where it has no figures, the other end's last words after it: those know more."""
    given_up = Event()
    with ThreadPoolExecutor(1, thread_name_prefix="server") as pool:
        serving = pool.submit(_serve, session, way.target, server, given_up)
        end = time.monotonic() + PATIENCE
        told = NOBODY[0]
        while any(one in told for one in NOBODY) and time.monotonic() < end and not serving.done():
            time.sleep(HEAD_START)
            told = _run(session, way.source, client)
        has_figures = parse_bandwidth(told) is not None or parse_latency(told) is not None
        if not has_figures:
            given_up.set()
        heard = serving.result()
    return told if has_figures else f"{told}\n{parse_failure(told)}; at the other end: {parse_failure(heard)}"


def _serve(session: Session, node: str, argv: tuple[str, ...], stop: Event) -> str:
    """It prints nothing before somebody has come, and ends with its client; or with `stop`, when nobody will."""
    lines: list[str] = []
    try:
        done = session.node(node).stream(Command(argv, limit=Seconds(LIMIT)), lines.append, stop)
    except SparkctlError as error:
        return error.what
    return "\n".join((*lines, done.err_text))


def _run(session: Session, node: str, argv: tuple[str, ...]) -> str:
    try:
        done = session.node(node).run(Command(argv, limit=Seconds(LIMIT)))
    except SparkctlError as error:
        return error.what
    return done.text if done.exit == 0 else f"{done.text}\n{done.err_text}"
