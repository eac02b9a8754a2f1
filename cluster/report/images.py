"""What a person sees at the end of an image verb."""

from cluster.model.images import ImageReport, ImageShipped, NodeImage
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, grid, labelled, line


def image_lines(report: ImageReport, width: int | None) -> list[Line]:
    """One row per node, then what was sent."""
    verdict = Span("one image everywhere", Tone.GOOD) if report.equal else Span("not the same everywhere", Tone.BAD)
    rows = [_row(one) for one in report.nodes]
    lines = [line(Span(report.image, Tone.STRONG), "  ", verdict), *grid(("", "", "", "", ""), rows, width=width)]
    lines += [_sent(one) for one in report.shipped]
    for note in report.notes:
        lines += labelled("note", note, width)
    return lines


def _row(one: NodeImage) -> tuple[str | Span, ...]:
    store = Span(f"engine {one.engine}, {one.store}", Tone.DIM)
    if not one.key:
        return (one.node, Span("no image", Tone.WARN), "", "", store)
    return (one.node, one.key, f"{one.layers} layers, {format_bytes(one.size)}", one.architecture, store)


def _sent(one: ImageShipped) -> Line:
    rate = f" at {format_bytes(round(one.sent / one.seconds))}/s" if one.seconds >= 1 else ""
    kept = f", {format_bytes(one.kept)} were there from before" if one.kept else ""
    took = f"{one.layers} layers, {format_bytes(one.sent)} in {format_duration(one.seconds)}{rate}{kept}"
    return line(f"  sent to {one.node}: {took}", Span(f"   by {one.how}", Tone.DIM))
