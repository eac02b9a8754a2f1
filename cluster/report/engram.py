"""What a person sees of `pack`: every packed file with its state, and the folders of links."""

from cluster.model.engram import EngramReport, PackedFile, PackedState
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
