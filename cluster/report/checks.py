"""What a person sees of the checks: findings by weight, contracts, fixes, and the doctor's bundle."""

import shlex
from collections import Counter

from cluster.model.checks import CheckResult, ChecksReport, Contract, DoctorReport, FixReport, PreflightReport, Severity
from cluster.model.units import format_bytes
from cluster.report.layout import Line, Span, Tone, advice, grid, labelled, line
from cluster.report.progress import WORDS

_BRIEF = (Severity.NOT_CHECKED, Severity.OK)


def preflight_lines(report: PreflightReport, width: int | None) -> list[Line]:
    """What needs a person in full, the rest by name; in full too when single checks were asked for."""
    number = Counter(one.finding.severity for one in report.results)
    counts = ", ".join(f"{number[one]} {WORDS[one][0]}" for one in WORDS if number[one]) or "nothing was checked"
    tone = Tone.BAD if report.refused else Tone.WARN if number[Severity.WARNING] else Tone.GOOD
    lines = [line(Span(report.deployment, Tone.STRONG), "  ", Span(counts, tone))]
    for one in report.results:
        if report.whole or one.finding.severity not in _BRIEF:
            lines += _result(one, width)
    if not report.whole:
        for severity in _BRIEF:
            lines += _brief(report, severity, width)
    for text in (*report.notes, *(f"{one} refuses, and was told not to stop it" for one in report.forced)):
        lines += labelled("note", text, width)
    return lines


def _result(one: CheckResult, width: int | None) -> list[Line]:
    finding = one.finding
    word, tone = WORDS[finding.severity]
    where = f"  {finding.node}" if finding.node else ""
    lines = [line(Span(word, tone), "  ", Span(finding.id, Tone.STRONG), Span(where, Tone.LINK))]
    lines += labelled("seen", finding.observed, width)
    if finding.severity not in _BRIEF:
        lines += labelled("wanted", finding.expected, width) if finding.expected else []
        lines += advice("try", finding.fix, width, Tone.GOOD) if finding.fix else []
        lines += labelled("source", one.source, width, Tone.DIM) if one.source else []
    for number, row in enumerate(finding.details):
        lines += labelled("" if number else "table", row, None)
    return lines


def _brief(report: PreflightReport, severity: Severity, width: int | None) -> list[Line]:
    """`ok  FABRIC  ADDRESS, GID, HCA`: checks that are the same on all nodes, by group."""
    worse = {one.finding.id for one in report.results if one.finding.severity not in _BRIEF}
    names: dict[str, list[str]] = {}
    for one in report.results:
        group, _, name = one.finding.id.partition(".")
        if one.finding.severity is severity and one.finding.id not in worse and name not in names.get(group, ()):
            names.setdefault(group, []).append(name)
    word, tone = WORDS[severity]
    rows = [(Span(word, tone), group, ", ".join(found)) for group, found in names.items()]
    return grid(("", "", ""), rows, indent=0, width=width, wrapped=True)


def checks_lines(report: ChecksReport, width: int | None) -> list[Line]:
    return [part for one in report.checks for part in _contract(one, width)]


def _contract(one: Contract, width: int | None) -> list[Line]:
    word, tone = WORDS[one.worst]
    at_worst = {Severity.REFUSAL: "stops a start"}.get(one.worst, f"at worst a {word}")
    lines = [line(Span(one.id, Tone.STRONG), "  ", Span(at_worst, tone))]
    said = {
        "looks at": one.looks_at,
        "wants": one.wants,
        "because": one.why,
        "unless": one.unless,
        "source": f"{one.source} (seen {one.date})" if one.source and one.date else one.source,
    }
    for label, text in said.items():
        lines += labelled(label, text, width, column=9) if text else []
    return lines + (advice("try", one.fix, width, Tone.GOOD, column=9) if one.fix else [])


def fix_lines(report: FixReport, width: int | None) -> list[Line]:
    did = "undone" if report.undone else "fixed"
    head = line(Span(report.check, Tone.STRONG), "  ", Span(f"{len(report.changes)} {did}", Tone.GOOD))
    lines = [head]
    for one in report.changes:
        before, after = (one.after, one.before) if report.undone else (one.before, one.after)
        lines += labelled(one.node, f"{one.what}: {before} -> {after}", width)
        lines.append(line(Span(f"    $ {shlex.join(one.undo if report.undone else one.do)}", Tone.DIM)))
    for text in report.left:
        lines += labelled("left", text, width, Tone.WARN)
    return lines


def doctor_lines(report: DoctorReport, width: int | None) -> list[Line]:
    size = format_bytes(report.size)
    lines = [line(Span("wrote ", Tone.GOOD), Span(report.path, Tone.STRONG), f"  {len(report.files)} files, {size}")]
    for number, text in enumerate(report.missing):
        lines += labelled("" if number else "missing", text, width, Tone.WARN)
    return [*lines, *labelled("note", "secrets are masked; read it before you send it to somebody", width)]
