"""What a person sees of a server's pace."""

from cluster.model.pace import ChatBenchReport, Spread
from cluster.model.units import format_duration
from cluster.report.layout import Line, Span, Tone, grid, line


def pace_lines(report: ChatBenchReport, width: int | None) -> list[Line]:
    whole = report.answered == report.requests
    tone = Tone.GOOD if whole else Tone.BAD
    how = f"{report.answered} of {report.requests} questions answered, {report.at_once} at a time"
    head = line(Span(report.model, Tone.STRONG), f" at {report.url}  ", Span(how, tone))
    what = "tokens" if report.counted else "pieces, for the server counts no tokens,"
    told = f"{report.new_tokens} {what} in {format_duration(report.seconds)}"
    rate = f"{report.aggregate_tps:.1f} a second"
    if report.llmkube_tps is not None:
        rate += f" (llmkube-bench: {report.llmkube_tps:.1f}, counted from the first answer)"
    rows = [("pace", f"{rate}: {told}")]
    for name, spread in (("first token", report.first_token), ("between pieces", report.between_pieces)):
        if spread:
            rows.append((name, _spread(spread)))
    rows += [("failed", error) for error in report.errors]
    return [head, *grid(("", ""), rows, width=width, wrapped=True)]


def _spread(one: Spread) -> str:
    return f"p50 {one.p50:.0f} ms, p95 {one.p95:.0f} ms, p99 {one.p99:.0f} ms, mean {one.mean:.1f} ms"
