"""Keep what a failed boot leaves: stacks of every process, last log lines, memory; in logs/<utc>/ of this folder."""

from datetime import UTC, datetime
from pathlib import Path

from cluster.app.observe import told
from cluster.app.ranks import RUNTIME, look, rank_of, where
from cluster.app.session import Session
from cluster.errors import NodeError, SparkctlError
from cluster.model.events import Emit, Severity, Told
from cluster.node.base import Node
from cluster.probe.rank_acts import NodeStacks, ProcessStack, parse_stacks
from cluster.probe.ranks import NodeLook

LINES = 2000


def collect(session: Session, boot: str, why: str, emit: Emit, *, stacks: bool) -> Path | None:
    """The folder, or None when it cannot be written; collecting must never hide the failure it is about."""
    folder = Path("logs") / datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.joinpath("why.txt").write_text(f"{session.settings.deployment} {boot}\n{why}\n", encoding="utf-8")
        for name, seen in look(session, ask_head=False, log_lines=LINES).items():
            _write_look(folder, name, boot, seen)
        if stacks:
            _write_stacks(session, folder)
    except (OSError, SparkctlError, ExceptionGroup) as error:
        said = "; ".join(map(str, error.exceptions)) if isinstance(error, ExceptionGroup) else str(error)
        emit(Told(Severity.WARNING, f"evidence is incomplete: {said}"))
        return folder if folder.exists() else None
    return folder


def _write_look(folder: Path, name: str, boot: str, seen: NodeLook | NodeError) -> None:
    if isinstance(seen, NodeError):
        folder.joinpath(f"{name}-unreachable.txt").write_text(f"{seen}\n", encoding="utf-8")
        return
    memory = seen.memory
    lines = [f"memory: total {memory.total} free {memory.free} available {memory.available} (bytes)"]
    for rank in seen.ranks:
        if rank.boot != boot:
            continue
        lines.append(f"rank {rank.rank}: {rank.state}, exit {rank.exit}")
        lines += [
            f"  {one.pid:>8} {one.ppid:>8} {one.state} rss {one.rss:>14} cpu {one.cpu:>9.1f} s  {one.name}"
            for one in rank.processes
        ]
        text = "".join(f"{line.at} {line.text}\n" for line in rank.log.lines)
        folder.joinpath(f"rank{rank.rank}-{name}.log").write_text(text, encoding="utf-8")
    folder.joinpath(f"{name}-processes.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_stacks(session: Session, folder: Path) -> None:
    settings = session.settings

    def stacks_of(node: Node) -> NodeStacks:
        mine = settings.nodes[rank_of(settings, node.name)]
        return parse_stacks(told(node, node.run(RUNTIME.stacks(where(settings, mine)))))

    for name, seen in session.attempt(stacks_of).items():
        if isinstance(seen, NodeError):
            continue
        for rank in seen.ranks:
            text = "\n\n".join(_stack(one) for one in rank.processes)
            missing = f"{rank.missing}\n\n" if rank.missing else ""
            folder.joinpath(f"rank{rank.rank}-{name}-stacks.txt").write_text(f"{missing}{text}\n", encoding="utf-8")
        folder.joinpath(f"{name}-meminfo.txt").write_text(seen.meminfo, encoding="utf-8")


def _stack(one: ProcessStack) -> str:
    parts = (
        f"{one.name} (pid {one.pid}, state {one.state}, in {one.wchan or '?'})",
        one.python,
        one.kernel,
        one.status,
    )
    return "\n".join(part.rstrip() for part in parts if part.strip())
