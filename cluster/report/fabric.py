"""What a person sees of `fabric test`: what was covered, then what each way carried."""

from cluster.model.fabric_test import Coverage, FabricReport, Grade, Measured
from cluster.report.layout import Line, Span, Tone, grid, line

_TONES = {Grade.OK: Tone.GOOD, Grade.SUSPICIOUS: Tone.WARN, Grade.DEGRADED: Tone.BAD, Grade.FAILED: Tone.BAD}


def fabric_lines(report: FabricReport, width: int | None) -> list[Line]:
    told = Span("healthy", Tone.GOOD) if report.ok else Span("not as it should be", Tone.BAD)
    took = Span(f"   {report.seconds:.1f} s", Tone.DIM)
    missed = [one for one in report.coverage if not one.covered]
    lines = [line(Span(report.deployment, Tone.STRONG), " fabric ", told, took)]
    covered = f"{len(report.coverage) - len(missed)} of {len(report.coverage)} ways measured"
    lines.append(line("  ", Span(covered, Tone.BAD if missed else Tone.GOOD)))
    lines += grid(("", "", ""), [_missed(one) for one in missed], width=width, wrapped=True)
    rows = [_row(one) for one in report.measured]
    lines += grid(("", "way", "by", "Gb/s", "us", ""), rows, width=width, wrapped=True)
    totals = [(f"all at once {direction}", f"{gbps:.1f} Gb/s") for direction, gbps in report.total]
    return [*lines, *grid(("", ""), totals)]


def _missed(one: Coverage) -> tuple[str | Span, ...]:
    return (Span("not measured", Tone.BAD), one.way, one.why)


def _row(one: Measured) -> tuple[str | Span, ...]:
    ends = f"{one.way.source} {one.way.source_interface} -> {one.way.target} {one.way.target_interface}"
    return (
        Span(one.grade, _TONES[one.grade]),
        ends,
        f"{one.how}{' all' if one.together else ''}",
        "-" if one.gbps is None else f"{one.gbps:.1f}",
        "-" if one.latency_us is None else f"{one.latency_us:.1f}",
        one.detail,
    )
