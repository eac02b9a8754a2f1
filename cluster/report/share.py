"""What a person sees of `share`: each folder on each worker, how it comes there, and what was compared."""

from cluster.model.share import SharedFolder, ShareReport
from cluster.model.units import format_bytes
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
