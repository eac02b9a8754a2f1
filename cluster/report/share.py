"""What a person sees of `share`: each folder on each worker, how it comes there, and what was compared."""

from cluster.model.share import Offer, ShareCosts, SharedFolder, ShareReport
from cluster.model.units import format_bytes, format_duration
from cluster.report.layout import Line, Span, Tone, grid, line


def share_lines(report: ShareReport, width: int | None) -> list[Line]:
    if report.action == "attach":
        said = "shared and proven" if report.steps else "was shared already; proven again"
    else:
        said = "no longer shared" if report.steps else "was not shared"
    head = line(
        Span(report.deployment, Tone.STRONG), "  ", Span(said, Tone.GOOD), f"  by {report.backend}, {_steps(report)}"
    )
    rows = [(one.node, one.what, one.path, _told(one)) for one in report.folders]
    notes = [(Span("note", Tone.WARN), text) for text in report.notes]
    return [
        head,
        *grid(("", "", "", ""), rows, width=width, wrapped=True),
        *grid(("", ""), notes, width=width, wrapped=True),
    ]


def _steps(report: ShareReport) -> str:
    return "nothing to do" if not report.steps else "1 step" if report.steps == 1 else f"{report.steps} steps"


def _told(one: SharedFolder) -> str:
    if not one.files:
        return one.how
    compared = f"{format_bytes(one.compared)} of {format_bytes(one.size)} compared with the head's"
    return f"{one.how}; {one.files} files, {compared}"


def cost_lines(costs: ShareCosts, width: int | None) -> list[Line]:
    """A row for each way, the chosen one marked."""
    link = f", link {format_bytes(round(costs.rate))}/s" if costs.rate else ""
    head = line(Span(f"{costs.chosen}", Tone.STRONG), f": {costs.why}{link}")
    rows = [_offer(one, is_chosen=one.kind is costs.chosen) for one in costs.offers]
    titles = ("", "to move", "time", "disk left", "if the head dies")
    return [head, *grid(titles, rows, width=width, wrapped=True)]


def _offer(one: Offer, *, is_chosen: bool) -> tuple[Span | str, ...]:
    name = Span(str(one.kind), Tone.GOOD if is_chosen else Tone.PLAIN)
    if one.impossible:
        return (name, "", "", "", Span(f"not possible: {one.impossible}", Tone.DIM))
    moves = format_bytes(one.moves or 0) if one.moves else "nothing"
    seconds = "not known" if one.seconds is None else format_duration(one.seconds) if one.seconds else "none"
    left = "none taken" if one.disk_left is None else format_bytes(one.disk_left)
    return (name, moves, seconds, left, one.if_head_dies)
