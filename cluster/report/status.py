"""What a person sees of `status`: a few lines that fit 80 columns, more in one table where there is room."""

from datetime import datetime

from cluster.model.deployment import State
from cluster.model.events import NodeStatus, RankStatus, StatusReport
from cluster.model.status import FabricStatus
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
    problems = ((one.node, _problem(one, report.reasons)) for one in report.nodes)
    fabric = "; ".join(f"{node}: {problem}" for node, problem in problems if problem)
    locked = f"locked: {report.lock}" if report.lock else ""
    parts = [f"{report.deployment} {report.state}", ranks, away, why, fabric, locked]
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
    """One row per rank, then the memory and the fabric of each node. Details where there is room for them."""
    nodes = [*_blank(_memory(report)), *_blank(_fabric(report, width))]
    if width is None or width >= ROOMY:
        lines = _ranks(report, detailed=True)
        if width is None or all(cells(paint(one, color=False)) <= width for one in lines):
            return [*lines, *nodes] if lines else nodes[1:]
    lines = [*_ranks(report, detailed=False), *nodes, *_blank(_details(report, width))]
    return lines if report.ranks else lines[1:]


def _blank(lines: list[Line]) -> list[Line]:
    return [line(""), *lines] if lines else []


def _ranks(report: StatusReport, *, detailed: bool) -> list[Line]:
    nodes = {node.node: node for node in report.nodes}
    rows = [_rank_row(report, rank, nodes.get(rank.node), detailed) for rank in report.ranks]
    return grid(("rank", "node", "state", "for", "procs", "memory", "pid", "detail"), rows) if rows else []


def _rank_row(report: StatusReport, rank: RankStatus, node: NodeStatus | None, detailed: bool) -> list[str | Span]:
    return [
        str(rank.rank),
        rank.node,
        Span(rank.state, _RANK_TONES.get(rank.state, Tone.PLAIN)),
        _age(rank.since, report.at),
        str(rank.processes) if rank.processes else "",
        format_bytes(rank.rss) if rank.rss else "",
        str(rank.pid or "") if detailed else "",
        "; ".join(_said(rank, node, report.reasons)) if detailed else "",
    ]


def _memory(report: StatusReport) -> list[Line]:
    """What is available counts cache that comes back; what is free at once is all that the GPU's driver takes from."""
    rows = [_memory_row(node) for node in report.nodes]
    return grid(("node", "available", "free", "cache", "swap in use"), rows)


def _memory_row(node: NodeStatus) -> list[str | Span]:
    if not node.reachable:
        return [node.node, Span("no answer", Tone.BAD), "", "", ""]
    sizes = (node.memory_free, node.memory_cached, node.swap_used)
    return [node.node, _available(node), *("" if size is None else format_bytes(size) for size in sizes)]


def _available(node: NodeStatus) -> str:
    if node.memory_available is None or node.memory_total is None:
        return ""
    free, total = format_bytes(node.memory_available), format_bytes(node.memory_total)
    amount, unit = free.rsplit(" ", 1)
    return f"{amount} of {total}" if total.endswith(unit) else f"{free} of {total}"


def _fabric(report: StatusReport, width: int | None) -> list[Line]:
    """The rates are those since the look before, so only a watch has them. Names of ports where there is room."""
    forms = (_fabric_grid(report, named, told) for named, told in ((True, True), (False, True)))
    fitting = (one for one in forms if width is None or all(cells(paint(row, color=False)) <= width for row in one))
    return next(fitting, None) or _fabric_grid(report, named=False, told=False)


def _fabric_grid(report: StatusReport, named: bool, told: bool) -> list[Line]:
    said = {rank.node: rank.transport if told else rank.transport.partition(" ")[0] for rank in report.ranks}
    rows = [_fabric_row(node.node, node.fabric, said.get(node.node, ""), named) for node in report.nodes if node.fabric]
    return grid(("fabric", "interface", "link", "mtu", "rdma", "nccl", "in", "out"), rows) if rows else []


def _fabric_row(name: str, one: FabricStatus, transport: str, named: bool) -> list[str | Span]:
    link = Span(_speed(one), Tone.GOOD) if one.up else Span("no carrier" if one.interface else "no address", Tone.BAD)
    active = f"{one.rdma_active} of {len(one.rdma)} up" if one.rdma else ""
    rdma = f"{', '.join(one.rdma)}: {active}" if named and one.rdma else active
    return [
        name,
        one.interface or one.address,
        link,
        str(one.mtu or ""),
        Span(rdma, Tone.PLAIN if one.rdma_active == len(one.rdma) else Tone.BAD),
        transport,
        _rate(one.in_rate),
        _rate(one.out_rate),
    ]


def _speed(one: FabricStatus) -> str:
    return f"{one.mbps / 1000:g} Gb/s" if one.mbps else "up"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{format_bytes(int(rate))}/s"


def _said(rank: RankStatus, node: NodeStatus | None, reasons: tuple[str, ...]) -> list[str]:
    away = f"{node.node} does not answer" if node and not node.reachable else ""
    said = (rank.detail, away, node.detail if node else "", _problem(node, reasons))
    return list(dict.fromkeys(text for text in said if text))


def _problem(node: NodeStatus | None, reasons: tuple[str, ...]) -> str:
    """Of its fabric, unless the reasons tell it already."""
    problem = node.fabric.problem if node and node.fabric else ""
    return "" if any(problem in reason for reason in reasons) else problem


def _details(report: StatusReport, width: int | None) -> list[Line]:
    """What the table has no room for."""
    lines: list[Line] = []
    for rank in report.ranks:
        if rank.detail:
            lines += labelled(f"rank {rank.rank}", rank.detail, width)
    for node in report.nodes:
        away = "" if node.reachable else "does not answer"
        said = (": ".join(filter(None, (away, node.detail))), _problem(node, report.reasons))
        for number, text in enumerate(filter(None, said)):
            lines += labelled("" if number else node.node, text, width)
    return lines


def _age(since: str, at: str) -> str:
    try:
        then, now = datetime.fromisoformat(since), datetime.fromisoformat(at)
        seconds = (now - then).total_seconds()
    except (ValueError, TypeError):  # not known, or one of them without its zone
        return ""
    if seconds < 0:
        return ""
    return format_duration(seconds if seconds < 3600 else seconds - seconds % 60)
