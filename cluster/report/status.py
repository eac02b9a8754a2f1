"""What a person sees of `status`: a few lines that fit 80 columns, more in one table where there is room."""

from datetime import datetime

from cluster.model.deployment import State
from cluster.model.events import NodeStatus, RankStatus, StatusReport
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, cells, grid, labelled, line, paint

_TONES = {
    State.SERVING: Tone.GOOD,
    State.LOADING: Tone.WARN,
    State.DEGRADED: Tone.BAD,
    State.HUNG: Tone.BAD,
    State.CANNOT_TELL: Tone.WARN,
    State.ABSENT: Tone.DIM,
}
_RANK_TONES = {"running": Tone.GOOD, "exited": Tone.BAD, "dead": Tone.BAD, "failed": Tone.BAD, "unknown": Tone.WARN}
ROOMY = 110


def status_lines(report: StatusReport, width: int | None) -> list[Line]:
    """The whole picture; `width` None is a pipe, where nothing is wrapped or left out."""
    lines = [_headline(report)]
    if report.url and report.state is not State.ABSENT:
        lines.append(line("  ", Span(report.url, Tone.LINK), *_model(report)))
    why = report.reasons if report.state is not State.SERVING else ()
    for number, reason in enumerate(why):
        lines += labelled("" if number else "because", reason, width)
    lines += _packed(_facts(report), width)
    if report.lock:
        lines += labelled("locked", report.lock, width, Tone.WARN)
    table = _table(report, width)
    return [*lines, *([line(""), *table] if table else [])]


def watch_line(report: StatusReport) -> str:
    """One look on one line, for watching through a pipe. Equal lines mean that nothing a person acts on has changed."""
    ranks = ", ".join(f"rank {one.rank} {one.state}" for one in report.ranks)
    away = ", ".join(f"{one.node} does not answer" for one in report.nodes if not one.reachable)
    why = "" if report.state is State.SERVING else report.reasons[0] if report.reasons else ""
    parts = [f"{report.deployment} {report.state}", ranks, away, why, f"locked: {report.lock}" if report.lock else ""]
    return "; ".join(part for part in parts if part)


def _headline(report: StatusReport) -> Line:
    unsure = report.state is State.CANNOT_TELL
    state = Span("cannot tell" if unsure else report.state.value, _TONES[report.state])
    boot = (Span(f"   boot {report.boot}", Tone.DIM),) if report.boot else ()
    return line(Span(report.deployment, Tone.STRONG), ": " if unsure else " is ", state, *boot)


def _model(report: StatusReport) -> Line:
    return line(Span("   model ", Tone.DIM), report.model) if report.model else ()


def _facts(report: StatusReport) -> list[str]:
    counts = (("running", report.running), ("waiting", report.waiting), ("tokens", report.generated))
    texts = (("health", report.health), ("completion", report.completion))
    return [
        *(f"{name} {text}" for name, text in texts if text),
        *(f"{name} {count:,.0f}".replace(",", " ") for name, count in counts if count is not None and count == count),
    ]


def _packed(facts: list[str], width: int | None) -> list[Line]:
    """As many facts on a line as fit."""
    rows: list[str] = []
    for fact in facts:
        if rows and (width is None or cells(rows[-1]) + 3 + cells(fact) <= width):
            rows[-1] += f"   {fact}"
        else:
            rows.append(f"  {fact}")
    return [line(Span(row, Tone.DIM)) for row in rows]


def _table(report: StatusReport, width: int | None) -> list[Line]:
    """One row per rank with its node's memory; then the nodes that run none. Details where there is room for them."""
    if width is None or width >= ROOMY:
        lines = _grid(report, detailed=True)
        if width is None or all(cells(paint(one, color=False)) <= width for one in lines):
            return lines
    return [*_grid(report, detailed=False), *_details(report, width)]


def _grid(report: StatusReport, *, detailed: bool) -> list[Line]:
    nodes = {node.node: node for node in report.nodes}
    rows = [_rank_row(rank, nodes.get(rank.node), report.at, detailed) for rank in report.ranks]
    busy = {rank.node for rank in report.ranks}
    rows += [_node_row(node, detailed) for node in report.nodes if node.node not in busy]
    return grid(("rank", "node", "state", "for", "procs", "memory", "free on node", "pid", "detail"), rows)


def _rank_row(rank: RankStatus, node: NodeStatus | None, at: str, detailed: bool) -> list[str | Span]:
    return [
        str(rank.rank),
        rank.node,
        Span(rank.state, _RANK_TONES.get(rank.state, Tone.PLAIN)),
        _age(rank.since, at),
        str(rank.processes) if rank.processes else "",
        format_bytes(rank.rss) if rank.rss else "",
        _free(node),
        str(rank.pid or "") if detailed else "",
        "; ".join(_said(rank, node)) if detailed else "",
    ]


def _node_row(node: NodeStatus, detailed: bool) -> list[str | Span]:
    state = Span("no rank", Tone.DIM) if node.reachable else Span("no answer", Tone.BAD)
    return ["-", node.node, state, "", "", "", _free(node), "", node.detail if detailed else ""]


def _free(node: NodeStatus | None) -> str:
    if node is None or node.memory_available is None or node.memory_total is None:
        return ""
    free, total = format_bytes(node.memory_available), format_bytes(node.memory_total)
    amount, unit = free.rsplit(" ", 1)
    return f"{amount} of {total}" if total.endswith(unit) else f"{free} of {total}"


def _said(rank: RankStatus, node: NodeStatus | None) -> list[str]:
    away = f"{node.node} does not answer" if node and not node.reachable else ""
    said = (rank.detail, away, node.detail if node else "")
    return list(dict.fromkeys(text for text in said if text))


def _details(report: StatusReport, width: int | None) -> list[Line]:
    """What the table has no room for."""
    lines: list[Line] = []
    for rank in report.ranks:
        if rank.detail:
            lines += labelled(f"rank {rank.rank}", rank.detail, width)
    for node in report.nodes:
        said = [] if node.reachable else ["does not answer"]
        said += [node.detail] if node.detail else []
        if said:
            lines += labelled(node.node, ": ".join(said), width)
    return [line(""), *lines] if lines else []


def _age(since: str, at: str) -> str:
    try:
        then, now = datetime.fromisoformat(since), datetime.fromisoformat(at)
        seconds = (now - then).total_seconds()
    except (ValueError, TypeError):  # not known, or one of them without its zone
        return ""
    if seconds < 0:
        return ""
    return format_duration(seconds if seconds < 3600 else seconds - seconds % 60)
