"""Name the first cause: when a deployment dies and all ranks complain, which one failed first, and of what.

The loud rank is often the innocent one. A rank that complains of its peer is a victim; one that names its own trouble,
or is killed by a signal without a word, is the culprit; one that ends or breaks without a reason comes in between.
"""

from collections.abc import Sequence

from cluster.plan.boot import Died, Evidence, Exited, RankState, Weight

_TELLING = (Weight.SYMPTOM, Weight.ENDING, Weight.ORPHAN, Weight.EXIT)
_LINES_SHOWN = 6
_SAME_TROUBLE = 5.0  # a traceback is written, and arrives, within seconds of its symptom


def first_cause(ranks: Sequence[RankState], now: float, grace: float) -> Died | None:
    """The death to report now; None while nobody died, or while the other ranks' words are still awaited."""
    signs = [piece for rank in ranks for piece in rank.evidence]
    if not signs:
        return None
    culprit, lead = _culprit(ranks)
    waited = now - min(piece.at for piece in signs)
    if not lead.certain and waited < grace:
        return None
    return Died(
        rank=None if culprit is None else culprit.member.rank,
        cause=_cause(culprit, lead),
        evidence=_lines(ranks, culprit),
        exit=None if culprit is None else culprit.exit,
    )


def lead_of(rank: RankState) -> Evidence | None:
    """The piece that says what happened to this rank: its first word with a reason in it, else its first sign."""
    spoke = False
    for piece in rank.evidence:
        if piece.weight in (Weight.OWN, Weight.PEER) or (piece.signalled and not spoke):
            return piece
        spoke = spoke or piece.weight is not Weight.ORPHAN
    by_telling = sorted(rank.evidence, key=lambda piece: _TELLING.index(piece.weight))
    return next(iter(by_telling), None)


def reason_of(rank: RankState, lead: Evidence) -> str:
    """The lead's cause, with the exception that stands beside a mere symptom, or among the words before an exit."""
    if lead.weight is Weight.EXIT and isinstance(rank.process, Exited) and not lead.signalled:
        last = [detail for detail in rank.details if detail.at >= rank.spoke_at - _SAME_TROUBLE]
        return f"{lead.cause}: {last[-1].cause}" if last else f"{lead.cause}, and gave no reason"
    if lead.weight is not Weight.SYMPTOM:
        return lead.cause
    beside = [detail for detail in rank.details if abs(detail.at - lead.at) <= _SAME_TROUBLE]
    return f"{lead.cause}: {beside[0].cause}" if beside else lead.cause


def _culprit(ranks: Sequence[RankState]) -> tuple[RankState | None, Evidence]:
    leads = [(rank, lead) for rank in ranks if (lead := lead_of(rank)) is not None]
    strong = [(rank, lead) for rank, lead in leads if lead.weight is Weight.OWN or lead.signalled]
    if strong:
        return min(strong, key=lambda pair: (not pair[1].certain, pair[1].at))
    victims = [lead for _, lead in leads if lead.weight is Weight.PEER]
    middling = [(rank, lead) for rank, lead in leads if lead.weight in _TELLING]
    accused = {lead.blames for lead in victims}
    named = [(rank, lead) for rank, lead in middling if rank.member.rank in accused]
    if named or middling:
        return min(named or middling, key=lambda pair: pair[1].at)
    first = min(victims, key=lambda lead: (not lead.certain, lead.at))
    return next((rank for rank in ranks if rank.member.rank == first.blames), None), first


def _cause(culprit: RankState | None, lead: Evidence) -> str:
    if culprit is None:
        return lead.cause
    own = lead_of(culprit)
    if lead.weight is Weight.PEER and own is not None and own.weight is Weight.PEER and own.blames is not None:
        return "the ranks lost each other: each says that the other's connection broke (look at the link between them)"
    return reason_of(culprit, lead)


def _lines(ranks: Sequence[RankState], culprit: RankState | None) -> tuple[str, ...]:
    ordered = sorted(ranks, key=lambda rank: (rank is not culprit, rank.member.rank))
    shown: list[str] = []
    for rank in ordered:
        mine = sorted((*rank.evidence, *rank.details), key=lambda piece: piece.at)[: _LINES_SHOWN // 2]
        shown += [f"rank {rank.member.rank}: {piece.line}" for piece in mine]
    return tuple(dict.fromkeys(shown))[:_LINES_SHOWN]
