"""Every check before a boot: facts of all nodes, judged together, told, and refused before anything changes."""

from dataclasses import dataclass, replace

from cluster.app.ledger import MemoryPlan
from cluster.app.memory import memory_findings, plan_memory
from cluster.app.observe import facts_of, identity_of
from cluster.app.ranks import rank_of
from cluster.app.session import Session
from cluster.errors import Refused
from cluster.model.deployment import rank_dir
from cluster.model.events import Emit, Finding, Severity
from cluster.model.facts import Identity, NodeFacts
from cluster.plan.fabric_checks import wire_ranks
from cluster.plan.launch import Wiring
from cluster.plan.preflight import check_equal, check_key, check_node, check_ports, refusals
from cluster.runtime.base import LaunchSpec


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checks let through."""

    facts: dict[str, NodeFacts]
    identities: dict[str, Identity]
    wiring: tuple[Wiring, ...]
    memory: MemoryPlan | None = None


def check(session: Session, emit: Emit, forced: frozenset[str] = frozenset(), *, ports: bool = True) -> Checked:
    """Every check before a boot; all findings are told, then the refusals end it (nothing has been changed)."""
    settings = session.settings
    facts = session.each(facts_of)
    identities = session.each(lambda node: identity_of(node, settings, settings.nodes[rank_of(settings, node.name)]))
    wiring, fabric = wire_ranks(settings, facts)
    findings = list(fabric)
    if ports:
        findings += check_ports(settings, facts[settings.head.name])
    for name, seen in identities.items():
        findings += check_node(settings, name, seen)
    findings += check_key(settings, identities[settings.head.name])
    findings += [one for one in check_equal(settings, identities) if one.severity is not Severity.NOT_CHECKED]
    memory = plan_memory(session, emit) if ports else None  # while the old ranks run, their memory is still to come
    if memory is not None:
        findings += memory_findings(settings, memory)
    judge(findings, emit, forced)
    return Checked(facts, identities, wiring, memory)


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


def compare_written(session: Session, spec: LaunchSpec, checked: Checked, emit: Emit, forced: frozenset[str]) -> None:
    """Read each rank's command line back from its node: what was rendered is not yet what will be run."""
    settings = session.settings
    bare = replace(
        settings, serve=replace(settings.serve, model="", api_key_file=""), launch=replace(settings.launch, venv="")
    )
    paths = {rank.node: str(rank_dir(rank.state_dir, spec.which, rank.rank) / "spec.json") for rank in spec.ranks}
    read = session.each(
        lambda node: identity_of(node, bare, bare.nodes[rank_of(bare, node.name)], paths[node.name]).argv_digest
    )
    seen = {name: replace(one, argv_digest=read[name]) for name, one in checked.identities.items()}
    judge([one for one in check_equal(settings, seen) if one.id == "RANKS.ARGV"], emit, forced)
