"""What a person sees of Engram tables in files: what `pack` made, and how fast rows come, also as a picture."""

from html import escape

from cluster.model.engram import EngramBenchReport, EngramReport, PackedFile, PackedState, RowStream
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, grid, line

_TONES = {PackedState.PACKED: Tone.GOOD, PackedState.RIGHT: Tone.GOOD}


def engram_lines(report: EngramReport, width: int | None) -> list[Line]:
    done = sum(one.state is PackedState.PACKED for one in report.files)
    if report.checked:
        said = "every packed file is right" if report.ok else "not every packed file is right"
    elif report.ok:
        said = f"packed {done} of {len(report.files)} files, the others were right" if done else "nothing to do"
    else:
        said = "not everything was packed"
    head = line(Span(report.deployment, Tone.STRONG), "  ", Span(said, Tone.GOOD if report.ok else Tone.BAD))
    rows = [_row(one) for one in report.files]
    for folder in report.folders:
        word = Span("linked" if folder.ok else "wrong", Tone.GOOD if folder.ok else Tone.BAD)
        told = ", ".join(folder.made) if folder.made else "as it must be"
        rows.append((word, folder.node, folder.path, folder.detail or told))
    return [head, *grid(("", "", "", ""), rows, width=width, wrapped=True)]


def _row(one: PackedFile) -> tuple[Span, str, str, str]:
    size = f"layer {one.layer}, rank {one.rank}, {format_bytes(one.size)}"
    pace = f", {format_duration(one.seconds)}, {format_bytes(int(one.size / one.seconds))}/s" if one.seconds else ""
    detail = one.detail or size + (pace if one.state is PackedState.PACKED else "")
    return Span(one.state, _TONES.get(one.state, Tone.BAD)), one.node, one.path, detail


def bench_lines(report: EngramBenchReport, width: int | None) -> list[Line]:
    head = ("node", "layer", "ids", "batch", "rows/s", "reads/s", "bytes/useful", "p50", "p99", "slowest")
    rows = [
        (
            *(one.node, str(one.layer), one.stream, f"{one.batch} {one.batch_rows}"),
            *(f"{one.rows_per_s:,.0f}", f"{one.reads_per_s:,.0f}", f"{one.bytes_per_useful_byte:.2f}"),
            *(f"{each:.2f} ms" for each in (one.p50_ms, one.p99_ms, one.slowest_ms)),
        )
        for one in report.streams
    ]
    engines = dict.fromkeys(f"{one.node}: {one.engine}" for one in report.streams)
    return [*(line(Span(each, Tone.DIM)) for each in engines), *grid(head, rows, width=width)]


def bench_picture(report: EngramBenchReport) -> str:
    """Bars of rows per second, as SVG."""
    most = max((one.rows_per_s for one in report.streams), default=1.0)
    size = f'width="860" height="{len(report.streams) * 28 + 60}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<text x="10" y="24" font-size="16">Random rows of 264 bytes per second, from disk</text>',
        *(_bar(number, one, one.rows_per_s / most) for number, one in enumerate(report.streams)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _bar(number: int, one: RowStream, share: float) -> str:
    y, width = 40 + number * 28, max(1, round(share * 420))
    name = escape(f"{one.node}, layer {one.layer}, {one.stream}, {one.batch}")
    return (
        f'<text x="10" y="{y + 15}">{name}</text><rect x="290" y="{y}" width="{width}" height="20" fill="#4878a8"/>'
        f'<text x="{298 + width}" y="{y + 15}">{one.rows_per_s:,.0f}</text>'
    )
