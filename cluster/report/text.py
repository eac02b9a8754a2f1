"""The reporter for people: what goes on to stderr, results to stdout, never both on the screen at once."""

from dataclasses import replace
from threading import Lock
from types import TracebackType
from typing import Self, assert_never

from cluster.errors import Exit
from cluster.model.checks import ChecksReport, DoctorReport, FixReport, PreflightReport
from cluster.model.engram import EngramBenchReport, EngramReport
from cluster.model.events import (
    ConfigReport,
    Event,
    ExportReport,
    Failed,
    Finding,
    LogLine,
    PlanReport,
    Progress,
    Served,
    Severity,
    SmokeReport,
    StageEnded,
    StageStarted,
    StatusReport,
    StepStarted,
    Stopped,
    Told,
)
from cluster.model.fabric_test import FabricReport
from cluster.model.fit import FitReport
from cluster.model.images import ImageReport
from cluster.model.pace import ChatBenchReport
from cluster.model.packs import AlignmentReport, InspectReport, PackConfigReport, PackReport, PatchReport
from cluster.model.share import ShareCosts, ShareReport
from cluster.model.weights import FetchReport, VerifyReport, WeightsReport
from cluster.report.layout import clean
from cluster.report.plain import QUIET, Page, ProgressSide, WatchSide
from cluster.report.redact import Redactor, map_text
from cluster.report.results import Result, failed_lines, log_lines, result_lines


class TextReporter:
    """Sends each event to the side that shows it. Foreign text is made harmless, then masked, before anything else."""

    def __init__(
        self,
        out: Page,
        err: Page,
        progress: ProgressSide,
        redactor: Redactor,
        *,
        verbosity: int = 0,
        watch: WatchSide | None = None,
    ) -> None:
        self._out = out
        self._err = err
        self._progress = progress
        self._redactor = redactor
        self._quiet = verbosity <= QUIET
        self._watch = watch
        self._refusals: list[str] = []
        self._one_at_a_time = Lock()

    def __call__(self, event: Event) -> None:
        shown = self._redactor.event(map_text(event, clean))
        with self._one_at_a_time:
            self._show(shown)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._one_at_a_time:
            self._settle()

    def _show(self, event: Event) -> None:
        match event:
            case StageStarted() | StageEnded() | StepStarted() | Progress() | Finding() | Told():
                if isinstance(event, Finding) and event.severity is Severity.REFUSAL:
                    self._refusals.append(event.observed)
                self._progress.show(event)
            case StatusReport() if self._watch:
                self._watch.show(event)
            case LogLine():
                self._progress.settle()
                self._out.write(log_lines(event, full_time=self._out.width is None))
            case Failed():
                self._settle()
                self._err.write(failed_lines(self._without_repetition(event), self._err.width))
            case (
                Served()
                | Stopped()
                | ConfigReport()
                | PlanReport()
                | SmokeReport()
                | ExportReport()
                | FitReport()
                | StatusReport()
            ):
                self._write(event)
            case PreflightReport() | ChecksReport() | FixReport() | DoctorReport() | FabricReport() | ImageReport():
                self._write(event)
            case (
                PackReport() | AlignmentReport() | InspectReport() | PackConfigReport() | PatchReport() | EngramReport()
            ):
                self._write(event)
            case EngramBenchReport() | ChatBenchReport():
                self._write(event)
            case VerifyReport() | FetchReport() | WeightsReport() | ShareReport() | ShareCosts():
                self._write(event)
            case _:
                assert_never(event)

    def _write(self, result: Result) -> None:
        self._settle()
        self._out.write(result_lines(result, self._out.width, quiet=self._quiet))

    def _settle(self) -> None:
        self._progress.settle()
        if self._watch:
            self._watch.settle()

    def _without_repetition(self, failed: Failed) -> Failed:
        """A refusal's evidence is its findings, and those stand just above."""
        if failed.exit != Exit.REFUSED:
            return failed
        kept = tuple(seen for seen in failed.evidence if not any(told in seen for told in self._refusals))
        return replace(failed, evidence=kept)
