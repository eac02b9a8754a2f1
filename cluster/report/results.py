"""What a person sees of a verb's results: served, stopped, settings, a plan, a smoke test, a failure, a log line."""

import shlex
from typing import assert_never

from cluster.model.checks import ChecksReport, DoctorReport, FixReport, PreflightReport
from cluster.model.engram import EngramBenchReport, EngramReport
from cluster.model.events import (
    ConfigReport,
    ExportReport,
    Failed,
    LogLine,
    NodeStatus,
    PlannedStep,
    PlanReport,
    Served,
    SettingShown,
    SmokeReport,
    StageTime,
    StatusReport,
    Stopped,
    Value,
)
from cluster.model.fabric_test import FabricReport
from cluster.model.fit import FitReport
from cluster.model.images import ImageReport
from cluster.model.pace import ChatBenchReport
from cluster.model.packs import AlignmentReport, InspectReport, PackConfigReport, PackReport, PatchReport
from cluster.model.share import ShareCosts, ShareReport
from cluster.model.units import format_bytes, format_duration
from cluster.model.weights import FetchReport, VerifyReport, WeightsReport
from cluster.report.checks import checks_lines, doctor_lines, fix_lines, preflight_lines
from cluster.report.engram import bench_lines, engram_lines
from cluster.report.fabric import fabric_lines
from cluster.report.fit import fit_lines
from cluster.report.images import image_lines
from cluster.report.layout import (
    RANK_CODES,
    Line,
    Span,
    Tone,
    advice,
    cells,
    command,
    grid,
    hanging,
    labelled,
    line,
    paint,
)
from cluster.report.pace import pace_lines
from cluster.report.packs import pack_lines
from cluster.report.share import cost_lines, share_lines
from cluster.report.status import status_lines
from cluster.report.weights import Weights, weights_lines

Checked = PreflightReport | ChecksReport | FixReport | DoctorReport | FabricReport | ImageReport
Packs = PackReport | AlignmentReport | InspectReport | PackConfigReport | PatchReport | EngramReport | EngramBenchReport
Result = (
    Served
    | Stopped
    | ConfigReport
    | PlanReport
    | SmokeReport
    | ExportReport
    | FitReport
    | StatusReport
    | Checked
    | Packs
    | ChatBenchReport
    | Weights
    | ShareReport
    | ShareCosts
)


def result_lines(result: Result, width: int | None, *, quiet: bool = False) -> list[Line]:
    """`width` None is a pipe: nothing is wrapped."""
    match result:
        case Served():
            return [_served(result)] if quiet else [_served(result), *_times(result)]
        case Stopped():
            return _stopped(result)[: 1 if quiet else None]
        case ConfigReport():
            return grid(("key", "value", "from"), [_setting(one) for one in result.settings], indent=0)
        case PlanReport():
            return _plan(result, width)
        case SmokeReport():
            return _smoke(result, width)
        case ExportReport():
            return [line(text) for text in result.text.splitlines()]  # never wrapped: a program reads it
        case FitReport():
            return fit_lines(result, width)
        case StatusReport():
            return status_lines(result, width)
        case PreflightReport():
            return preflight_lines(result, width)
        case ChecksReport():
            return checks_lines(result, width)
        case FixReport():
            return fix_lines(result, width)
        case DoctorReport():
            return doctor_lines(result, width)
        case FabricReport():
            return fabric_lines(result, width)
        case ImageReport():
            return image_lines(result, width)
        case PackReport() | AlignmentReport() | InspectReport() | PackConfigReport() | PatchReport():
            return pack_lines(result, width)
        case EngramReport():
            return engram_lines(result, width)
        case EngramBenchReport():
            return bench_lines(result, width)
        case ChatBenchReport():
            return pace_lines(result, width)
        case VerifyReport() | FetchReport() | WeightsReport():
            return weights_lines(result, width)
        case ShareReport():
            return share_lines(result, width)
        case ShareCosts():
            return cost_lines(result, width)
        case _:
            assert_never(result)


def failed_lines(failed: Failed, width: int | None) -> list[Line]:
    """The sentence, where, the evidence as it was seen, and what to type."""
    lines = hanging(Span("error: ", Tone.BAD), failed.what, width, Tone.STRONG)
    if failed.where:
        lines += labelled("where", failed.where, width)
    for number, seen in enumerate(failed.evidence):
        lines += labelled("" if number else "seen", seen, width)
    for number, todo in enumerate(failed.fix.splitlines()):
        lines += advice("" if number else "try", todo, width, Tone.GOOD)
    return lines


def log_lines(log: LogLine, *, full_time: bool) -> list[Line]:
    """A rank's line behind its time and rank; the time of day is enough for a person at a terminal."""
    stamp = log.at if full_time else log.at[11:23] or log.at
    mark = Span(f"{log.node} r{log.rank} | ", RANK_CODES[log.rank % len(RANK_CODES)])
    return [line(Span(f"{stamp} ", Tone.DIM), mark, text) for text in log.text.split("\n")]


def _served(served: Served) -> Line:
    told = "already serving " if served.already else "serving "
    rest = (Span("   nothing to do", Tone.DIM),) if served.already else ()
    return line(Span(told, Tone.GOOD), Span(served.model, Tone.STRONG), " at ", Span(served.url, Tone.LINK), *rest)


def _times(served: Served) -> list[Line]:
    rows: list[tuple[str, str, str]] = []
    for stage in served.stages:
        rows += _tree(stage, "", "")
    if served.stages:
        rows.append(("total", format_duration(sum(stage.seconds for stage in served.stages)), ""))
    size = max((len(time) for _, time, _ in rows), default=0)
    right = [(name, time.rjust(size), Span(detail, Tone.DIM)) for name, time, detail in rows]
    receipt = [line(Span("  receipt  ", Tone.DIM), served.receipt)] if served.receipt else []
    return [*grid(("", "", ""), right), *receipt]


def _tree(stage: StageTime, first: str, below: str) -> list[tuple[str, str, str]]:
    rows = [(first + stage.stage, format_duration(stage.seconds), stage.detail)]
    for child in stage.children:
        last = child is stage.children[-1]
        rows += _tree(child, below + ("└ " if last else "├ "), below + ("  " if last else "│ "))
    return rows


def _stopped(stopped: Stopped) -> list[Line]:
    name = Span(stopped.deployment, Tone.STRONG)
    nodes = [one.node for one in stopped.ranks] + [one.node for one in stopped.memory]
    where = ", ".join(dict.fromkeys(nodes))
    on = f" on {where}" if where else ""
    if stopped.nothing:
        return [line("nothing to stop: ", name, f" does not run{on}")]
    ranks = [(f"rank {one.rank}", one.node, one.state, one.detail) for one in stopped.ranks]
    free = [("memory", one.node, _memory(one), one.detail) for one in stopped.memory]
    blank = ("",) * 4
    return [line(Span("stopped ", Tone.GOOD), name, on), *grid(blank, ranks), *grid(blank, free)]


def _memory(node: NodeStatus) -> str:
    if node.memory_available is None or node.memory_total is None:
        return "memory not read"
    return f"{format_bytes(node.memory_available)} of {format_bytes(node.memory_total)} free"


def _setting(shown: SettingShown) -> tuple[str, str, Span]:
    return (shown.key, value_text(shown.value), Span(shown.origin, Tone.DIM))


def value_text(value: Value) -> str:
    """As one would write it into `.env`; "-" when it is not set."""
    match value:
        case None | () | "":
            return "-"
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case tuple():
            return " ".join(shlex.quote(one) if isinstance(one, str) else "=".join(one) for one in value)
        case _:
            assert_never(value)


def _plan(plan: PlanReport, width: int | None) -> list[Line]:
    lines = [] if plan.stages else [line("nothing to do for ", Span(plan.deployment, Tone.STRONG))]
    for stage in plan.stages:
        order = "one after the other" if stage.in_order else "nodes side by side"
        lines.append(line(Span(stage.stage, Tone.STRONG), Span(f"   {order}", Tone.DIM)))
        for step in stage.steps:
            lines += _step(step, width)
    for note in plan.notes:
        lines += labelled("note", note, width)
    return lines


def _step(step: PlannedStep, width: int | None) -> list[Line]:
    lines = [line("  ", Span(step.node, Tone.LINK), f"  {step.why}")]
    if step.argv:
        variables = [f"{name}={shlex.quote(value)}" for name, value in step.environment]
        lines += command(Span("    $ ", Tone.DIM), [*variables, *map(shlex.quote, step.argv)], width)
    if step.path:
        size = "" if step.size is None else f"{format_bytes(step.size)}, "
        what = Span(f"{size}mode {step.mode}", Tone.DIM)
        path = line(Span("    > ", Tone.DIM), step.path)
        fits = width is None or cells(paint((*path, what), color=False)) + 3 <= width
        lines += [(*path, Span("   "), what)] if fits else [path, line("      ", what)]
    if step.undo:
        lines += command(Span("    undo $ ", Tone.DIM), list(map(shlex.quote, step.undo)), width, Tone.DIM)
    return lines


def _smoke(smoke: SmokeReport, width: int | None) -> list[Line]:
    told = Span("answers", Tone.GOOD) if smoke.ok else Span("does not answer as it must", Tone.BAD)
    rows = [
        (Span("ok", Tone.GOOD) if one.ok else Span("wrong", Tone.BAD), one.name, f"{one.seconds:.2f} s", one.detail)
        for one in smoke.checks
    ]
    head = line(Span(smoke.model, Tone.STRONG), " at ", Span(smoke.url, Tone.LINK), " ", told)
    return [head, *grid(("", "", "", ""), rows, width=width, wrapped=True)]
