"""How the head itself reaches a worker over ssh, to send what is too large to go through us."""

import shlex

from cluster.app.session import Session
from cluster.errors import HostKeyUnknown, LoginRefused, SparkctlError, Unreachable
from cluster.model.events import Emit, Severity, Told
from cluster.model.settings import NodeSettings
from cluster.model.steps import Command
from cluster.model.units import Seconds
from cluster.node.base import Result
from cluster.node.control import Local, Target, parse_control

# Never a question, never an unknown key, a cheap cipher, and a dead link is noticed within half a minute.
OPTIONS = (
    *("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3", "-o", "Compression=no"),
    *("-c", "aes128-gcm@openssh.com,aes128-ctr"),
)


def reach(session: Session, name: str, emit: Emit, at: str = "") -> tuple[str, ...]:
    """The words in front of a command that is to run on the worker; none where it is the head's own machine.

    `at`: a host or user@host, as the head knows it, instead of the fabric address
    """
    settings = session.settings
    worker = next(one for one in settings.nodes if one.name == name)
    if isinstance(parse_control(worker.control), Local):
        return ()
    failed: list[tuple[tuple[str, ...], Result]] = []
    for words in _candidates(session, worker, at):
        result = session.head.run(Command((*words, "true"), limit=Seconds(60)))
        if result.exit == 0:
            if failed and not words[-1].endswith(at or worker.address):
                emit(Told(Severity.NOTE, f"sending over {words[-1]}, not over the fabric: {_said(failed[0][1])}", name))
            return words
        failed.append((words, result))
    raise _no_way(session, worker, *failed[0])


def _candidates(session: Session, worker: NodeSettings, at: str) -> list[tuple[str, ...]]:
    """The fabric first; then, where we are the head, the way by which we reach the worker ourselves.

    The port that leads us to a worker may be one of a router between it and us, so ssh's own is tried as well.
    """
    seen = session.node(worker.name).identity
    ports = dict.fromkeys((seen.port or 22, 22))
    goal = at if "@" in at else _at(seen.user, at or worker.address)
    fabric: list[tuple[str, ...]] = [("ssh", *OPTIONS, "-p", str(port), goal) for port in ports]
    control = parse_control(worker.control)
    if session.settings.head.control != "local" or not isinstance(control, Target):
        return fabric
    to_port = ("-p", str(control.port)) if control.port else ()
    return [*fabric, ("ssh", *OPTIONS, *to_port, _at(control.user or "", control.host))]


def _at(user: str, host: str) -> str:
    return f"{user}@{host}" if user else host


def _said(result: Result) -> str:
    lines = [line for line in result.err_text.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit code {result.exit}"


def _no_way(session: Session, worker: NodeSettings, words: tuple[str, ...], result: Result) -> SparkctlError:
    head, said = session.settings.head.name, result.err_text
    goal, port = words[-1], words[words.index("-p") + 1]
    fingerprint = session.node(worker.name).identity.host_key
    if "Host key verification failed" in said or "host key is known" in said:
        scan = f"ssh-keyscan -p {port} {worker.address} | tee -a ~/.ssh/known_hosts | ssh-keygen -lf -"
        return HostKeyUnknown(
            f"{head} does not know this node's host key",
            where=worker.name,
            evidence=[_said(result)],
            fix=f"on {head}: {scan}\nit must print {fingerprint}",
        )
    if "Permission denied" in said:
        return LoginRefused(
            f"{head} may not log in to this node with a key",
            where=worker.name,
            evidence=[_said(result)],
            fix=f"on {head}: ssh-copy-id -p {port} {goal}",
        )
    return Unreachable(
        f"{head} cannot reach this node over the fabric",
        where=worker.name,
        evidence=[_said(result)],
        fix=f"on {head}: {shlex.join(('ssh', '-p', port, goal))}",
    )
