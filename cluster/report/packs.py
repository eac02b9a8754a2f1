"""What a person sees of the verbs about packs of weights: files, widths, parts, repairs, patches."""

from typing import assert_never

from cluster.model.packs import (
    AlignmentReport,
    InspectReport,
    LayerWidths,
    Made,
    PackConfigReport,
    PackReport,
    PatchReport,
    PatchState,
    Width,
)
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, advice, grid, labelled, line

Packs = PackReport | AlignmentReport | InspectReport | PackConfigReport | PatchReport
BLANK = ("", "", "", "")
_AGAIN = {
    False: "mend what is said of each, then run it again: files that are complete are kept",
    True: "sparkctl coalesce again, into the same folder: it writes the files that are not those of the manifest",
}
_TONES = {Made.FAILED: Tone.BAD, Made.WRITTEN: Tone.GOOD, Made.KEPT: Tone.DIM}
_STATES = {
    PatchState.PATCHED: Tone.GOOD,
    PatchState.PRISTINE: Tone.PLAIN,
    PatchState.PARTIAL: Tone.WARN,
    PatchState.DRIFTED: Tone.BAD,
    PatchState.MISSING: Tone.BAD,
}


def pack_lines(report: Packs, width: int | None) -> list[Line]:
    match report:
        case PackReport():
            return _pack(report, width)
        case AlignmentReport():
            return _alignment(report, width)
        case InspectReport():
            return _inspect(report, width)
        case PackConfigReport():
            return _config(report, width)
        case PatchReport():
            return _patch(report, width)
        case _:
            assert_never(report)


def _notes(notes: tuple[str, ...], width: int | None) -> list[Line]:
    return [each for note in notes for each in labelled("note", note, width)]


def _pack(report: PackReport, width: int | None) -> list[Line]:
    rows = [
        (
            Span(one.made, _TONES.get(one.made, Tone.PLAIN)),
            one.name,
            format_bytes(one.size),
            f"{format_duration(one.seconds)}  {one.detail}" if one.seconds else one.detail,
        )
        for one in report.files
    ]
    fresh = [one for one in report.files if one.made is not Made.KEPT]
    failed = [one for one in report.files if one.made is Made.FAILED]
    if not report.done:
        told = Span("planned", Tone.STRONG)
    elif failed:
        told = Span(f"{len(failed)} of {_count(len(report.files), 'file')} failed", Tone.BAD)
    else:
        told = Span("ready" if fresh else "ready, nothing to do", Tone.GOOD)
    room = f"   {format_bytes(report.written)} to write, {format_bytes(report.free)} free"
    head = line(Span(report.target, Tone.STRONG), " ", told, Span(room if report.written else "", Tone.DIM))
    manifest = labelled("manifest", report.manifest, width) if report.manifest else []
    lines = [head, *grid(BLANK, rows, width=width, wrapped=True), *manifest, *_notes(report.notes, width)]
    return lines + (advice("try", _AGAIN[report.verb == "check"], width, Tone.PLAIN) if failed else [])


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def _alignment(report: AlignmentReport, width: int | None) -> list[Line]:
    told = Span("on its grid", Tone.GOOD) if report.ok else Span("would be copied in part", Tone.WARN)
    rows = [
        (one.reach, one.dtype, str(one.count), format_bytes(one.size), ", ".join(one.examples[:2]))
        for one in report.shares
    ]
    copied = f"   {format_bytes(report.copied)} copied, {format_bytes(report.threshold)} allowed"
    lines = [line(Span(report.pack, Tone.STRONG), " ", told, Span(copied, Tone.DIM))]
    lines += grid(("loads", "type", "tensors", "bytes", "such as"), rows, width=width, wrapped=True)
    if report.rewritten:
        lines += labelled("moves", ", ".join(report.rewritten), width)
    if report.parts:
        lines += labelled("overlay", f"{len(report.parts)} files", width)
    return [*lines, *_notes(report.notes, width)]


def _inspect(report: InspectReport, width: int | None) -> list[Line]:
    told = Span("sound", Tone.GOOD) if report.ok else Span(_count(len(report.problems), "problem"), Tone.BAD)
    exl3 = f", EXL3 {report.codebook} {report.bits:.2f} bits" if report.bits else ""
    held = f"{_count(report.files, 'file')}, {_count(report.tensors, 'tensor')}"
    size = f"   {held}, {format_bytes(report.size)}{exl3}"
    lines = [line(Span(report.pack, Tone.STRONG), " ", told, Span(size, Tone.DIM))]
    parts = [(one.name, format_bytes(one.disk), format_bytes(one.resident)) for one in report.components]
    lines += grid(("part", "on disk", "resident"), parts)
    if report.widths:
        lines += grid(("K", "tensors", "bytes"), [_width(one) for one in report.widths])
        lines += grid(("layers", "kind", "K"), [(_run(one), one.kind, _mixed(one.widths)) for one in report.layers])
    for problem in report.problems:
        lines += labelled("wrong", problem, width, Tone.BAD)
    return [*lines, *_notes(report.notes, width)]


def _width(one: Width) -> tuple[str, str, str]:
    return str(one.bits), str(one.count), format_bytes(one.size)


def _run(one: LayerWidths) -> str:
    if one.first is None:
        return "-"
    return str(one.first) if one.first == one.last else f"{one.first}-{one.last}"


def _mixed(widths: tuple[Width, ...]) -> str:
    return str(widths[0].bits) if len(widths) == 1 else ", ".join(f"{one.bits} ({one.count})" for one in widths)


def _config(report: PackConfigReport, width: int | None) -> list[Line]:
    if not report.changed:
        told = Span("already right for ", Tone.GOOD)
    else:
        told = Span("repaired for " if report.done else "would be repaired for ", Tone.GOOD)
    lines = [line(Span(report.pack, Tone.STRONG), " ", told, f"route {report.route}")]
    bits = ", ".join(f"{layer}: {width}" for layer, width in report.layer_bits) or "all layers alike"
    lines += labelled("bits", bits, width)
    lines += [line(Span(f"  {one}", Tone.GOOD if one.startswith("+") else Tone.DIM)) for one in report.changes]
    return lines + (labelled("backup", report.backup, width) if report.backup else [])


def _patch(report: PatchReport, width: int | None) -> list[Line]:
    version = f" {report.version}" if report.version else ""
    head = line(
        Span(report.patches, Tone.STRONG),
        " on ",
        f"{report.root}{version} ",
        Span(report.state, _STATES[report.state]),
        Span(f"   {report.changed} files changed" if report.action != "status" else "", Tone.DIM),
    )
    lines = [head]
    for one in report.files:
        done = f"{len(one.applied)} of {len(one.applied) + len(one.missing)} applied"
        lines.append(line("  ", Span(one.state, _STATES[one.state]), f"  {one.path}  ", Span(done, Tone.DIM)))
        lines += [line(Span(f"      {text}", Tone.DIM)) for text in one.detail]
    return lines
