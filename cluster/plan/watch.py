"""Take one look at one rank into its state: new log lines, its process, its node's RAS answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from cluster.plan.boot import (
    Alive,
    Evidence,
    Exited,
    Gone,
    Limits,
    LogLine,
    Member,
    Process,
    RankSight,
    RankState,
    Rebooted,
    Unknown,
    Weight,
)
from cluster.plan.faultlines import TOLD_TO_STOP, Blame, Detail, Fault, Force, Hint, signal_text
from cluster.plan.loglines import Marker, Noise, Phase, Plain, Proof, classify, message_of, progress_key
from cluster.plan.transport import INFO, heard
from cluster.probe.ras import RasReport, RasVerdict

_TEXTS_REMEMBERED = 512
_EVIDENCE_KEPT = 16
_DETAILS_KEPT = 16
_DETAIL_AGE = 10.0
_LINE_LENGTH = 400


def look(rank: RankState, sight: RankSight, members: Sequence[Member], now: float, limits: Limits) -> RankState:
    """The rank's state after this look. Its last words are read before its exit is."""
    for line in sight.lines:
        rank = replace(_read(rank, line, members), spoke_at=line.at)
    rank = _ask_process(rank, sight.process, now, limits)
    return rank if sight.ras is None else _ask_ras(rank, sight.ras, members, now)


def with_evidence(rank: RankState, piece: Evidence) -> RankState:
    """Add a sign of death in its place in time, once for each cause, as many as fit.

    What is left of a tree complains after its head was killed; what it says then is no reason.
    """
    known = any(piece.cause == old.cause and piece.weight is old.weight for old in rank.evidence)
    if known or len(rank.evidence) >= _EVIDENCE_KEPT:
        return rank
    return replace(rank, evidence=tuple(sorted((*rank.evidence, piece), key=lambda one: one.at)))


def _read(rank: RankState, line: LogLine, members: Sequence[Member]) -> RankState:
    what = classify(line.text)
    match what:
        case Fault():
            return with_evidence(rank, _accusation(rank.member, what, line, members))
        case Hint(text):
            return rank if text in rank.hints else replace(rank, hints=(*rank.hints, text))
        case Detail(text):
            piece = Evidence(line.at, Weight.SYMPTOM, text, _shown(line), None)
            recent = tuple(old for old in rank.details if old.at >= line.at - _DETAIL_AGE)
            return _progress(replace(rank, details=(*recent, piece)[:_DETAILS_KEPT]), line)
        case Marker():
            return _progress(_reach(rank, what, line.at), line)
        case Proof(parts):
            return _progress(replace(rank, proofs=rank.proofs | frozenset(parts)), line)
        case Plain():
            if INFO in line.text:
                rank = replace(rank, transport=heard(rank.transport, message_of(line.text)))
            return _progress(rank, line)
        case Noise():
            return rank
        case _:
            assert_never(what)


def _reach(rank: RankState, marker: Marker, at: float) -> RankState:
    rank = replace(rank, reached=rank.reached | {marker.phase})
    if marker.phase is Phase.WAITING:
        rank = replace(rank, rendezvous=marker.detail)
    if marker.phase >= rank.phase:
        step = f"{marker.step}/{marker.total}" if marker.step is not None else ""
        since = rank.phase_at if marker.phase is rank.phase else at
        rank = replace(rank, phase=marker.phase, phase_at=since, step=step)
    return rank


def _progress(rank: RankState, line: LogLine) -> RankState:
    key = progress_key(line.text)
    if not key or key in rank.seen:
        return rank
    seen = (*rank.seen, key)[-_TEXTS_REMEMBERED:]
    return replace(rank, seen=seen, progress_at=max(rank.progress_at, line.at), cpu_at_progress=_cpu(rank.process))


def _accusation(member: Member, fault: Fault, line: LogLine, members: Sequence[Member]) -> Evidence:
    blames = accused(member, fault.blame, line.text, members)
    reason = Weight.OWN if blames == member.rank else Weight.PEER
    weight = reason if fault.force is Force.REASON else Weight[fault.force.name]
    return Evidence(line.at, weight, fault.cause, _shown(line), blames, certain=fault.certain)


def accused(member: Member, blame: Blame, text: str, members: Sequence[Member]) -> int | None:
    """The rank a line accuses; with more than two ranks, the one whose address it mentions, if any."""
    match blame:
        case Blame.SELF:
            return member.rank
        case Blame.HEAD:
            return 0
        case Blame.PEER:
            others = [other for other in members if other.rank != member.rank]
            if len(others) == 1:
                return others[0].rank
            return next((other.rank for other in others if other.address and other.address in text), None)
        case _:
            assert_never(blame)


def _ask_process(rank: RankState, process: Process, now: float, limits: Limits) -> RankState:
    match process:
        case Alive(cpu_seconds):
            start = cpu_seconds if rank.cpu_at_progress is None else rank.cpu_at_progress
            return replace(rank, process=process, gone=0, lost=0, cpu_at_progress=start)
        case Exited(code, asked=True):
            return replace(_without_ending(rank), process=process, lost=0, exit=code)
        case Exited(code, at=at, words=words):
            signalled = code < 0 or 128 < code < 160
            how = signal_text(str(code))
            cause = (f"it was {how}" if signalled else f"it ended with {how}") + (f": {words}" if words else "")
            when = now if at is None else at
            weight, certain = (Weight.OWN, True) if words else (Weight.EXIT, signalled)
            piece = Evidence(when, weight, cause, f"process ended: {how}", None, certain, signalled)
            return replace(with_evidence(rank, piece), process=process, lost=0, exit=code)
        case Gone(orphans):
            rank = replace(rank, process=process, gone=rank.gone + 1, lost=0)
            if rank.gone < limits.gone_answers:
                return rank
            cause, shown = "it is not running, and left no exit code", "not running"
            if orphans:
                cause, shown = f"its launcher was killed; processes of it live on: {orphans}", "orphaned"
            piece = Evidence(now, Weight.EXIT, cause, shown, None, True)
            return with_evidence(rank, piece)
        case Rebooted(at, when):
            cause = f"its node was rebooted at {when}, after the start, and the rank went with it"
            piece = Evidence(at, Weight.OWN, cause, f"node rebooted at {when}", None, certain=True)
            return replace(with_evidence(_without_ending(rank), piece), process=process, lost=0)
        case Unknown():
            return replace(rank, process=process, lost=rank.lost + 1)
        case _:
            assert_never(process)


def _without_ending(rank: RankState) -> RankState:
    """What it said about its end is no accusation when the end was asked for; what it said before may be one."""
    kept = (one for one in rank.evidence if one.weight is not Weight.ENDING and one.cause != TOLD_TO_STOP)
    return replace(rank, evidence=tuple(kept))


def _ask_ras(rank: RankState, report: RasReport, members: Sequence[Member], now: float) -> RankState:
    verdict = report.verdict
    missing = tuple(other for other in report.missing if other != rank.member.rank)
    if verdict is RasVerdict.UNREACHABLE:
        missing = (rank.member.rank,)
    if verdict.is_death:
        blames = missing[0] if missing else accused(rank.member, Blame.PEER, "", members)
        said = "; ".join(report.reported) or verdict.value
        rank = with_evidence(
            rank, Evidence(now, Weight.PEER, "it went away: NCCL's RAS says so", f"RAS: {said}", blames)
        )
    if verdict.is_silence or verdict.is_death:
        return replace(rank, ras_silent_since=rank.ras_silent_since or now, ras_missing=missing)
    return replace(rank, ras_silent_since=None, ras_missing=())


def _cpu(process: Process) -> float | None:
    return process.cpu_seconds if isinstance(process, Alive) else None


def _shown(line: LogLine) -> str:
    return message_of(line.text)[:_LINE_LENGTH]
