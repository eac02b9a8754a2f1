"""What a person sees of `verify`, `fetch` and `weights`: folders, and every file that is not as it must be by name."""

from typing import assert_never

from cluster.model.units import format_bytes, format_duration
from cluster.model.weights import (
    FetchedFolder,
    FetchReport,
    HeldFolder,
    ProvenFolder,
    VerifyReport,
    WeightsReport,
)
from cluster.report.layout import Line, Span, Tone, grid, line

Weights = VerifyReport | FetchReport | WeightsReport


def weights_lines(report: Weights, width: int | None) -> list[Line]:
    match report:
        case VerifyReport():
            return _verify(report, width)
        case FetchReport():
            head = line(Span(report.deployment, Tone.STRONG), "  ", Span("every file is there and proven", Tone.GOOD))
            rows = [(report.node, one.path, *_fetched(one)) for one in report.folders]
            return [head, *grid(("", "", "", ""), rows, width=width, wrapped=True)]
        case WeightsReport():
            return _held(report, width)
        case _:
            assert_never(report)


def _verify(report: VerifyReport, width: int | None) -> list[Line]:
    unseen = sum(one.not_checked for one in report.folders)
    if not report.ok:
        said = Span("not what it must be", Tone.BAD)
    elif unseen:
        said = Span(f"nothing wrong seen; {unseen} files not checked by content", Tone.WARN)
    else:
        said = Span("every file is right", Tone.GOOD)
    lines = [line(Span(report.deployment, Tone.STRONG), "  ", said)]
    lines += grid(("", "", "", ""), [_proven(one) for one in report.folders], width=width, wrapped=True)
    for folder in report.folders:
        rows = [(Span(one.state, Tone.BAD), folder.node, one.name, one.detail) for one in folder.wrong]
        rows += [(Span("wrong", Tone.BAD), folder.node, folder.path, text) for text in folder.problems]
        rows += [(Span("note", Tone.WARN), folder.node, folder.path, text) for text in folder.notes]
        lines += grid(("", "", "", ""), rows, width=width, wrapped=True)
    return lines


def _proven(one: ProvenFolder) -> tuple[Span, str, str, str]:
    word = Span("wrong", Tone.BAD) if not one.ok else Span("right", Tone.GOOD)
    if one.ok and one.not_checked:
        word = Span("not checked", Tone.WARN)
    told = [f"{one.files} files, {format_bytes(one.size)}"]
    told += [f"{one.right} right"] if one.right else []
    told += [f"{one.not_checked} not checked"] if one.not_checked else []
    told += [f"{len(one.wrong)} wrong"] if one.wrong else []
    told += [f"{format_bytes(one.hashed)} read in {format_duration(one.seconds)}"] if one.hashed else []
    told += [f"{one.repo} at {one.revision[:12]}"] if one.repo else []
    return word, one.node, one.path, ", ".join(told)


def _fetched(one: FetchedFolder) -> tuple[str, str]:
    pace = (
        f" in {format_duration(one.seconds)}, {format_bytes(int(one.fetched / one.seconds))}/s" if one.seconds else ""
    )
    told = f"fetched {format_bytes(one.fetched)}{pace}" if one.fetched else "nothing to fetch"
    return f"{one.repo} at {one.revision[:12]}", f"{one.files} files, {format_bytes(one.size)}; {told}"


def _held(report: WeightsReport, width: int | None) -> list[Line]:
    if not report.folders:
        return [line(Span(report.deployment, Tone.STRONG), "  no weights that sparkctl knows of")]
    rows = []
    for one in report.folders:
        what = f"{one.repo} at {one.revision[:12]}" if one.repo else "not fetched by sparkctl"
        size = f"{one.files} files, {format_bytes(one.size)}"
        size += f", {format_bytes(one.partial)} unfinished" if one.partial else ""
        rows.append((_word(report, one), one.node, one.path, what, size, _why(one)))
    freed = sum(one.freed or 0 for one in report.folders)
    lines = grid(("", "", "", "", "", ""), rows, width=width, wrapped=True)
    if report.action == "prune" and report.preview:
        lines.append(line(f"would free {format_bytes(freed)}", Span("   nothing was removed: add --yes", Tone.DIM)))
    elif report.action == "prune":
        lines.append(line(f"freed {format_bytes(freed)}"))
    return lines


def _word(report: WeightsReport, one: HeldFolder) -> Span:
    if one.freed is None:
        return Span("kept" if report.action == "prune" else "in use" if one.claims else "idle", Tone.DIM)
    return Span("would go" if report.preview else "gone", Tone.WARN)


def _why(one: HeldFolder) -> str:
    told = list(one.claims)
    told += [f"pinned: {one.pin}"] if one.pin else []
    told += [f"being changed: {one.lease}"] if one.lease else []
    told += [f"{one.blind} processes could not be looked into"] if one.blind else []
    told += [one.detail] if one.detail else []
    return "; ".join(told)
