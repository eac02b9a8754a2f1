"""Every check before a boot: facts of all nodes, judged together, told, and refused before anything changes."""

from dataclasses import dataclass, field, replace

from cluster.app.boxes import look_at_boxes
from cluster.app.engram import look_at_tables
from cluster.app.ledger import MemoryPlan
from cluster.app.memory import memory_findings, planned
from cluster.app.pace import REAL, Pace
from cluster.app.session import Session
from cluster.app.survey import Survey, judged, survey
from cluster.errors import Refused
from cluster.model.containers import Box
from cluster.model.deployment import rank_dir
from cluster.model.events import Emit, Finding, Severity, Told
from cluster.model.facts import Identity, NodeFacts
from cluster.model.settings import Settings
from cluster.plan.boxes import BoxSeen, box_of, check_boxes, check_labelled, check_later
from cluster.plan.engram import check_overlay, check_tables
from cluster.plan.launch import Wiring, written_digest
from cluster.plan.preflight import check_equal, refusals
from cluster.probe.tables import TablesSeen
from cluster.runtime.base import LaunchSpec

LATER = frozenset({"RANKS.ARGV"})  # checked once the command lines lie on the nodes


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks let through."""

    facts: dict[str, NodeFacts]
    identities: dict[str, Identity]
    wiring: tuple[Wiring, ...]
    memory: MemoryPlan | None = None
    boxes: tuple[Box, ...] = ()


def check(
    session: Session, emit: Emit, forced: frozenset[str] = frozenset(), *, ports: bool = True, pace: Pace = REAL
) -> Checked:
    """Every check before a boot; all findings are told, then the refusals end it (nothing has been changed)."""
    checked, findings = findings_of(session, emit, ports=ports, pace=pace)
    unmade = forced - {one.id for one in findings} - LATER if ports else frozenset()
    for name in sorted(unmade):
        emit(Told(Severity.WARNING, f"--force {name}: no check of that name was made"))
    judge(findings, emit, forced)
    return checked


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was seen for the checks, before it is judged."""

    seen: Survey
    hosts: dict[str, BoxSeen]
    memory: MemoryPlan | None
    tables: dict[str, TablesSeen] = field(default_factory=dict)


def gather(session: Session, emit: Emit, pace: Pace = REAL, *, memory: bool = True) -> Gathered:
    """Everything the checks want to know, asked side by side."""
    seen, hosts, tables = session.at_once(
        lambda: survey(session, pace, memory=memory),
        lambda: look_at_boxes(session),
        lambda: look_at_tables(session),
    )
    plan = planned(session, emit, seen.memory, seen.shape) if memory else None
    return Gathered(seen, hosts, plan, tables)


def findings_of(
    session: Session, emit: Emit, *, ports: bool = True, pace: Pace = REAL
) -> tuple[Checked, list[Finding]]:
    """Everything there is to say. `ports` false: our own ranks run, and hold their ports and memory."""
    return judge_all(session.settings, gather(session, emit, pace, memory=ports), ports=ports)


def judge_all(settings: Settings, got: Gathered, *, ports: bool) -> tuple[Checked, list[Finding]]:
    wiring, found = judged(settings, got.seen, ports=ports)
    findings = [*found, *check_later(settings, got.hosts)]
    findings += [*check_overlay(settings, got.seen.identities), *check_tables(settings, got.tables)]
    boxes = tuple(box_of(settings, node, got.hosts[node.name]) for node in settings.nodes if got.hosts)
    memory = got.memory if ports else None  # while the old ranks run, their memory is still to come
    if memory is not None:
        findings += memory_findings(settings, memory)
    return Checked(got.seen.facts, got.seen.identities, wiring, memory, boxes), findings


def judge(findings: list[Finding], emit: Emit, forced: frozenset[str]) -> None:
    for finding in findings:
        is_forced = finding.severity is Severity.REFUSAL and finding.id in forced
        emit(replace(finding, severity=Severity.WARNING) if is_forced else finding)
    refused = refusals(findings, forced)
    if refused:
        raise Refused(
            f"{len(refused)} check{'s' if len(refused) > 1 else ''} failed; nothing was changed",
            evidence=dict.fromkeys(
                line for one in refused for line in (f"{one.node or 'all nodes'}: {one.observed}", *one.details)
            ),
            fix="\n".join(dict.fromkeys(one.fix for one in refused if one.fix)),
        )


def bring_image(session: Session, emit: Emit, forced: frozenset[str]) -> tuple[Box, ...]:
    """The image on every node, and what each gives its container: by the ids that the engines have now."""
    from cluster.app.image import bring, wish_of

    settings = session.settings
    bring(session, emit, wish_of(settings))
    hosts = look_at_boxes(session)
    judge([*check_boxes(settings, hosts), *check_labelled(settings, hosts)], emit, forced)
    return tuple(box_of(settings, node, hosts[node.name]) for node in settings.nodes)


def try_image(session: Session, emit: Emit, forced: frozenset[str]) -> None:
    """The image's own self-test, on the GPU of every node that has one."""
    from cluster.app.self_test import self_test

    judge(self_test(session, emit), emit, forced)


def compare_written(session: Session, spec: LaunchSpec, checked: Checked, emit: Emit, forced: frozenset[str]) -> None:
    """Read each rank's command line back from its node: what was rendered is not yet what will be run."""
    paths = {rank.node: str(rank_dir(rank.state_dir, spec.which, rank.rank) / "spec.json") for rank in spec.ranks}
    read = session.each(lambda node: written_digest(node.read(paths[node.name])))
    seen = {name: replace(one, argv_digest=read[name]) for name, one in checked.identities.items()}
    judge([one for one in check_equal(session.settings, seen) if one.id == "RANKS.ARGV"], emit, forced)
