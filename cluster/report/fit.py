"""What a person sees of `fit`: one column per node, what is there, what is taken, what is left in each phase."""

from cluster.model.fit import Fit, FitNode, FitReport
from cluster.report.layout import Line, Span, Tone, advice, grid, labelled, line

GIB = 2**30
_TOLD = {
    Fit.FITS: (Tone.GOOD, "fits"),
    Fit.TIGHT: (Tone.WARN, "may not fit"),
    Fit.SHORT: (Tone.BAD, "does not fit now"),
    Fit.NEVER: (Tone.BAD, "cannot fit"),
    Fit.UNKNOWN: (Tone.WARN, "cannot tell"),
}
AT_ONCE = 4  # nodes beside each other in 80 columns


def fit_lines(report: FitReport, width: int | None) -> list[Line]:
    """The table in GiB, then a sentence for each node that is short, then what could be given up."""
    tone, told = _TOLD[report.fit]
    lines = [line(Span(report.model, Tone.STRONG), " ", Span(told, tone), Span("   sizes in GiB", Tone.DIM))]
    for start in range(0, len(report.nodes), AT_ONCE):
        lines += _table(report.nodes[start : start + AT_ONCE])
    for node in report.nodes:
        if node.fit is not Fit.FITS:
            lines += labelled(node.node, node.observed, width, _TOLD[node.fit][0])
            lines += advice("try", node.fix, width, Tone.GOOD) if node.fix else []
    for number, change in enumerate(report.changes):
        lines += labelled("" if number else "or", change, width)
    return lines


def _table(nodes: tuple[FitNode, ...]) -> list[Line]:
    rows: list[list[str | Span]] = [
        _row("in all", [node.total for node in nodes]),
        _row("available", [node.available for node in nodes]),
        _row("free", [node.free for node in nodes]),
        *(_row(f"  {part.name}", [_part(node, part.name) for node in nodes]) for part in nodes[0].parts),
        _row("needed to boot", [node.needed for node in nodes]),
        *(_left(number, nodes) for number in range(len(nodes[0].phases))),
    ]
    if any(node.measured is not None for node in nodes):
        rows.append(["last boot took", *("" if node.measured is None else gib(node.measured) for node in nodes)])
    rows.append(["KV cache, tokens", *(f"{node.tokens:,}".replace(",", " ") for node in nodes)])
    return grid(("", *(node.node for node in nodes)), _right(rows))


def _row(name: str, sizes: list[int]) -> list[str | Span]:
    return [name, *(gib(size) for size in sizes)]


def _part(node: FitNode, name: str) -> int:
    return next((part.size for part in node.parts if part.name == name), 0)


def _left(number: int, nodes: tuple[FitNode, ...]) -> list[str | Span]:
    sizes = [node.phases[number].size for node in nodes]
    return [
        f"left after {nodes[0].phases[number].name}",
        *(Span(gib(size), Tone.BAD if size < 0 else Tone.PLAIN) for size in sizes),
    ]


def _right(rows: list[list[str | Span]]) -> list[list[str | Span]]:
    """Numbers stand under each other."""
    spans = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    wide = [max(len(row[at].text) for row in spans) for at in range(len(spans[0]))]
    return [
        [row[0], *(Span(cell.text.rjust(size), cell.tone) for cell, size in zip(row[1:], wide[1:], strict=True))]
        for row in spans
    ]


def gib(size: int) -> str:
    """`99.5`; two places below one GiB, so that a small model is not all zeros."""
    return f"{size / GIB:.1f}" if abs(size) >= GIB or size == 0 else f"{size / GIB:.2f}"
